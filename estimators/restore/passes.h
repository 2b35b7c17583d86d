// Passes over a tape that every frontend shares.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

enum class Precision : std::uint8_t;

/// Parameters whose name matches one of the globs take no gradient. Failure(usage) for a glob that matches none.
void freeze(Tape& tape, const std::vector<std::string>& globs);

/// Parameters that the file itself calls frozen: names separated by spaces (the file's metadata "memplan.frozen").
void freeze_listed(Tape& tape, std::string_view names);

/// Puts back what functionalization took away: `out += identity` and nn.ReLU(inplace=True) become in-place ops. By
/// the line of Python where a call stands; for modules by `listed`, paths separated by spaces (the file's metadata
/// "memplan.inplace"), and by the table data/aten/inplace_modules.json of what libraries construct with inplace=True.
/// What was changed is added to Tape::recovered.
void recover_inplace(Tape& tape, std::string_view listed);

/// What model.eval() and no_grad change beyond dropout and batch norm in a graph that was exported in training mode:
/// StochasticDepth and DropPath return their input; nn.MultiheadAttention takes its fast path (not under autocast).
void enter_inference(Tape& tape, Precision precision);

/// transformers builds other programs while it is traced: eager code passes no mask to attention where the mask would
/// be causal or true everywhere (masking_utils.py: is_causal=True instead), and then leaves key and value heads
/// unrepeated (integrations/sdpa_attention.py: enable_gqa=True). Masks that depend on an input stay.
void recover_causal_masks(Tape& tape);

/// Removes calls whose results nobody uses, among those that `may_go(call, index)` allows; what only they read goes
/// too.
void remove_unused_calls(Tape& tape, const std::function<bool(const Call&, std::size_t)>& may_go);

/// Removes calls on integers, booleans and sizes whose results nobody uses.
void remove_dead_calls(Tape& tape);

}  // namespace memplan
