#include "estimators/runtime/torch/step/kv_cache.h"

#include "estimators/base/error.h"
#include "estimators/setup/field.h"

namespace memplan {

namespace {

const Arg* argument(const Call& call, std::size_t position, std::string_view name) {
  if (position < call.args.size()) return &call.args[position];
  for (const auto& [key, arg] : call.kwargs)
    if (key == name) return &arg;
  return nullptr;
}

bool is_causal_attention(const Call& call) {
  if (call.op != "aten::scaled_dot_product_attention") return false;
  const Arg* causal = argument(call, 5, "is_causal");
  const bool* yes = causal ? std::get_if<bool>(&causal->value) : nullptr;
  return yes && *yes;
}

std::int64_t tokens(const KvCacheSetup& setup) {
  return checked_mul(setup.sequences, checked_mul((setup.length + setup.block - 1) / setup.block, setup.block));
}

}  // namespace

std::vector<KvLayer> kv_layers(const Tape& tape, const Environment& env) {
  std::vector<KvLayer> layers;
  for (const Call& call : tape.calls) {
    if (!is_causal_attention(call)) continue;
    Tensor operands[3];
    bool all = call.args.size() >= 3;
    for (std::size_t i = 0; all && i < 3; ++i) {
      const auto* id = std::get_if<ValueId>(&call.args[i].value);
      all = id && id->valid() && env.values[static_cast<std::size_t>(id->index)].is_tensor();
      if (all) operands[i] = env.values[static_cast<std::size_t>(id->index)].tensor();
    }
    if (!all || operands[1]->rank() != 4 || operands[0]->size(2) != operands[1]->size(2)) continue;
    KvLayer layer{operands[1]->size(1), operands[1]->size(3), operands[2]->size(3), operands[1]->dtype, {},
                  operands[1]->size(2)};
    if (call.scope >= 0) layer.module = tape.scopes[static_cast<std::size_t>(call.scope)].path;
    layers.push_back(std::move(layer));
  }
  if (layers.empty())
    fail(ErrorKind::usage, "the model has no causal attention whose keys and values could be cached",
         setting(Field::kv_cache), "leave " + setting(Field::kv_cache) + " out");
  return layers;
}

Bytes kv_cache_bytes(const std::vector<KvLayer>& layers, const KvCacheSetup& setup) {
  Bytes sum;
  for (const KvLayer& l : layers)
    sum += bytes_of(setup.dtype.value_or(l.dtype), checked_mul(tokens(setup), l.elements_per_token()));
  return sum;
}

TensorList make_kv_cache(Run& r, const std::vector<KvLayer>& layers, const KvCacheSetup& setup) {
  r.begin_op("kv cache");
  TensorList cache;
  for (const KvLayer& l : layers)
    for (const auto& [name, dim] : {std::pair("key cache", l.key_dim), std::pair("value cache", l.value_dim)}) {
      Tensor t = r.empty({tokens(setup), l.heads, dim}, setup.dtype.value_or(l.dtype), Category::buffer);
      r.label(t, l.module.empty() ? std::string(name) : l.module + "." + name);
      r.set_reason(t, "keys and values of earlier tokens");
      cache.push_back(std::move(t));
    }
  return cache;
}

}  // namespace memplan
