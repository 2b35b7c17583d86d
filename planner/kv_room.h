// "How many tokens can be served?" What a card has left for keys and values beside one forward pass of the setup.
#pragma once

#include <optional>

#include "planner/search.h"

namespace memplan {

/// What a server may spend, and on what: the accounting of vLLM's gpu_worker (the share of the card less weights, less
/// the most that a forward pass takes beside them, less what PyTorch does not count).
struct KvBudget {
  Bytes limit;        ///< what may be used of the card
  Bytes weights;      ///< parameters and buffers
  Bytes activations;  ///< the peak of allocated bytes beside them
  Bytes other;        ///< CUDA context and libraries
  Bytes left;         ///< limit - weights - activations - other; negative where the forward pass alone does not fit
};

/// `forward` is an estimate without a cache; `margin` what must stay free of `total`.
KvBudget kv_budget(const Estimate& forward, Bytes total, Bytes margin);

/// Whole blocks of tokens that `left` holds, counted in tokens; 0 where it holds none.
std::int64_t tokens_in(Bytes left, Bytes per_token, std::int64_t block);

struct LargestKvCache {
  KvBudget budget;
  Bytes per_token;          ///< of all layers on one rank
  std::int64_t block = 16;  ///< tokens per page
  std::int64_t tokens = 0;  ///< the most with the verdict `fits`, also the longest single sequence; 0: none
  std::int64_t length = 0;  ///< tokens of the sequences that are counted: those of --kv-cache, else of the forward pass
  std::int64_t sequences = 0;  ///< of that length, in whole blocks each
  Bytes peak;                  ///< process bytes with `tokens`; of the forward pass where none fit
};

/// The largest cache beside a forward pass of the setup, estimated with the cache allocated, not divided out. None
/// where the model has no causal attention or the setup is no inference on one GPU. Pages are those of setup.kv_cache,
/// else of 16 tokens (vLLM's default).
std::optional<LargestKvCache> largest_kv_cache(const Model& model, const TrainingSetup& setup, const Device& device,
                                               const MarginOf& margin);

}  // namespace memplan
