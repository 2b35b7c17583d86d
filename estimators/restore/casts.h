// Casts that an export in fp32 leaves no trace of.
#pragma once

#include <cstdint>

#include "estimators/tape/tape.h"

namespace memplan {

enum class Precision : std::uint8_t;

/// `x.to(torch.float32)` on an fp32 tensor is no call, so a graph exported in fp32 lacks the casts that the module
/// makes when it runs in half precision or under autocast. Puts back those of well-known modules, by the module's
/// class (transformers: modeling_llama.py, modeling_t5.py and the models made after them):
///   *RMSNorm:         statistics and product in fp32, cast back before the weight
///   *T5LayerNorm:     statistics in fp32, product cast to the weight's dtype
///   *RotaryEmbedding: everything in fp32 with autocast off, results cast to the dtype of the hidden states
///   *T5Attention:     softmax in fp32, cast back
///   *T5Dense*.wo:     input cast to the weight's dtype
/// In fp32 the calls put in do nothing. What was put back is added to Tape::recovered.
void restore_casts(Tape& tape);

/// Whether the scope is one of those modules.
bool has_restored_casts(const Tape& tape, std::int32_t scope);

/// `torch.empty(n, dtype=x.dtype)` is exported with the dtype that x had. In a model converted to half precision such
/// factories give half tensors, unless their line of Python says float32.
void follow_model_dtype(Tape& tape, Precision precision);

}  // namespace memplan
