// How long a sequence can be, by the model's own table of positions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "estimators/graph/graph.h"

namespace memplan {

struct PositionTable {
  std::string name;         ///< "transformer.wpe.weight"
  std::int64_t length = 0;  ///< positions that it has
};

/// The embedding table whose indices are counted up from the shapes of the inputs (arange, cumsum, a slice of stored
/// positions), not read from an input; the longest where there are several. An offset added to the indices is taken
/// off.
std::optional<PositionTable> find_position_table(const Graph& graph);

}  // namespace memplan
