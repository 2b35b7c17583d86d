// Measurements that a user brings: a memory snapshot, the JSON of memory_stats(), one figure.
#pragma once

#include <string>

#include "estimators/measured/measurement.h"

namespace memplan {

/// A file: a pickle of torch.cuda.memory._dump_snapshot (or the same as JSON), or a JSON of torch.cuda.memory_stats().
/// Told apart by their contents. Failure(input) when it is none of these, is damaged, or holds code to be run.
Measurement measurement_from_file(const std::string& path);

/// One figure of this counter, such as max_memory_allocated() or what nvidia-smi shows.
Measurement measurement_from_figure(Bytes bytes, const std::string& counter);

}  // namespace memplan
