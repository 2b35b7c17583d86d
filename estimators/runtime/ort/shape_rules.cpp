#include "estimators/runtime/ort/shape_rules.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace memplan::ort {

namespace {

using DimList = std::vector<Dim>;
using Numbers = std::vector<std::int64_t>;
using Outputs = std::vector<KnownShape>;

void same(const RuleInput& in, Outputs& out) { out[0] = in.in(0); }

/// All outputs that are there like the first input.
void all_same(const RuleInput& in, Outputs& out) { std::fill(out.begin(), out.end(), in.in(0)); }

void elementwise(const RuleInput& in, Outputs& out) {
  std::vector<KnownShape> shapes;
  for (std::size_t i = 0; i < in.node.inputs.size(); ++i) shapes.push_back(in.in(i));
  out[0] = broadcast(shapes);
}

void matmul_of(DimList a, DimList b, KnownShape& out) {
  const bool row = a.size() == 1, column = b.size() == 1;
  if (a.empty() || b.empty()) return;
  if (row) a.insert(a.begin(), Dim{1, {}});
  if (column) b.push_back({1, {}});
  const KnownShape batch = broadcast({DimList(a.begin(), a.end() - 2), DimList(b.begin(), b.end() - 2)});
  out = batch;
  if (!row) out->push_back(a[a.size() - 2]);
  if (!column) out->push_back(b.back());
}

void matmul(const RuleInput& in, Outputs& out) {
  if (in.in(0) && in.in(1)) matmul_of(*in.in(0), *in.in(1), out[0]);
}

void fused_matmul(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || !in.in(1) || in.in(0)->size() < 2 || in.in(1)->size() < 2) return;
  DimList a = *in.in(0), b = *in.in(1);
  if (in.integer("transA", 0)) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (in.integer("transB", 0)) std::swap(b[b.size() - 1], b[b.size() - 2]);
  matmul_of(a, b, out[0]);
}

void gemm(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || !in.in(1) || in.in(0)->size() != 2 || in.in(1)->size() != 2) return;
  out[0] = DimList{(*in.in(0))[in.integer("transA", 0) ? 1 : 0], (*in.in(1))[in.integer("transB", 0) ? 0 : 1]};
}

/// convPoolShapeInference (onnx/defs/nn/defs.cc): windows of known sizes only.
void windows(const RuleInput& in, Outputs& out, DimList head, const Numbers& kernel) {
  const DimList& x = *in.in(0);
  const std::size_t n = x.size() - 2;
  if (kernel.size() != n) return;
  const Numbers strides = in.list("strides").value_or(Numbers(n, 1)),
                dilations = in.list("dilations").value_or(Numbers(n, 1));
  const Numbers pads = in.list("pads").value_or(Numbers(2 * n, 0));
  if (strides.size() != n || dilations.size() != n || pads.size() != 2 * n) return;
  const auto automatic = in.node.attributes.find("auto_pad");
  const auto* pad = automatic == in.node.attributes.end() ? nullptr : std::get_if<std::string>(&automatic->second);
  const bool keeps = pad && pad->starts_with("SAME");
  for (std::size_t i = 0; i < n; ++i) {
    if (x[i + 2].open() || strides[i] < 1) {
      head.emplace_back();
      continue;
    }
    const std::int64_t room = x[i + 2].size + pads[i] + pads[i + n] - (dilations[i] * (kernel[i] - 1) + 1);
    const std::int64_t up = in.integer("ceil_mode", 0) ? strides[i] - 1 : 0;
    head.push_back({keeps ? (x[i + 2].size + strides[i] - 1) / strides[i] : (room + up) / strides[i] + 1, {}});
  }
  std::fill(out.begin(), out.end(), KnownShape(head));
}

void conv(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || !in.in(1) || in.in(0)->size() < 3 || in.in(1)->size() != in.in(0)->size()) return;
  Numbers kernel;
  for (std::size_t i = 2; i < in.in(1)->size(); ++i) {
    if ((*in.in(1))[i].open()) return;
    kernel.push_back((*in.in(1))[i].size);
  }
  windows(in, out, {(*in.in(0))[0], (*in.in(1))[0]}, kernel);
}

void pool(const RuleInput& in, Outputs& out) {
  const auto kernel = in.list("kernel_shape");
  if (kernel && in.in(0) && in.in(0)->size() > 2) windows(in, out, {(*in.in(0))[0], (*in.in(0))[1]}, *kernel);
}

void global_pool(const RuleInput& in, Outputs& out) {
  if (!in.in(0)) return;
  out[0] = in.in(0);
  for (std::size_t i = 2; i < out[0]->size(); ++i) (*out[0])[i] = {1, {}};
}

void conv_transpose(const RuleInput& in, Outputs& out) {
  if (!in.in(0) || !in.in(1) || in.in(0)->size() < 3) return;
  const std::size_t n = in.in(0)->size() - 2;
  const Numbers strides = in.list("strides").value_or(Numbers(n, 1)),
                dilations = in.list("dilations").value_or(Numbers(n, 1));
  const Numbers pads = in.list("pads").value_or(Numbers(2 * n, 0)),
                extra = in.list("output_padding").value_or(Numbers(n, 0));
  DimList sizes{(*in.in(0))[0], Dim{(*in.in(1))[1].size * in.integer("group", 1), {}}};
  for (std::size_t i = 0; i < n; ++i) {
    const Dim& x = (*in.in(0))[i + 2];
    const Dim& k = (*in.in(1))[i + 2];
    if (x.open())
      sizes.emplace_back();
    else
      sizes.push_back(
          {strides[i] * (x.size - 1) + extra[i] + (k.size - 1) * dilations[i] + 1 - pads[i] - pads[i + n], {}});
  }
  out[0] = sizes;
}

void skip_norm(const RuleInput& in, Outputs& out) {
  out[0] = in.in(0);
  if (out.size() > 3) out[3] = in.in(0);
}

void batch_norm(const RuleInput& in, Outputs& out) { out[0] = in.in(0); }

constexpr std::array rules{
    ShapeRule{"MatMul", matmul},
    ShapeRule{"FusedMatMul", fused_matmul},
    ShapeRule{"Gemm", gemm},
    ShapeRule{"Conv", conv},
    ShapeRule{"FusedConv", conv},
    ShapeRule{"MaxPool", pool},
    ShapeRule{"AveragePool", pool},
    ShapeRule{"GlobalAveragePool", global_pool},
    ShapeRule{"GlobalMaxPool", global_pool},
    ShapeRule{"ConvTranspose", conv_transpose},
    ShapeRule{"BatchNormalization", batch_norm},
    ShapeRule{"SkipLayerNormalization", skip_norm},
    ShapeRule{"SkipSimplifiedLayerNormalization", skip_norm},
    ShapeRule{"Dropout", all_same},
    ShapeRule{"Add", elementwise},
    ShapeRule{"Sub", elementwise},
    ShapeRule{"Mul", elementwise},
    ShapeRule{"Div", elementwise},
    ShapeRule{"Pow", elementwise},
    ShapeRule{"Where", elementwise},
    ShapeRule{"Equal", elementwise},
    ShapeRule{"Greater", elementwise},
    ShapeRule{"GreaterOrEqual", elementwise},
    ShapeRule{"Less", elementwise},
    ShapeRule{"LessOrEqual", elementwise},
    ShapeRule{"And", elementwise},
    ShapeRule{"Or", elementwise},
    ShapeRule{"Xor", elementwise},
    ShapeRule{"Min", elementwise},
    ShapeRule{"Max", elementwise},
    ShapeRule{"Mod", elementwise},
    ShapeRule{"PRelu", elementwise},
    ShapeRule{"Sum", elementwise},
    ShapeRule{"Mean", elementwise},
    ShapeRule{"Relu", same},
    ShapeRule{"Sigmoid", same},
    ShapeRule{"Tanh", same},
    ShapeRule{"Softmax", same},
    ShapeRule{"LogSoftmax", same},
    ShapeRule{"Erf", same},
    ShapeRule{"Sqrt", same},
    ShapeRule{"Exp", same},
    ShapeRule{"Log", same},
    ShapeRule{"Neg", same},
    ShapeRule{"Abs", same},
    ShapeRule{"Cast", same},
    ShapeRule{"Identity", same},
    ShapeRule{"Clip", same},
    ShapeRule{"HardSigmoid", same},
    ShapeRule{"HardSwish", same},
    ShapeRule{"LeakyRelu", same},
    ShapeRule{"Elu", same},
    ShapeRule{"Selu", same},
    ShapeRule{"Softplus", same},
    ShapeRule{"Softsign", same},
    ShapeRule{"ThresholdedRelu", same},
    ShapeRule{"Gelu", same},
    ShapeRule{"FastGelu", same},
    ShapeRule{"BiasGelu", same},
    ShapeRule{"QuickGelu", same},
    ShapeRule{"Mish", same},
    ShapeRule{"Reciprocal", same},
    ShapeRule{"Sin", same},
    ShapeRule{"Cos", same},
    ShapeRule{"Floor", same},
    ShapeRule{"Ceil", same},
    ShapeRule{"Round", same},
    ShapeRule{"Sign", same},
    ShapeRule{"Not", same},
    ShapeRule{"IsNaN", same},
    ShapeRule{"Trilu", same},
    ShapeRule{"CumSum", same},
    ShapeRule{"ScatterND", same},
    ShapeRule{"InstanceNormalization", same},
    ShapeRule{"LayerNormalization", same},
    ShapeRule{"SimplifiedLayerNormalization", same},
    ShapeRule{"RMSNormalization", same},
    ShapeRule{"GroupNormalization", same},
    ShapeRule{"LRN", same},
    ShapeRule{"BiasSoftmax", same},
    ShapeRule{"QuantizeLinear", same},
    ShapeRule{"DequantizeLinear", same},
    ShapeRule{"MemcpyFromHost", same},
    ShapeRule{"MemcpyToHost", same},
};

}  // namespace

std::optional<std::size_t> axis_in(std::int64_t axis, std::size_t rank) {
  const auto r = static_cast<std::int64_t>(rank);
  if (axis < -r || axis >= r) return std::nullopt;
  return static_cast<std::size_t>(axis < 0 ? axis + r : axis);
}

/// multidirectionalBroadcastShapeInference (onnx/defs/shape_inference.cc).
KnownShape broadcast(const std::vector<KnownShape>& shapes) {
  std::size_t rank = 0;
  for (const KnownShape& s : shapes) {
    if (!s) return std::nullopt;
    rank = std::max(rank, s->size());
  }
  DimList out(rank);
  for (std::size_t i = 0; i < rank; ++i) {
    std::int64_t size = 1;
    int names = 0;
    Dim name;
    for (const KnownShape& s : shapes) {
      if (i + s->size() < rank) continue;
      const Dim& d = (*s)[i + s->size() - rank];
      if (!d.open())
        size = d.size != 1 ? d.size : size;
      else if (names == 0)
        name = d, names = 1;
      else if (d.symbol != name.symbol)
        ++names;
    }
    if (size != 1 || names == 0)
      out[i] = {size, {}};
    else if (names == 1)
      out[i] = name;
  }
  return out;
}

const KnownShape& RuleInput::in(std::size_t i) const {
  static const KnownShape none;
  return has(i) ? shapes[static_cast<std::size_t>(node.inputs[i])] : none;
}

std::optional<Numbers> RuleInput::stored(std::size_t i) const {
  if (!has(i)) return std::nullopt;
  const auto it = graph.initializers.find(node.inputs[i]);
  if (it == graph.initializers.end()) return std::nullopt;
  std::int64_t count = 1;
  for (const std::int64_t n : it->second.sizes) count *= n;
  if (static_cast<std::int64_t>(it->second.integers.size()) != count) return std::nullopt;
  return it->second.integers;
}

std::int64_t RuleInput::integer(const char* name, std::int64_t fallback) const {
  const auto it = node.attributes.find(name);
  const auto* v = it == node.attributes.end() ? nullptr : std::get_if<std::int64_t>(&it->second);
  return v ? *v : fallback;
}

std::optional<Numbers> RuleInput::list(const char* name) const {
  const auto it = node.attributes.find(name);
  const auto* v = it == node.attributes.end() ? nullptr : std::get_if<Numbers>(&it->second);
  return v ? std::optional(*v) : std::nullopt;
}

std::optional<Numbers> RuleInput::list(const char* name, std::size_t input) const {
  return has(input) ? stored(input) : list(name);
}

void infer_shapes(const RuleInput& in, Outputs& outputs) {
  if (outputs.empty()) return;
  const auto is_it = [&](const ShapeRule& r) { return r.op == in.node.op_type; };
  if (const auto rule = std::find_if(rules.begin(), rules.end(), is_it); rule != rules.end())
    rule->infer(in, outputs);
  else if (const auto view = std::find_if(view_rules().begin(), view_rules().end(), is_it); view != view_rules().end())
    view->infer(in, outputs);
}

}  // namespace memplan::ort
