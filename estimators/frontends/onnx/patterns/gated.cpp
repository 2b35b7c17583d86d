// Activations that are a product of x and a function of it: SiLU, Mish, HardSwish, and GLU of two halves.
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

namespace {

std::optional<Found> unary(const View& v, std::int32_t last, std::vector<std::int32_t> nodes, GraphValueId x,
                           const char* op, const char* from) {
  Found f;
  f.nodes = std::move(nodes);
  f.reads = {x};
  f.op = op;
  f.from = from;
  f.emit = [x, last, op, &v](Emit& e) { e.call_for(v.at(last), op, {{e.tensor(x)}}); };
  return f;
}

/// relu6(x + 3)
std::int32_t clipped(const View& v, GraphValueId id, GraphValueId x, std::vector<std::int32_t>& nodes) {
  const std::int32_t clip = v.only_made_by(id, "Clip");
  const std::int32_t add = clip < 0 ? -1 : v.only_made_by(v.input(clip, 0), "Add");
  if (add < 0 || !((v.input(add, 0) == x && v.is_number(v.input(add, 1), 3)) ||
                   (v.input(add, 1) == x && v.is_number(v.input(add, 0), 3))))
    return -1;
  const At at = v.at(clip);
  const double high = at.has(2) ? at.number(2).value_or(0) : at.real("max", 0);
  if (high != 6) return -1;
  nodes.insert(nodes.end(), {clip, add});
  return clip;
}

}  // namespace

std::optional<Found> match_gated(const View& v, std::int32_t last) {
  std::vector<std::int32_t> nodes{last};
  if (v.node(last).op_type == "Div") {  // x * relu6(x + 3) / 6
    const std::int32_t mul = v.is_number(v.input(last, 1), 6) ? v.only_made_by(v.input(last, 0), "Mul") : -1;
    if (mul < 0) return std::nullopt;
    nodes.push_back(mul);
    for (std::size_t i = 0; i < 2; ++i)
      if (clipped(v, v.input(mul, i), v.input(mul, 1 - i), nodes) >= 0)
        return unary(v, last, nodes, v.input(mul, 1 - i), "aten::hardswish", "Add/Clip/Mul/Div");
    return std::nullopt;
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const GraphValueId gate = v.input(last, i), x = v.input(last, 1 - i);
    if (const std::int32_t s = v.only_made_by(gate, "Sigmoid"); s >= 0) {
      if (v.input(s, 0) == x) {
        nodes.push_back(s);
        return unary(v, last, nodes, x, "aten::silu", "Sigmoid/Mul");
      }
      // The two halves of one tensor: F.glu.
      const std::int32_t split = v.producer(x);
      if (split >= 0 && v.node(split).op_type == "Split" && v.node(split).outputs.size() == 2 &&
          v.node(split).outputs[0] == x && v.node(split).outputs[1] == v.input(s, 0) && v.read_once(x) &&
          v.read_once(v.input(s, 0))) {
        Found f;
        f.nodes = {last, s, split};
        const GraphValueId whole = v.input(split, 0);
        f.reads = {whole};
        f.op = "aten::glu";
        f.from = "Split/Sigmoid/Mul";
        f.emit = [whole, last, axis = v.at(split).integer("axis", 0), &v](Emit& e) {
          e.call_for(v.at(last), "aten::glu", {{e.tensor(whole)}, {axis}});
        };
        return f;
      }
    }
    if (const std::int32_t h = v.only_made_by(gate, "HardSigmoid"); h >= 0 && v.input(h, 0) == x) {
      nodes.push_back(h);
      return unary(v, last, nodes, x, "aten::hardswish", "HardSigmoid/Mul");
    }
    if (const std::int32_t t = v.only_made_by(gate, "Tanh"); t >= 0)
      if (const std::int32_t s = v.only_made_by(v.input(t, 0), "Softplus"); s >= 0 && v.input(s, 0) == x) {
        nodes.insert(nodes.end(), {t, s});
        return unary(v, last, nodes, x, "aten::mish", "Softplus/Tanh/Mul");
      }
  }
  return std::nullopt;
}

}  // namespace memplan::onnx_format
