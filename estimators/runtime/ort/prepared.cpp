#include "estimators/runtime/ort/prepared.h"

#include <utility>

#include "estimators/runtime/ort/optimize.h"

namespace memplan::ort {

namespace {

Placed placed_of(const BoundGraph& bound, Prepared& p) {
  Optimized made = optimized(bound);
  p.may_change = std::move(made.may_change);
  p.rearranged = made.rearranged;
  return in_order(place(std::move(made.graph)));
}

}  // namespace

Prepared::Prepared(const BoundGraph& bound)
    : placed(placed_of(bound, *this)),
      inferred(placed.graph, bound.symbols, bound.opset),
      shapes(known_shapes(placed.graph, bound.opset)) {
  for (std::size_t i = 0; i < placed.graph.values.size(); ++i)
    types.push_back(inferred[static_cast<GraphValueId>(i)].dtype.value_or(DType::float32));
}

const Prepared& prepared(const BoundGraph& bound) {
  return bound.prepared.get([&] { return std::make_shared<const Prepared>(bound); });
}

}  // namespace memplan::ort
