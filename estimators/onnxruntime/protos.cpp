#include "estimators/onnxruntime/protos.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <vector>

#include "estimators/frontends/onnx/tensors.h"
#include "estimators/frontends/onnx/wire.h"
#include "estimators/runtime/ort/kernels.h"
#include "estimators/runtime/ort/optimize.h"
#include "onnx/onnx-ml.pb.h"

namespace memplan {

namespace {

using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;

/// Of tensors inside of nodes, which the file itself has to hold.
constexpr std::int64_t most_in_nodes = std::int64_t{64} << 20;
constexpr const char* weights_file = "weights";

class Zeros {
 public:
  explicit Zeros(std::int64_t most) : most_(most) {}

  void fill(GraphProto& graph) {
    for (TensorProto& t : *graph.mutable_initializer()) {
      const std::int64_t bytes = lost(t);
      if (bytes < 0) continue;
      total_ = checked_add(total_, bytes);
      longest_ = std::max(longest_, bytes);
      t.set_data_location(TensorProto::EXTERNAL);
      const auto say = [&](const char* key, const std::string& value) {
        auto* entry = t.add_external_data();
        entry->set_key(key);
        entry->set_value(value);
      };
      say("location", weights_file);
      say("offset", "0");
      say("length", std::to_string(bytes));
    }
    for (NodeProto& node : *graph.mutable_node()) fill(node);
  }

  void fill(NodeProto& node) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t())
        if (const std::int64_t bytes = lost(*attribute.mutable_t()); bytes >= 0) {
          in_nodes_ = checked_add(in_nodes_, bytes);
          if (in_nodes_ <= most_in_nodes)
            attribute.mutable_t()->set_raw_data(std::string(static_cast<std::size_t>(bytes), '\0'));
        }
      if (attribute.has_g()) fill(*attribute.mutable_g());
      for (GraphProto& g : *attribute.mutable_graphs()) fill(g);
    }
  }

  std::int64_t longest() const { return total_ > most_ || in_nodes_ > most_in_nodes ? -1 : longest_; }

 private:
  /// Bytes of contents that are not there, without their traces; negative where all is there.
  static std::int64_t lost(TensorProto& t) {
    bool dropped = t.data_location() == TensorProto::EXTERNAL;
    for (const auto& entry : t.metadata_props()) dropped = dropped || entry.key() == onnx_format::dropped_key;
    if (!dropped) return -1;
    t.clear_external_data();
    t.clear_metadata_props();
    t.clear_data_location();
    const auto dtype = onnx_format::dtype_of(t.data_type());
    if (!dtype) return 0;
    return bytes_of(*dtype, std::vector<std::int64_t>(t.dims().begin(), t.dims().end())).count;
  }

  std::int64_t most_, total_ = 0, in_nodes_ = 0, longest_ = 0;
};

const std::string& first_output(const NodeProto& node) {
  static const std::string none;
  for (const std::string& name : node.output())
    if (!name.empty()) return name;
  return none;
}

void note_index(NodeProto& node, std::int64_t index) {
  auto* entry = node.add_metadata_props();
  entry->set_key(ort::index_key);
  entry->set_value(std::to_string(index));
}

/// A graph's nodes by what they make.
struct Makers {
  explicit Makers(const GraphProto& graph) {
    for (int i = 0; i < graph.node_size(); ++i)
      for (const std::string& name : graph.node(i).output())
        if (!name.empty()) of.emplace(name, i);
    for (const auto& input : graph.input()) given.insert(input.name());
    for (const auto& tensor : graph.initializer()) given.insert(tensor.name());
  }
  bool has(const std::string& name) const { return name.empty() || given.count(name) > 0 || of.count(name) > 0; }
  std::unordered_map<std::string, int> of;
  std::set<std::string> given;
};

/// Nodes of the body that ends in `node`; empty where it is no body of `op`. ONNX Runtime names what only a body has
/// after the op (Graph::InlineFunctionProto).
std::set<int> body_of(const GraphProto& graph, const Makers& makers, int node, const std::string& op) {
  const std::string mark = "_inlfunc_" + op + "_";
  std::set<int> body;
  std::vector<int> left{node};
  while (!left.empty()) {
    const int at = left.back();
    left.pop_back();
    if (!body.insert(at).second) continue;
    for (const std::string& name : graph.node(at).input())
      if (const auto it = makers.of.find(name); it != makers.of.end() && name.starts_with(mark))
        left.push_back(it->second);
  }
  return body.size() > 1 ? body : std::set<int>();
}

}  // namespace

std::int64_t give_zeros(ModelProto& model, std::int64_t most) {
  Zeros zeros(most);
  zeros.fill(*model.mutable_graph());
  for (auto& function : *model.mutable_functions())
    for (NodeProto& node : *function.mutable_node()) zeros.fill(node);
  return zeros.longest();
}

void note_indices(ModelProto& rewritten, const std::map<std::string, std::int64_t>& indices) {
  for (NodeProto& node : *rewritten.mutable_graph()->mutable_node())
    if (const auto it = indices.find(first_output(node)); it != indices.end()) note_index(node, it->second);
}

void put_back_functions(const ModelProto& plain, ModelProto& rewritten) {
  GraphProto& graph = *rewritten.mutable_graph();
  const Makers makers(graph);
  std::set<int> gone;
  std::vector<NodeProto> back;
  std::int64_t index = -1;
  for (const NodeProto& node : plain.graph().node()) {
    if (node.op_type() == "Constant" && node.domain().empty()) continue;  // a weight as soon as the file is read
    ++index;
    GraphNode op;
    op.op_type = node.op_type();
    op.domain = node.domain();
    const auto made = makers.of.find(first_output(node));
    if (made == makers.of.end() || !ort::kernel_of(op)) continue;
    const std::set<int> body = body_of(graph, makers, made->second, node.op_type());
    bool whole = !body.empty();
    for (const std::string& name : node.input()) whole = whole && makers.has(name);
    if (!whole) continue;
    gone.insert(body.begin(), body.end());
    back.push_back(node);
    note_index(back.back(), index);
  }
  if (back.empty()) return;
  GraphProto kept;
  for (int i = 0; i < graph.node_size(); ++i)
    if (!gone.count(i)) kept.add_node()->Swap(graph.mutable_node(i));
  for (NodeProto& node : back) kept.add_node()->Swap(&node);
  graph.mutable_node()->Swap(kept.mutable_node());
}

}  // namespace memplan
