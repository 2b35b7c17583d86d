// Indices of `x[:, torch.arange(n).unsqueeze(1), i]` that an exporter's optimizer worked out ahead of the run.
#pragma once

#include <string_view>
#include <vector>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/inferred.h"
#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

struct FoldedIndex {
  std::string_view name;  ///< of the program, "unsqueeze_25"
  GraphValueId stored =
      -1;       ///< that index, or broadcast to all of them with one dimension more, in which they are stacked
  Sizes sizes;  ///< in the program
};

/// Those of a call that a GatherND or a ScatterND stands for: its stacked indices in the order of the text. `unknown`:
/// names that no node makes any more.
std::vector<FoldedIndex> folded_indices(const Graph& graph, const FxProgram& program, const FxGroup& group,
                                        const std::vector<std::string_view>& unknown);

/// A call that takes the memory of such an index, in place of the one that made it.
Call made_index(const Sizes& sizes);

}  // namespace memplan::onnx_format
