// Apart from the request's JSON: memplan-torch reads that and has no step on paper.
#include <string_view>

#include "estimators/dryrun/request.h"
#include "estimators/runtime/torch/step/loss.h"
#include "estimators/runtime/torch/step/muon.h"

namespace memplan {

namespace {

/// Allocations of the predicted schedule that say their shape.
std::optional<DryRunTensor> shape_of(const Schedule& predicted, const Allocation& a) {
  if (a.shape_at < 0) return std::nullopt;
  const TensorShape& shape = predicted.shapes[static_cast<std::size_t>(a.shape_at)];
  return DryRunTensor{static_cast<DType>(shape.dtype), shape.sizes};
}

}  // namespace

DryRunRequest make_request(const Tape& tape, const TrainingSetup& setup, const Schedule& predicted) {
  DryRunRequest request{tape, setup, std::nullopt, {}, {}, true};
  const auto name = [&](std::int32_t i) {
    return i < 0 ? std::string_view() : std::string_view(predicted.names[static_cast<std::size_t>(i)]);
  };
  for (const Allocation& a : predicted.allocations) {
    if (!request.target && a.category == Category::input && name(a.label) == "target")
      request.target = shape_of(predicted, a);
    if (setup.kv_cache && a.op >= 0 && name(predicted.ops[static_cast<std::size_t>(a.op)].name) == "kv cache")
      if (auto tensor = shape_of(predicted, a)) request.kv_cache.push_back(std::move(*tensor));
  }
  request.setup.loss = loss_of(tape, setup);
  if (setup.optimizer.kind == OptimizerKind::muon) request.hidden_matrices = hidden_matrices(tape);
  return request;
}

}  // namespace memplan
