// Attention and rotary embedding as single ops (opset 23).
#include "estimators/frontends/onnx/table.h"

namespace memplan::onnx_format {

namespace {

struct Heads {
  Sizes query, key, value;  ///< [batch, heads, sequence, size]
  bool flat = false;        ///< the file has them as [batch, sequence, heads * size]
};

std::optional<Heads> heads(const At& at) {
  if (!at.sizes(0) || !at.sizes(1) || !at.sizes(2) || at.sizes(0)->size() != at.sizes(1)->size() ||
      at.sizes(1)->size() != at.sizes(2)->size())
    return std::nullopt;
  Heads h;
  h.flat = at.sizes(0)->size() == 3;
  if (!h.flat) {
    if (at.sizes(0)->size() != 4) return std::nullopt;
    h.query = *at.sizes(0), h.key = *at.sizes(1), h.value = *at.sizes(2);
    return h;
  }
  const std::int64_t q = at.integer("q_num_heads", 0), kv = at.integer("kv_num_heads", q);
  if (q < 1 || kv < 1) return std::nullopt;
  auto split = [](const Sizes& s, std::int64_t n) { return Sizes{s[0], n, s[1], s[2] / n}; };
  h.query = split(*at.sizes(0), q), h.key = split(*at.sizes(1), kv), h.value = split(*at.sizes(2), kv);
  return h;
}

void infer_attention(const At& at, std::vector<Inferred>& out) {
  for (Inferred& f : out) f.dtype = at.in(0).dtype;
  const auto h = heads(at);
  if (!h) return;
  out[0].sizes = h->flat ? Sizes{h->query[0], h->query[2], checked_mul(h->query[1], h->value[3])}
                         : Sizes{h->query[0], h->query[1], h->query[2], h->value[3]};
}

bool lower_attention(const At& at, Emit& e) {
  const auto h = heads(at);
  if (!h || at.has(4) || at.has(5)) return false;  // a cache of past keys: no training
  auto tensor = [&](std::size_t i, const Sizes& s) -> Arg {
    const Arg x{e.tensor(at.id(i))};
    if (!h->flat) return x;
    const Arg split{e.call("aten::view", {x, list_of({s[0], s[2], s[1], s[3]})})};
    return {e.call("aten::transpose.int", {split, {std::int64_t{1}}, {std::int64_t{2}}})};
  };
  const Arg q = tensor(0, h->query), k = tensor(1, h->key), v = tensor(2, h->value);
  Kwargs kwargs;
  if (at.attribute("scale")) kwargs.push_back({"scale", {at.real("scale", 1)}});
  if (h->query[1] != h->key[1]) kwargs.push_back({"enable_gqa", {true}});
  std::vector<Arg> args{q, k, v, e.optional(at, 3), {0.0}, {at.integer("is_causal", 0) != 0}};
  if (!h->flat) {
    e.call_for(at, "aten::scaled_dot_product_attention", std::move(args), std::move(kwargs));
    return true;
  }
  const Arg y{e.call("aten::scaled_dot_product_attention", std::move(args), std::move(kwargs))};
  const Arg moved{e.call("aten::transpose.int", {y, {std::int64_t{1}}, {std::int64_t{2}}})};
  e.call_for(at, "aten::reshape", {moved, list_of(*e.inferred[at.node.outputs[0]].sizes)});
  return true;
}

void infer_same(const At& at, std::vector<Inferred>& out) {
  out[0].dtype = at.in(0).dtype;
  out[0].sizes = at.sizes(0);
}

/// x * cos + rotate_half(x) * sin, as modules that the exporter maps to this op write it.
bool lower_rotary(const At& at, Emit& e) {
  if (!at.sizes(0) || at.sizes(0)->size() != 4 || at.has(3) || at.integer("interleaved", 0) ||
      at.integer("rotary_embedding_dim", 0))
    return false;
  const ValueId x = e.tensor(at.id(0));
  const std::int64_t half = at.sizes(0)->back() / 2;
  auto wide = [&](std::size_t i) {  // the file keeps half of the angles
    const Arg angles{e.tensor(at.id(i))};
    return Arg{e.call("aten::unsqueeze",
                      {{e.call("aten::cat", {{Arg::List{angles, angles}}, {std::int64_t{-1}}})}, {std::int64_t{1}}})};
  };
  const Arg cos = wide(1), sin = wide(2);
  const Arg last{std::int64_t{-1}};
  const Arg low{e.call("aten::slice.Tensor", {{x}, last, {std::int64_t{0}}, {half}})};
  const Arg high{e.call("aten::slice.Tensor", {{x}, last, {half}, {2 * half}})};
  const Arg straight{e.call("aten::mul.Tensor", {{x}, cos})};
  const Arg minus{e.call("aten::neg", {high})};
  const Arg rotated{e.call("aten::cat", {{Arg::List{minus, low}}, last})};
  const Arg turned{e.call("aten::mul.Tensor", {rotated, sin})};
  e.call_for(at, "aten::add.Tensor", {straight, turned});
  return true;
}

constexpr OpRow rows[] = {
    {"Attention", infer_attention, lower_attention},
    {"RotaryEmbedding", infer_same, lower_rotary},
};

}  // namespace

Rows attention_rows() { return {rows, std::size(rows)}; }

}  // namespace memplan::onnx_format
