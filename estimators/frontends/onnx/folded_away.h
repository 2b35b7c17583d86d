// What a file leaves open about the small tensors that its exporter's optimizer worked out, merged or converted.
#pragma once

#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

/// Sets Tape::exported.folded_away, by which masks, positions and other tensors of numbers can be off in a file whose
/// optimizer folded some: the bytes of those that are there, and of what it worked out ahead of the run. `all_told`: every name that the
/// exporter's lines mention is still made by some node.
void note_folded_away(const Graph& graph, bool all_told, Tape& tape);

}  // namespace memplan::onnx_format
