// F.gelu before opset 20, exact (x / sqrt(2), Erf, + 1, products with x and 0.5) and by tanh.
#include <cmath>

#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

namespace {

/// The factors of a product of products; inner products that others read stay whole.
void factors(const View& v, std::int32_t mul, std::vector<GraphValueId>& out, std::vector<std::int32_t>& nodes,
             int depth = 0) {
  for (std::size_t i = 0; i < 2; ++i) {
    const GraphValueId id = v.input(mul, i);
    const std::int32_t inner = depth < 3 ? v.only_made_by(id, "Mul") : -1;
    if (inner < 0) {
      out.push_back(id);
    } else {
      nodes.push_back(inner);
      factors(v, inner, out, nodes, depth + 1);
    }
  }
}

/// 1 + f(...), whose f is an op of the given type.
std::int32_t one_plus(const View& v, GraphValueId id, const char* op, std::vector<std::int32_t>& nodes) {
  const std::int32_t add = v.only_made_by(id, "Add");
  if (add < 0) return -1;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int32_t inner = v.only_made_by(v.input(add, i), op);
    if (inner < 0 || !v.is_number(v.input(add, 1 - i), 1)) continue;
    nodes.push_back(add);
    nodes.push_back(inner);
    return inner;
  }
  return -1;
}

bool over_sqrt2(const View& v, GraphValueId id, GraphValueId x, std::vector<std::int32_t>& nodes) {
  std::int32_t n = v.only_made_by(id, "Div");
  const bool divided = n >= 0;
  if (!divided) n = v.only_made_by(id, "Mul");
  if (n < 0) return false;
  nodes.push_back(n);
  if (divided) return v.input(n, 0) == x && v.is_number(v.input(n, 1), std::sqrt(2.0));
  return (v.input(n, 0) == x && v.is_number(v.input(n, 1), std::sqrt(0.5))) ||
         (v.input(n, 1) == x && v.is_number(v.input(n, 0), std::sqrt(0.5)));
}

/// sqrt(2 / pi) * (x + 0.044715 * (x * (x * x))): exporters write the cube as products, modules that spell the
/// formula out in Python (transformers' NewGELUActivation) as a power and are left as they are.
bool is_tanh_argument(const View& v, GraphValueId id, GraphValueId x, std::vector<std::int32_t>& nodes) {
  const std::int32_t scaled = v.only_made_by(id, "Mul");
  if (scaled < 0) return false;
  const std::size_t c = v.is_number(v.input(scaled, 0), std::sqrt(2 / M_PI)) ? 0 : 1;
  if (!v.is_number(v.input(scaled, c), std::sqrt(2 / M_PI))) return false;
  const std::int32_t sum = v.only_made_by(v.input(scaled, 1 - c), "Add");
  if (sum < 0) return false;
  const std::size_t s = v.input(sum, 0) == x ? 1 : 0;
  if (v.input(sum, 1 - s) != x) return false;
  const std::int32_t product = v.only_made_by(v.input(sum, s), "Mul");
  if (product < 0) return false;
  nodes.insert(nodes.end(), {scaled, sum, product});
  std::vector<GraphValueId> parts;
  factors(v, product, parts, nodes);
  int powers = 0, constants = 0;
  for (GraphValueId p : parts) {
    if (p == x)
      ++powers;
    else if (v.is_number(p, 0.044715))
      ++constants;
  }
  return powers == 3 && constants == 1 && parts.size() == 4;
}

}  // namespace

std::optional<Found> match_gelu(const View& v, std::int32_t last) {
  Found f;
  f.nodes = {last};
  std::vector<GraphValueId> parts;
  factors(v, last, parts, f.nodes);
  if (parts.size() != 3) return std::nullopt;
  GraphValueId x = -1;
  bool half = false, exact = false;
  std::int32_t inner = -1;
  for (GraphValueId p : parts) {
    if (v.is_number(p, 0.5)) {
      half = true;
    } else if (const std::int32_t erf = one_plus(v, p, "Erf", f.nodes); erf >= 0) {
      inner = erf;
      exact = true;
    } else if (const std::int32_t tanh = one_plus(v, p, "Tanh", f.nodes); tanh >= 0) {
      inner = tanh;
    } else {
      x = p;
    }
  }
  if (!half || inner < 0 || x < 0) return std::nullopt;
  if (!(exact ? over_sqrt2(v, v.input(inner, 0), x, f.nodes) : is_tanh_argument(v, v.input(inner, 0), x, f.nodes)))
    return std::nullopt;
  f.reads = {x};
  f.op = "aten::gelu";
  f.from = exact ? "Div/Erf/Add/Mul/Mul" : "Mul/Add/Mul/Tanh/Add/Mul";
  f.emit = [x, last, exact, &v](Emit& e) {
    e.call_for(v.at(last), "aten::gelu", {{e.tensor(x)}},
               exact ? Kwargs{} : Kwargs{{"approximate", {std::string("tanh")}}});
  };
  return f;
}

}  // namespace memplan::onnx_format
