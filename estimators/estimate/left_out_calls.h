// Calls of the program that an exporter's optimizer left out of the file.
#pragma once

#include "estimators/estimate/estimate.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Exporters number calls: a file with cat_4 and cat_6 has lost one, since nobody reads it or since it was merged with
/// an equal one. Eager code makes it, and in training may keep it: as many bytes as the larger one of its neighbours
/// has, of all in training and of the largest one in inference. Moves nothing where no number is left out.
RangeSource left_out_calls(const Tape& tape, const TrainingSetup& setup);

}  // namespace memplan
