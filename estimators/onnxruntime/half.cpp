#include "estimators/onnxruntime/half.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "onnx/onnx-ml.pb.h"

namespace memplan {

namespace {

using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;
using ::onnx::ValueInfoProto;

/// Tensors of sizes and scales have no more elements.
constexpr std::int64_t few = 16;

bool is_half(int type) { return type == TensorProto::FLOAT16 || type == TensorProto::BFLOAT16; }
bool is_wide(int type) { return type == TensorProto::FLOAT || type == TensorProto::DOUBLE; }

std::int64_t count_of(const TensorProto& t) {
  std::int64_t count = 1;
  for (const std::int64_t n : t.dims()) count = std::min<std::int64_t>(count, few + 1) * n;
  return count;
}

/// Which types of a graph make it a mixed one.
class Types {
 public:
  void see(const GraphProto& graph) {
    for (const TensorProto& t : graph.initializer()) see(t.data_type(), is_wide(t.data_type()) && count_of(t) > few);
    for (const auto* list : {&graph.input(), &graph.output()})
      for (const ValueInfoProto& v : *list)
        see(v.type().tensor_type().elem_type(), is_wide(v.type().tensor_type().elem_type()));
    for (const NodeProto& node : graph.node()) see(node);
  }
  /// 0: no half type; negative: a mixed graph.
  int half() const { return half_ == 0 ? 0 : mixed_ ? -1 : half_; }

 private:
  void see(int type, bool mixes) {
    if (is_half(type)) {
      mixed_ = mixed_ || (half_ != 0 && half_ != type);
      half_ = type;
    }
    mixed_ = mixed_ || mixes;
  }
  void see(const NodeProto& node) {
    for (const AttributeProto& a : node.attribute()) {
      if (node.op_type() == "Cast" && a.name() == "to") see(static_cast<int>(a.i()), is_wide(static_cast<int>(a.i())));
      if (a.has_t()) see(a.t().data_type(), is_wide(a.t().data_type()) && count_of(a.t()) > few);
      // Bodies of branches and loops: their values go by names of their own.
      if (a.has_g() || a.graphs_size() > 0) mixed_ = true;
    }
  }
  int half_ = 0;
  bool mixed_ = false;
};

float single_of(std::uint16_t bits, int type) {
  std::uint32_t wide = 0;
  if (type == TensorProto::BFLOAT16) {
    wide = std::uint32_t{bits} << 16;
  } else {
    const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 1023u;
    // Subnormal numbers count as zero: no size depends on one.
    if (exponent == 31)
      wide = sign | 0x7f800000u | fraction << 13;
    else if (exponent > 0)
      wide = sign | (exponent + 112) << 23 | fraction << 13;
  }
  float out = 0;
  std::memcpy(&out, &wide, sizeof out);
  return out;
}

std::uint16_t half_of(float value, int type) {
  std::uint32_t wide = 0;
  std::memcpy(&wide, &value, sizeof wide);
  if (type == TensorProto::BFLOAT16) return static_cast<std::uint16_t>(wide >> 16);
  const std::uint32_t sign = wide >> 16 & 0x8000u;
  const auto exponent = static_cast<std::int32_t>(wide >> 23 & 255u) - 112;
  if (exponent >= 31) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (exponent <= 0) return static_cast<std::uint16_t>(sign);
  return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(exponent) << 10 | (wide >> 13 & 1023u));
}

template <typename T>
std::vector<T> raw(const TensorProto& t) {
  std::vector<T> out(t.raw_data().size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), t.raw_data().data(), out.size() * sizeof(T));
  return out;
}
template <typename T>
void set_raw(TensorProto& t, const std::vector<T>& values) {
  t.clear_int32_data();
  t.clear_float_data();
  t.set_raw_data(values.data(), values.size() * sizeof(T));
}

/// Contents that are not there are of any type.
void widen_tensor(TensorProto& t, int type) {
  if (t.data_type() != type) return;
  t.set_data_type(TensorProto::FLOAT);
  std::vector<std::uint16_t> halves = raw<std::uint16_t>(t);
  for (const std::int32_t word : t.int32_data()) halves.push_back(static_cast<std::uint16_t>(word));
  std::vector<float> singles;
  for (const std::uint16_t bits : halves) singles.push_back(single_of(bits, type));
  if (!singles.empty()) set_raw(t, singles);
}

void narrow_tensor(TensorProto& t, int type) {
  if (t.data_type() != TensorProto::FLOAT) return;
  t.set_data_type(type);
  std::vector<float> singles = raw<float>(t);
  singles.insert(singles.end(), t.float_data().begin(), t.float_data().end());
  std::vector<std::uint16_t> halves;
  for (const float value : singles) halves.push_back(half_of(value, type));
  if (!halves.empty()) set_raw(t, halves);
}

void retype(ValueInfoProto& value, int from, int to) {
  auto& type = *value.mutable_type();
  if (type.has_tensor_type() && type.tensor_type().elem_type() == from) type.mutable_tensor_type()->set_elem_type(to);
}

/// All values and the types that casts name.
void retype(GraphProto& graph, int from, int to) {
  for (auto* list : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()})
    for (ValueInfoProto& v : *list) retype(v, from, to);
  for (NodeProto& node : *graph.mutable_node())
    for (AttributeProto& a : *node.mutable_attribute())
      if (node.op_type() == "Cast" && a.name() == "to" && a.i() == from) a.set_i(to);
}

}  // namespace

std::optional<Widened> widen(ModelProto& model) {
  Types types;
  types.see(model.graph());
  const int half = types.half();
  if (half == 0) return Widened{};
  if (half < 0 || model.functions_size() > 0) return std::nullopt;
  Widened out{half, {}};
  GraphProto& graph = *model.mutable_graph();
  for (TensorProto& t : *graph.mutable_initializer()) {
    if (t.data_type() == TensorProto::FLOAT) out.singles.insert(t.name());
    widen_tensor(t, half);
  }
  for (NodeProto& node : *graph.mutable_node())
    for (AttributeProto& a : *node.mutable_attribute())
      if (a.has_t()) {
        if (a.t().data_type() == TensorProto::FLOAT)
          for (const std::string& name : node.output()) out.singles.insert(name);
        widen_tensor(*a.mutable_t(), half);
      }
  retype(graph, half, TensorProto::FLOAT);
  return out;
}

void narrow(ModelProto& rewritten, const Widened& widened) {
  if (widened.type == 0) return;
  GraphProto& graph = *rewritten.mutable_graph();
  for (TensorProto& t : *graph.mutable_initializer())
    if (!widened.singles.count(t.name())) narrow_tensor(t, widened.type);
  for (NodeProto& node : *graph.mutable_node())
    for (AttributeProto& a : *node.mutable_attribute())
      if (a.has_t() && (node.output_size() == 0 || !widened.singles.count(node.output(0))))
        narrow_tensor(*a.mutable_t(), widened.type);
  retype(graph, TensorProto::FLOAT, widened.type);
}

}  // namespace memplan
