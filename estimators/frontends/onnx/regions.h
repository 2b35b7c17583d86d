// Parts of a program that ran without gradients or without autocast. An ONNX file shows where they are, not which they
// are.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

/// `region`: by call of the tape, -1 outside of all. A region with layers in it is taken to run without gradients (a
/// teacher, the steps of a solver), others as the calls around them: autocast is switched off around norms, softmax and
/// angles. What the other reading keeps is the bound of a note. `without_gradients` has those that the file proves to
/// be so.
void settle_regions(Tape& tape, const std::vector<std::int32_t>& region,
                    const std::set<std::int32_t>& without_gradients);

/// Of calls of one node of a region, from `first` on: that of ATen's `op` writes into its first argument, as the line
/// of the region says: `target.mul_(0.9).add_(online, alpha=0.1)`. The product that stands for alpha takes no memory.
/// Nothing happens where `op` is empty.
void write_in_place(Tape& tape, std::size_t first, std::string_view op);

}  // namespace memplan::onnx_format
