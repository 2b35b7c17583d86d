// From a model to ATen calls that can run: lower and resize of pipeline.h, and what to do where they cannot.
#pragma once

#include "estimators/graph/dims.h"
#include "estimators/graph/graph.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Of an ONNX file whose nodes carry the lines of the program that was exported, the calls come from these lines. An
/// optimizer may have changed the nodes so that their lines do not fit them any more. So such calls are tried on paper,
/// and where they cannot run the nodes alone are lowered: note MP024 says so, bounded by what they make beyond the
/// results of the lines. Failure as lower and resize have it.
Tape lowered(const Model& model, const DimBinding& dims, const TrainingSetup& setup);

}  // namespace memplan
