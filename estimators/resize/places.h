// Numbers among the arguments of a call that stand for sizes: where they are and what kind of size they say.
#pragma once

#include <compare>
#include <vector>

#include "estimators/resize/sizes.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/tape/tape.h"

namespace memplan::resizing {

/// What a number says of its dimension.
enum class Meaning : std::uint8_t {
  divided,   ///< of a view: follows from what the tensor is a product of
  expanded,  ///< the dimension itself, or the size that one element is spread over
  end,       ///< how far a slice goes
  made,      ///< of a tensor that is made from nothing, or how often one is repeated
  free,      ///< any other size: taken as a constant until that leads to a contradiction
};

/// A number: of call `call`, the argument that its row lists as `argument`, and the item of a list (-1: no list).
struct Place {
  std::int32_t call = -1, argument = -1, item = -1;
  friend auto operator<=>(const Place&, const Place&) = default;
};

struct Number {
  Place place;
  Meaning meaning = Meaning::free;
  std::int64_t value = 0;
};

/// The numbers of a call that stand for sizes, in the order of its row.
std::vector<Number> sizes_in(const Call& call, std::int32_t index, const Row& row);

/// The argument of a call that its row lists as `argument`; null where it is left out.
Arg* argument_of(Call& call, const Row& row, std::int32_t argument);
const Arg* argument_of(const Call& call, const Row& row, std::int32_t argument);

/// Puts a number in its place.
void put(Call& call, const Row& row, const Place& place, std::int64_t number);

}  // namespace memplan::resizing
