// The flow of memplan, one free function per arrow. Read this file first.
//
//   file -> Graph -> Tape -> Schedule -> Timeline -> Estimate -> report
//
// Every function takes values and returns values: no hidden state, no printing, same input same output.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "estimators/base/error.h"
#include "estimators/estimate/estimate.h"
#include "estimators/facts/device.h"
#include "estimators/graph/given_input.h"
#include "estimators/graph/graph.h"
#include "estimators/replay/timeline.h"
#include "estimators/schedule/schedule.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// Reads a model file without its weights: ONNX, a .pt2 archive, or TorchScript (by memplan-torch, which is started for
/// nothing else). External data files are never opened. `inputs` describe those of a TorchScript file; other files say
/// themselves what they take, so for them it is Failure(usage).
Result<Model> load_model(const std::string& path, const std::vector<GivenInput>& inputs = {});

/// Binds open dimensions and lowers to ATen calls, recovering the PyTorch ops that the exporter decomposed.
/// Fails with ErrorKind::input and a list of the open dimensions where the setup leaves some unbound.
Result<Tape> lower(const Model& model, const TrainingSetup& setup);

/// A TorchScript program says no shapes: runs it on paper, with open dimensions as bound by `dims`, into the calls that
/// torch.export would have recorded. Failure(input) where only data decide what it does.
struct Unrolled {
  std::shared_ptr<const torch_export::Program> program;
  Notes notes;
};
Result<Unrolled> unroll_script(const Model& model, const std::map<std::string, std::int64_t, std::less<>>& dims,
                               const TrainingSetup& setup);

/// Runs `setup.steps` steps of the reference program (docs/reference-program.md) on paper, as the setup's runtime does
/// (runtime/runtime.h): forward, loss, backward in the engine's order, clipping, optimizer. The events are what PyTorch
/// would ask its allocator for.
Result<Schedule> run_steps(const Tape& tape, const TrainingSetup& setup, const Device& device);

/// Replays the events through the runtime's allocator (PyTorch's CUDA caching allocator) with the device's capacity.
Result<Timeline> replay(const Schedule& schedule, const TrainingSetup& setup, const Device& device);

/// Peaks, parts, live tensors, range and assumptions.
Result<Estimate> summarize(const Tape& tape, const Schedule& schedule, const Timeline& timeline,
                           const TrainingSetup& setup, const Device& device);

/// From a tape to the estimate: replayed without a limit first, so that a setup that does not fit still says what it
/// needs, then on the device itself where the limit could matter (retries, memory_fraction, garbage collection).
Result<Estimate> estimate_tape(const Tape& tape, const TrainingSetup& setup, const Device& device);

/// All of the above from a loaded model.
Result<Estimate> estimate(const Model& model, const TrainingSetup& setup, const Device& device);

}  // namespace memplan
