// Tensors that a module takes out of its caller's list.
#pragma once

#include <cstdint>
#include <vector>

#include "estimators/restore/frames.h"
#include "estimators/restore/hidden_names.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// By value: the call with which the line settles that popped it; -1: none did.
/// `x = self.decoder(x, skips)` of a decoder that does `x = up(x, skips.pop())`: the decoder's caller has no name for
/// what was popped, so that it goes with the line and not with the decoder. Of what such a line reads from outside of
/// its module, and the caller has no argument for, the oldest are those of the list.
std::vector<std::int32_t> settled_where_popped(const Tape& tape, const Frames& frames,
                                               const std::vector<ValueLife>& lives);

}  // namespace memplan
