// The flow of memplan, one free function per arrow. Read this file first.
//
//   file -> Graph -> Tape -> Schedule -> Timeline -> Estimate -> report
//
// Every function takes values and returns values: no hidden state, no printing, same input same output.
#pragma once

#include <string>

#include "estimators/base/error.h"
#include "estimators/estimate/estimate.h"
#include "estimators/estimate/setup.h"
#include "estimators/facts/device.h"
#include "estimators/graph/graph.h"
#include "estimators/replay/timeline.h"
#include "estimators/schedule/schedule.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Reads an ONNX file without its weights. External data files are never opened.
Result<Model> load_model(const std::string& path);

/// Binds open dimensions and lowers to ATen calls, recovering the PyTorch ops that the exporter decomposed.
/// Fails with ErrorKind::input and a list of the open dimensions where the setup leaves some unbound.
Result<Tape> lower(const Model& model, const TrainingSetup& setup);

/// Runs `setup.steps` steps of the reference program (docs/reference-program.md) on paper: forward, loss,
/// backward in the engine's order, clipping, optimizer. The events are what PyTorch would ask its allocator for.
Result<Schedule> run_steps(const Tape& tape, const TrainingSetup& setup, const Device& device);

/// Replays the events through a model of PyTorch's CUDA caching allocator with the device's capacity.
Result<Timeline> replay(const Schedule& schedule, const AllocatorSetup& allocator, const Device& device);

/// Peaks, parts, live tensors, range and assumptions.
Result<Estimate> summarize(const Tape& tape, const Schedule& schedule, const Timeline& timeline,
                           const TrainingSetup& setup, const Device& device);

/// From a tape to the estimate: replayed without a limit first, so that a setup that does not fit still says what it
/// needs, then on the device itself where the limit could matter (retries, memory_fraction, garbage collection).
Result<Estimate> estimate_tape(const Tape& tape, const TrainingSetup& setup, const Device& device);

/// All of the above from a loaded model.
Result<Estimate> estimate(const Model& model, const TrainingSetup& setup, const Device& device);

}  // namespace memplan
