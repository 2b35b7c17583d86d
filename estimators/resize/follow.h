// Follows a size that the file fixes, its batch or its sequence, through the calls of a tape.
//
// Exports fix every dimension unless told otherwise, and the calls then hold numbers where the program had x.shape[0].
// The calls are run on paper with three sizes at once (sizes.h). A view says itself which of its numbers follow: those
// that stand where the memory order has the size. Any other number is a constant until that leads to a contradiction,
// two tensors that do not broadcast or concatenate; then the number behind it that equals the size is the size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "estimators/base/bytes.h"
#include "estimators/tape/tape.h"

namespace memplan::resizing {

/// The size to follow: which dimensions of which inputs have it.
struct Origin {
  std::vector<std::pair<ValueId, int>> dims;  ///< inputs of the tape, and the axis
  std::int64_t file = 1;
  bool batch = false;  ///< of the batch: what is made or expanded with this size in its first dimension has it, too
};

struct Followed {
  Tape tape;                  ///< with `wanted` in every place
  std::int64_t replaced = 0;  ///< numbers among arguments that were found to be sizes
  Bytes open;                 ///< what results would differ by if numbers that could be either were constants
  std::string first_open;     ///< one of these, for the report
  std::vector<std::pair<ValueId, int>> more;  ///< dimensions of inputs that turned out to have the size as well
  std::vector<std::string> folded;            ///< stored tensors that have it: an exporter computed them ahead
};

/// Failure(input) that names the op through which the size cannot be followed; Failure(usage) where it can be, but the
/// model cannot have it.
Followed follow(const Tape& tape, const Origin& origin, std::int64_t wanted);

}  // namespace memplan::resizing
