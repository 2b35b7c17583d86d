// nn.Linear on an input of more than two dimensions: MatMul(x, Transpose(weight)) and Add(bias).
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

namespace {

/// The stored [out, in] weight behind the second operand of a product.
GraphValueId weight_of(const View& v, std::int32_t matmul, std::vector<std::int32_t>& nodes) {
  const GraphValueId b = v.input(matmul, 1);
  const std::int32_t transpose = v.made_by(b, "Transpose");
  if (transpose < 0) return -1;
  const GraphValueId w = v.input(transpose, 0);
  if (!v.stored(w) || !v.sizes(w) || v.sizes(w)->size() != 2) return -1;
  if (v.read_once(b)) nodes.push_back(transpose);
  return w;
}

bool is_bias(const View& v, GraphValueId id, GraphValueId product) {
  return v.stored(id) && v.sizes(id) && v.sizes(id)->size() == 1 && v.sizes(product) && !v.sizes(product)->empty() &&
         v.sizes(product)->back() == v.sizes(id)->front();
}

}  // namespace

std::optional<Found> match_linear(const View& v, std::int32_t last) {
  Found f;
  f.nodes = {last};
  std::int32_t matmul = v.node(last).op_type == "MatMul" ? last : -1;
  GraphValueId bias = -1;
  for (std::size_t i = 0; i < 2 && matmul < 0; ++i) {
    const GraphValueId product = v.input(last, i);
    const std::int32_t m = v.only_made_by(product, "MatMul");
    if (m < 0 || !is_bias(v, v.input(last, 1 - i), product)) continue;
    matmul = m;
    bias = v.input(last, 1 - i);
    f.nodes.push_back(m);
  }
  if (matmul < 0) return std::nullopt;
  GraphValueId weight = weight_of(v, matmul, f.nodes);
  // With a bias behind it, a product with a stored matrix is a Linear whose weight a tool transposed.
  const bool swapped = weight < 0 && bias >= 0 && v.stored(v.input(matmul, 1)) && v.sizes(v.input(matmul, 1)) &&
                       v.sizes(v.input(matmul, 1))->size() == 2;
  if (swapped) weight = v.input(matmul, 1);
  if (weight < 0) return std::nullopt;
  const GraphValueId x = v.input(matmul, 0);
  if (v.stored(x)) return std::nullopt;
  f.reads = {x, weight};
  if (bias >= 0) f.reads.push_back(bias);
  f.op = "aten::linear";
  f.from = bias >= 0 ? "MatMul/Add" : "MatMul";
  f.emit = [x, weight, bias, last, swapped, &v](Emit& e) {
    std::vector<Arg> args{{e.tensor(x)}, {e.tensor(weight)}};
    if (swapped && !e.values.is_transposed(weight)) args[1] = {e.call("aten::t", {args[1]})};
    if (bias >= 0) args.push_back({e.tensor(bias)});
    e.call_for(v.at(last), "aten::linear", std::move(args));
  };
  return f;
}

}  // namespace memplan::onnx_format
