// F.scaled_dot_product_attention as torch.onnx writes it: query and key each times the square root of the scale,
// MatMul, an optional mask, Softmax, Dropout where dropout_p is above 0, MatMul. Attention that a module writes out
// itself scales the scores, is another program with other memory, and stays as it is.
#include <cmath>

#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

namespace {

struct Scaled {
  GraphValueId x = -1, by = -1;
  std::optional<double> factor;  ///< none where the file keeps the number in another file
  std::int32_t node = -1;
};

/// The key, and how its dimensions move before it is multiplied, apart from the last two being swapped.
struct Key {
  GraphValueId x = -1;
  Sizes perm;
  std::vector<std::int32_t> nodes;
};

std::optional<Scaled> scaled(const View& v, GraphValueId id) {
  const std::int32_t mul = v.only_made_by(id, "Mul");
  if (mul < 0) return std::nullopt;
  for (std::size_t i : {1, 0}) {
    const GraphValueId by = v.input(mul, i), x = v.input(mul, 1 - i);
    const bool one = v.number(by) || (v.stored(by) && v.sizes(by) && count_of(*v.sizes(by)) == 1);
    if (one && !v.number(x)) return Scaled{x, by, v.number(by), mul};
  }
  return std::nullopt;
}

bool same_factor(const Scaled& a, const Scaled& b) {
  if (!a.factor || !b.factor) return a.by == b.by;
  return std::fabs(*a.factor - *b.factor) <= 1e-4 * std::fabs(*a.factor);
}

std::optional<Key> key_of(const View& v, GraphValueId swapped) {
  Key k;
  std::int32_t last = v.made_by(swapped, "Transpose");
  if (last >= 0) {
    const auto perm = v.at(last).list("perm");
    if (!perm || perm->size() < 3) return std::nullopt;
    k.perm = *perm;
    std::swap(k.perm[k.perm.size() - 1], k.perm[k.perm.size() - 2]);
    k.x = v.input(last, 0);
    if (v.read_once(swapped)) k.nodes = {last};
    return k;
  }
  // torch.onnx.export(dynamo=True) swaps them in a tensor of three dimensions: Reshape, Transpose, Reshape.
  last = v.only_made_by(swapped, "Reshape");
  const std::int32_t turn = last < 0 ? -1 : v.only_made_by(v.input(last, 0), "Transpose");
  const std::int32_t first = turn < 0 ? -1 : v.only_made_by(v.input(turn, 0), "Reshape");
  if (first < 0 || v.at(turn).list("perm") != Sizes{0, 2, 1}) return std::nullopt;
  k.x = v.input(first, 0);
  const auto &from = v.sizes(k.x), &to = v.sizes(swapped);
  if (!from || !to || from->size() != to->size() || from->size() < 3) return std::nullopt;
  Sizes expected = *from;
  std::swap(expected[expected.size() - 1], expected[expected.size() - 2]);
  if (expected != *to) return std::nullopt;
  for (std::size_t i = 0; i < from->size(); ++i) k.perm.push_back(static_cast<std::int64_t>(i));
  k.nodes = {last, turn, first};
  return k;
}

/// A mask that is causal by construction: Trilu of something that no input of the model goes into.
bool is_causal(const View& v, GraphValueId mask) {
  bool triangle = false;
  std::vector<GraphValueId> open{mask};
  for (int steps = 0; !open.empty(); ++steps) {
    if (steps > 64) return false;
    const GraphValueId id = open.back();
    open.pop_back();
    if (v.number(id)) continue;
    const std::int32_t p = v.producer(id);
    if (p < 0) return false;  // an input or a stored mask
    const GraphNode& n = v.node(p);
    if (n.op_type == "Trilu") {
      if (v.at(p).integer("upper", 1) != 0 && v.at(p).number(1).value_or(0) != 1) return false;
      triangle = true;
      open.push_back(n.inputs[0]);
    } else if (n.op_type == "Expand" || n.op_type == "Unsqueeze" || n.op_type == "Cast" || n.op_type == "Not" ||
               n.op_type == "Reshape") {
      open.push_back(n.inputs[0]);
    } else if (n.op_type == "Equal" || n.op_type == "Where") {
      for (GraphValueId i : n.inputs) open.push_back(i);
    } else if (n.op_type != "ConstantOfShape" && n.op_type != "Constant") {
      return false;
    }
  }
  return triangle;
}

/// The boolean mask behind Where(mask, 0, -inf), else the mask itself.
GraphValueId boolean_mask(const View& v, GraphValueId mask) {
  const std::int32_t where = v.made_by(mask, "Where");
  if (where < 0) return mask;
  const auto low = v.number(v.input(where, 2));
  return v.is_number(v.input(where, 1), 0) && low && *low < -1e4 ? v.input(where, 0) : mask;
}

}  // namespace

std::optional<Found> match_attention(const View& v, std::int32_t last) {
  Found f;
  f.nodes = {last};
  GraphValueId weights = v.input(last, 0);
  double p = 0;
  if (const std::int32_t drop = v.only_made_by(weights, "Dropout"); drop >= 0) {
    const At at = v.at(drop);
    p = std::round((at.has(1) ? at.number(1).value_or(0.5) : at.real("ratio", 0.5)) * 1e6) / 1e6;
    f.nodes.push_back(drop);
    weights = v.input(drop, 0);
  }
  // Rows that a boolean mask hides altogether are NaN: Where(IsNaN(weights), 0, weights).
  std::int32_t softmax = v.only_made_by(weights, "Softmax");
  if (const std::int32_t guard = v.only_made_by(weights, "Where"); guard >= 0) {
    const std::int32_t nan = v.only_made_by(v.input(guard, 0), "IsNaN");
    weights = v.input(guard, 2);
    if (nan < 0 || v.input(nan, 0) != weights || v.readers_of(weights).size() != 2) return std::nullopt;
    softmax = v.made_by(weights, "Softmax");
    f.nodes.push_back(guard);
    f.nodes.push_back(nan);
  }
  if (softmax < 0) return std::nullopt;
  f.nodes.push_back(softmax);
  GraphValueId scores = v.input(softmax, 0), mask = -1;
  if (const std::int32_t add = v.only_made_by(scores, "Add"); add >= 0) {
    const std::size_t i = v.only_made_by(v.input(add, 0), "MatMul") >= 0 ? 0 : 1;
    mask = v.input(add, 1 - i);
    scores = v.input(add, i);
    f.nodes.push_back(add);
  }
  const std::int32_t product = v.only_made_by(scores, "MatMul");
  if (product < 0) return std::nullopt;
  const auto q = scaled(v, v.input(product, 0)), k = scaled(v, v.input(product, 1));
  if (!q || !k || !same_factor(*q, *k)) return std::nullopt;
  const auto moved_key = key_of(v, k->x);
  if (!moved_key || !v.sizes(q->x) || v.sizes(q->x)->size() != moved_key->perm.size()) return std::nullopt;
  for (std::int32_t n : {product, q->node, k->node}) f.nodes.push_back(n);
  f.nodes.insert(f.nodes.end(), moved_key->nodes.begin(), moved_key->nodes.end());
  const GraphValueId query = q->x, key = moved_key->x, value = v.input(last, 1);
  const bool causal = mask >= 0 && is_causal(v, mask);
  const GraphValueId kept = mask < 0 || causal ? -1 : boolean_mask(v, mask);
  f.reads = {query, key, value};
  if (kept >= 0) f.reads.push_back(kept);
  f.op = "aten::scaled_dot_product_attention";
  f.from = "Mul/MatMul/Softmax/MatMul";
  // The size of a head gives the default scale.
  const double head = static_cast<double>(v.sizes(query)->back()),
               scale = q->factor && k->factor ? *q->factor * *k->factor : 0;
  const bool standard = scale == 0 || (head > 0 && std::fabs(scale - 1 / std::sqrt(head)) < 1e-4 * scale);
  f.emit = [=, moved = moved_key->perm, &v](Emit& e) {
    Sizes swapped;
    for (std::size_t i = 0; i < moved.size(); ++i)
      if (moved[i] != static_cast<std::int64_t>(i)) swapped.push_back(static_cast<std::int64_t>(i));
    Arg k_arg{e.tensor(key)};
    if (swapped.size() == 2)
      k_arg = {e.call("aten::transpose.int", {k_arg, {swapped[0]}, {swapped[1]}})};
    else if (!swapped.empty())
      k_arg = {e.call("aten::permute", {k_arg, list_of(moved)})};
    Kwargs kwargs;
    if (!standard) kwargs.push_back({"scale", {scale}});
    e.call_for(v.at(last), "aten::scaled_dot_product_attention",
               {{e.tensor(query)},
                k_arg,
                {e.tensor(value)},
                kept >= 0 ? Arg{e.tensor(kept)} : Arg{},
                {e.training() ? p : 0.0},
                {causal}},
               std::move(kwargs));
  };
  return f;
}

}  // namespace memplan::onnx_format
