// The flow of memplan, one free function per arrow. Read this file first.
//
//   file --load_model--> Model --lower--> Tape --resize--> Tape --restore--> Tape --transform--> Tape
//        --run_steps--> Schedule --replay--> Timeline --summarize--> Estimate --> report
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
#include "estimators/graph/dims.h"
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

/// The bytes of an ONNX file, packed or not, without its large weights (frontends/onnx/wire.h): what another library
/// can be asked about.
Result<std::string> slim_onnx(const std::string& path);

/// Batch and sequence that the file fixes are open in the result, with the file's own sizes as defaults, where a trial
/// run on paper follows them through all of its calls. Where it cannot, they stay as they are and
/// `Graph::metadata["memplan.unfollowed.batch"]` names the op that prevents it. load_model ends with it.
Model open_fixed(Model model);

/// The size of every open dimension. Fails with ErrorKind::input and a list of them where the setup leaves some
/// unbound.
Result<DimBinding> bind(const Model& model, const TrainingSetup& setup);

/// By the file's frontend to ATen calls, recovering the PyTorch ops that the exporter decomposed.
Result<Tape> lower(const Model& model, const DimBinding& dims, const TrainingSetup& setup);

/// The calls as an export with the sizes of `dims` would have them, from calls for the sizes that the file fixes: every
/// number among the arguments that stands for such a size is found and replaced (estimators/resize/follow.h). The same
/// tape where none differs.
Result<Tape> resize(Tape tape, const Model& model, const DimBinding& dims);

/// Puts back what exporters lose: in-place ops, casts, names that hold tensors … (estimators/restore/restore.h has the
/// passes and their order).
Result<Tape> restore(Tape tape, const TrainingSetup& setup);

/// Applies the strategies of the setup that edit the model: adapters, checkpointing, tensor parallelism …
/// (estimators/transforms/transforms.h has one row for each). The result is what one rank runs.
Result<Tape> transform(Tape tape, const TrainingSetup& setup);

/// From a model to what one rank runs of it: bind, lower, resize, restore and transform. `reading`: of what the file
/// leaves open; memplan's own unless a range is being priced.
Result<Tape> tape_of(const Model& model, const TrainingSetup& setup, const Reading& reading = {});

/// A TorchScript program says no shapes: runs it on paper, with open dimensions as bound by `dims`, into the calls that
/// torch.export would have recorded. Failure(input) where only data decide what it does.
struct Unrolled {
  std::shared_ptr<const torch_export::Program> program;
  std::vector<Note> notes;
};
Result<Unrolled> unroll_script(const Model& model, const std::map<std::string, std::int64_t, std::less<>>& dims,
                               const TrainingSetup& setup);

/// Runs `setup.steps` steps of the reference program (docs/reference-program.md) on paper, as the setup's runtime does
/// (runtime/runtime.h): forward, loss, backward in the engine's order, clipping, optimizer. The events are what PyTorch
/// would ask its allocator for.
Result<Schedule> run_steps(const Tape& tape, const TrainingSetup& setup, const Device& device);

/// Replays the events through the runtime's allocator (PyTorch's CUDA caching allocator) with the device's capacity.
Result<Timeline> replay(const Schedule& schedule, const TrainingSetup& setup, const Device& device);

/// The same on a device that never refuses, which shows what the program needs whatever the device has.
/// Failure(input) where that is more than 1 EiB, the end of what is counted.
Result<Timeline> replay_unlimited(const Schedule& schedule, const TrainingSetup& setup, const Device& device);

/// Peaks, parts, live tensors, range and assumptions.
Result<Estimate> summarize(const Tape& tape, const Schedule& schedule, const Timeline& timeline,
                           const TrainingSetup& setup, const Device& device);

/// From a tape to the estimate: replayed without a limit first, so that a setup that does not fit still says what it
/// needs, then on the device itself where the limit could matter (retries, memory_fraction, garbage collection).
/// Checkpoints that the setup leaves to the planner are chosen before (planner/checkpointing/plan.h). `ran`: where the
/// schedule is left for with_range(), which then needs to run it no second time; of pipelines there is none.
Result<Estimate> estimate_tape(const Tape& tape, const TrainingSetup& setup, const Device& device,
                               std::shared_ptr<const Schedule>* ran = nullptr);

/// How far off the estimate of such a tape may be: each thing that the file leaves open is read in its other ways, and
/// the setup estimated again. What comes out are the range of every counter, the sources that it is made of and the
/// basis of the parts (estimate/range.h).
Result<Estimate> with_range(const Model& model, const Tape& tape, const TrainingSetup& setup, const Device& device,
                            Estimate estimate, const Schedule* ran = nullptr);

/// All of the above from a loaded model, without the range.
Result<Estimate> estimate(const Model& model, const TrainingSetup& setup, const Device& device);

}  // namespace memplan
