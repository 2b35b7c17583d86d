#include "planner/batch.h"

#include <algorithm>

#include "estimators/graph/dims.h"
#include "estimators/pipeline.h"

namespace memplan {

std::int64_t batch_of(const Model& model, const TrainingSetup& setup) {
  const auto dims = open_dims(model.graphs.front());
  const auto dim = std::find_if(dims.begin(), dims.end(), [](const OpenDim& d) { return d.batch; });
  if (dim == dims.end()) return setup.batch.value_or(fixed_batch(model.graphs.front()).value_or(1));
  if (const auto named = setup.dims.find(dim->name); named != setup.dims.end()) return named->second;
  if (setup.batch) return *setup.batch;
  const Result<DimBinding> bound = bind(model, setup);
  return bound ? bound->sizes.find(dim->name)->second : 1;
}

TrainingSetup with_batch(const Model& model, TrainingSetup setup, std::int64_t batch) {
  bool open = false;
  for (const OpenDim& dim : open_dims(model.graphs.front())) {
    open = open || dim.batch;
    if (dim.batch) setup.dims.erase(dim.name);  // --dim comes before --batch
  }
  // Where inputs disagree, no single number is the file's batch.
  if (open || fixed_batch(model.graphs.front()) == batch) setup.batch = batch;
  return setup;
}

}  // namespace memplan
