// Parts of a program that ran without gradients or without autocast. An ONNX file shows where they are, not which they
// are.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

/// `region`: by call of the tape, -1 outside of all. A region with layers in it is taken to run without gradients (a
/// teacher, the steps of a solver), others as the calls around them: autocast is switched off around norms, softmax and
/// angles. What the other reading keeps is the bound of a note. `without_gradients` has those that the file proves to
/// be so.
void settle_regions(Tape& tape, const std::vector<std::int32_t>& region,
                    const std::set<std::int32_t>& without_gradients);

}  // namespace memplan::onnx_format
