// What every session of a graph has in common, whatever its options: the graph that it runs, where its nodes run and in
// which order, and what is known of its values.
#pragma once

#include <string>
#include <vector>

#include "estimators/frontends/onnx/inferred.h"
#include "estimators/graph/bound_graph.h"
#include "estimators/runtime/ort/placement.h"
#include "estimators/runtime/ort/shapes.h"

namespace memplan::ort {

struct Prepared {
  std::vector<std::string> may_change;  ///< Optimized::may_change
  bool rearranged = false;              ///< Optimized::rearranged
  Placed placed;                        ///< its nodes in the order in which they run
  onnx_format::InferredValues inferred;
  std::vector<DType> types;        ///< by value
  std::vector<KnownShape> shapes;  ///< by value

  explicit Prepared(const BoundGraph& bound);
  Prepared(const Prepared&) = delete;  // `inferred` refers to the graph
};

/// Of the graph of a tape; worked out once.
const Prepared& prepared(const BoundGraph& bound);

}  // namespace memplan::ort
