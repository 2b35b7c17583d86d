// nn.GroupNorm before opset 18: Reshape to groups, InstanceNormalization, Reshape back, Mul(weight), Add(bias).
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

std::optional<Found> match_group_norm(const View& v, std::int32_t last) {
  Found f;
  f.nodes = {last};
  auto stored_side = [&](std::int32_t node) {
    return v.stored(v.input(node, 1)) ? 1 : v.stored(v.input(node, 0)) ? 0 : -1;
  };
  GraphValueId bias = -1, weight = -1, at = v.output(last);
  if (v.node(last).op_type == "Add") {
    const int i = stored_side(last);
    if (i < 0 || v.number(v.input(last, static_cast<std::size_t>(i)))) return std::nullopt;
    bias = v.input(last, static_cast<std::size_t>(i));
    at = v.input(last, static_cast<std::size_t>(1 - i));
  }
  const std::int32_t mul = bias >= 0 ? v.only_made_by(at, "Mul") : v.made_by(at, "Mul");
  if (mul < 0) return std::nullopt;
  const int i = stored_side(mul);
  if (i < 0) return std::nullopt;
  weight = v.input(mul, static_cast<std::size_t>(i));
  const std::int32_t back = v.only_made_by(v.input(mul, static_cast<std::size_t>(1 - i)), "Reshape");
  const std::int32_t norm = back < 0 ? -1 : v.only_made_by(v.input(back, 0), "InstanceNormalization");
  const std::int32_t groups = norm < 0 ? -1 : v.only_made_by(v.input(norm, 0), "Reshape");
  if (groups < 0 || !v.sizes(v.output(groups)) || v.sizes(v.output(groups))->size() != 3) return std::nullopt;
  const GraphValueId x = v.input(groups, 0);
  if (!v.sizes(x) || v.sizes(x) != v.sizes(v.output(back))) return std::nullopt;
  if (mul != last) f.nodes.push_back(mul);
  for (std::int32_t n : {back, norm, groups}) f.nodes.push_back(n);
  f.reads = {x, weight};
  if (bias >= 0) f.reads.push_back(bias);
  f.op = "aten::group_norm";
  f.from = "Reshape/InstanceNormalization/Reshape/Mul/Add";
  const std::int64_t count = (*v.sizes(v.output(groups)))[1];
  const double epsilon = v.at(norm).real("epsilon", 1e-5);
  f.emit = [=, &v](Emit& e) {
    e.call_for(
        v.at(last), "aten::group_norm",
        {{e.tensor(x)}, {count}, {e.tensor(weight)}, bias >= 0 ? Arg{e.tensor(bias)} : Arg{}, {epsilon}, {true}});
  };
  return f;
}

}  // namespace memplan::onnx_format
