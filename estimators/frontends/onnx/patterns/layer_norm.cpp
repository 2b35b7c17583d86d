// nn.LayerNorm before opset 17: ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, then Mul(weight) and Add(bias).
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

namespace {

struct Normalized {
  GraphValueId x = -1;
  double epsilon = 0;
  std::vector<std::int32_t> nodes;
};

/// x - mean(x) over the last dimensions.
std::int32_t centered(const View& v, GraphValueId id, Normalized& n) {
  const std::int32_t sub = v.made_by(id, "Sub");
  if (sub < 0) return -1;
  const std::int32_t mean = v.made_by(v.through_casts(v.input(sub, 1)), "ReduceMean");
  if (mean < 0 || v.through_casts(v.input(mean, 0)) != v.through_casts(v.input(sub, 0))) return -1;
  if (n.x >= 0 && n.x != v.input(sub, 0)) return -1;
  n.x = v.input(sub, 0);
  for (std::int32_t k : {sub, mean}) n.nodes.push_back(k);
  return sub;
}

std::optional<Normalized> normalized(const View& v, GraphValueId id) {
  Normalized n;
  const std::int32_t div = v.made_by(id, "Div");
  if (div < 0) return std::nullopt;
  const std::int32_t top = centered(v, v.input(div, 0), n);
  const std::int32_t root = v.only_made_by(v.input(div, 1), "Sqrt");
  const std::int32_t add = root < 0 ? -1 : v.only_made_by(v.input(root, 0), "Add");
  if (top < 0 || add < 0) return std::nullopt;
  const std::size_t at = v.number(v.input(add, 0)) ? 0 : 1;
  const auto epsilon = v.number(v.input(add, at));
  const std::int32_t variance = v.only_made_by(v.input(add, 1 - at), "ReduceMean");
  if (!epsilon || variance < 0) return std::nullopt;
  std::int32_t square = v.only_made_by(v.input(variance, 0), "Pow");
  if (square >= 0 && !v.is_number(v.input(square, 1), 2)) return std::nullopt;
  if (square < 0) {
    square = v.only_made_by(v.input(variance, 0), "Mul");
    if (square < 0 || v.input(square, 0) != v.input(square, 1)) return std::nullopt;
  }
  const GraphValueId other = v.through_casts(v.input(square, 0));
  if (const std::int32_t p = v.producer(other); p < 0 || (p != top && centered(v, other, n) < 0)) return std::nullopt;
  n.epsilon = *epsilon;
  for (std::int32_t k : {div, root, add, variance, square}) n.nodes.push_back(k);
  return n;
}

bool is_affine(const View& v, GraphValueId id) { return v.stored(id) && !v.number(id); }

}  // namespace

std::optional<Found> match_layer_norm(const View& v, std::int32_t last) {
  Found f;
  f.nodes = {last};
  GraphValueId weight = -1, bias = -1, at = v.output(last);
  if (v.node(last).op_type == "Add") {
    const std::size_t i = is_affine(v, v.input(last, 1)) ? 1 : 0;
    bias = v.input(last, i);
    at = v.input(last, 1 - i);
    if (!is_affine(v, bias) || !v.read_once(at)) return std::nullopt;
  }
  if (const std::int32_t mul = v.made_by(at, "Mul"); mul >= 0) {
    const std::size_t i = is_affine(v, v.input(mul, 1)) ? 1 : 0;
    weight = v.input(mul, i);
    at = v.through_casts(v.input(mul, 1 - i));
    if (!is_affine(v, weight) || !v.read_once(at)) return std::nullopt;
    f.nodes.push_back(mul);
  } else if (bias >= 0) {
    return std::nullopt;
  }
  const auto n = normalized(v, at);
  if (!n || !v.sizes(n->x)) return std::nullopt;
  const Sizes shape = weight >= 0 && v.sizes(weight) ? *v.sizes(weight) : Sizes{v.sizes(n->x)->back()};
  f.nodes.insert(f.nodes.end(), n->nodes.begin(), n->nodes.end());
  f.reads = {n->x};
  if (weight >= 0) f.reads.push_back(weight);
  if (bias >= 0) f.reads.push_back(bias);
  f.op = "aten::layer_norm";
  f.from = "ReduceMean/Sub/Pow/ReduceMean/Add/Sqrt/Div/Mul/Add";
  f.emit = [x = n->x, epsilon = n->epsilon, weight, bias, shape, last, &v](Emit& e) {
    auto optional = [&](GraphValueId id) { return id >= 0 ? Arg{e.tensor(id)} : Arg{}; };
    e.call_for(v.at(last), "aten::layer_norm",
               {{e.tensor(x)}, list_of(shape), optional(weight), optional(bias), {epsilon}, {false}});
  };
  return f;
}

}  // namespace memplan::onnx_format
