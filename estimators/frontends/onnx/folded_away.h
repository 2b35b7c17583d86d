// What a file leaves open about the small tensors that its exporter's optimizer worked out, merged or converted.
#pragma once

#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

/// Sets Tape::exported.merged_parameters, and folded_away, by which small tensors can be off in a file whose optimizer
/// folded or merged some: the bytes of what it worked out ahead of the run; where it worked out any, or a name that the
/// exporter's lines mention is gone (not `all_told`), those of masks, positions and other tensors of numbers; and those
/// of small parameters and buffers that `file` holds under the name of another module's. `graph`: the file with what
/// was put back.
void note_folded_away(const Graph& file, const Graph& graph, bool all_told, Tape& tape);

}  // namespace memplan::onnx_format
