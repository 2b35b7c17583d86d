// Low-rank adapters as the peft library puts them into a model (peft/tuners/lora/layer.py and bnb.py of peft 0.21).
#pragma once

#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Edits the tape as get_peft_model(model, LoraConfig(…)) edits the model: every parameter is frozen; each targeted
/// nn.Linear (and Conv1D of transformers) gets lora_A [r, in] and lora_B [out, r], which are trained, and returns
/// base(x) + lora_B(lora_A(dropout(x))) * scaling. Adapters are fp32 also where the model was converted
/// (autocast_adapter_dtype). With `quantized` every Linear but the one that makes the logits is 4-bit NormalFloat with
/// double quantization, as transformers' BitsAndBytesConfig makes it. Lifetimes are computed anew.
/// Failure(usage) for a target that matches no such layer.
void add_adapters(Tape& tape, const LoraSetup& lora, Precision precision);

/// Paths of the modules that get adapters, in the order of the forward pass.
std::vector<std::string> adapter_targets(const Tape& tape, const LoraSetup& lora);

}  // namespace memplan
