// What every session of a graph under one version of ONNX Runtime has in common, whatever its options: the graph that
// it runs, where its nodes run and in which order, and what is known of its values.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "estimators/frontends/onnx/inferred.h"
#include "estimators/graph/bound_graph.h"
#include "estimators/runtime/ort/placement.h"
#include "estimators/runtime/ort/scratch.h"
#include "estimators/runtime/ort/shapes.h"
#include "estimators/runtime/ort/versions/versions.h"

namespace memplan::ort {

/// Of these, what goes for any sizes: optimizers know no more of sizes than the file says.
struct Arranged {
  std::vector<std::string> may_change;  ///< Optimized::may_change
  bool rearranged = false;              ///< Optimized::rearranged
  std::set<std::string> late;           ///< ops whose form the version has no CUDA kernel of
  Placed placed;                        ///< its nodes in the order in which they run
  std::vector<KnownShape> shapes;       ///< by value
};

struct Prepared {
  const Arranged& arranged;
  onnx_format::InferredValues inferred;
  std::vector<DType> types;                   ///< by value
  WorkedOut<std::vector<Scratch>> scratch{};  ///< of scratch_of_nodes

  Prepared(const BoundGraph& bound, const OrtProfile& profile);
  Prepared(const Prepared&) = delete;  // `inferred` refers to the graph
};

/// Of the graph of a tape under a version of ONNX Runtime; worked out once. Failure(input) where that version does not
/// load the file.
const Prepared& prepared(const BoundGraph& bound, const OrtProfile& profile);

/// By node, none of those on the CPU; the same for all sessions that differ in other options and in the order of
/// weights.
const std::vector<Scratch>& scratch_of_nodes(const Prepared& p, const ScratchContext& context);

}  // namespace memplan::ort
