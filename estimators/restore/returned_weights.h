// Attention's weights that modules hand on to their callers beside their result.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// By value: the call until which callers' names hold it as the weights of an attention module; -1: none does.
/// transformers 5 returns them always ("return attn_output, attn_weights", models/bert/modeling_bert.py and others),
/// and a layer hands them on in a tuple. Where nothing reads them any more, only the lines of the callers tell:
/// "hidden_states, _ = self.attention(x)", or "outputs = layer(x)" whose result is used as `outputs[0]`.
std::vector<std::int32_t> held_as_weights(const Tape& tape, const Frames& frames);

}  // namespace memplan
