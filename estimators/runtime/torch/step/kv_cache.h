// Keys and values that an inference server keeps for the tokens that it has seen.
#pragma once

#include <string>
#include <vector>

#include "estimators/runtime/torch/autograd/interpreter.h"
#include "estimators/setup/setup.h"

namespace memplan {

/// What one layer of causal self-attention caches per token: heads · (key + value), in the layer's own dtype.
struct KvLayer {
  std::int64_t heads = 0, key_dim = 0, value_dim = 0;
  DType dtype = DType::float32;
  std::string module;
  std::int64_t length = 0;  ///< tokens of the forward pass
  std::int64_t elements_per_token() const { return heads * (key_dim + value_dim); }
};

/// The layers in the order of the forward pass, read from the values that it left behind (step/inspect_forward.h).
/// Cross attention and attention to both sides have nothing to cache. Failure(usage) where the model has no causal
/// attention.
std::vector<KvLayer> kv_layers(const Tape& tape, const Environment& env);

/// Bytes of the cache: every sequence takes whole pages of `block` tokens.
Bytes kv_cache_bytes(const std::vector<KvLayer>& layers, const KvCacheSetup& setup);

/// Allocates the cache, one tensor for the keys and one for the values of each layer.
TensorList make_kv_cache(Run& run, const std::vector<KvLayer>& layers, const KvCacheSetup& setup);

}  // namespace memplan
