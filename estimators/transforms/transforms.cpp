#include "estimators/transforms/transforms.h"

#include <fmt/format.h>

#include <memory>

#include "estimators/base/unwrap.h"
#include "estimators/frontends/recording/recording.h"
#include "estimators/pipeline.h"
#include "estimators/restore/open_places.h"
#include "estimators/setup/field.h"
#include "estimators/setup/runtimes.h"
#include "estimators/tape/check.h"
#include "estimators/transforms/check_strategies.h"
#include "estimators/transforms/checkpointing.h"
#include "estimators/transforms/context_parallel.h"
#include "estimators/transforms/expert_parallel.h"
#include "estimators/transforms/fp8.h"
#include "estimators/transforms/frozen.h"
#include "estimators/transforms/lora.h"
#include "estimators/transforms/lowered.h"
#include "estimators/transforms/offload.h"
#include "estimators/transforms/own_functions.h"
#include "estimators/transforms/recorded_checkpoints.h"
#include "estimators/transforms/tensor_parallel.h"

namespace memplan {

namespace {

Tape checkpointed(Tape tape, const TrainingSetup& setup) {
  checkpoint_modules(tape, setup.checkpoint);
  keep_recorded_checkpoints(tape);
  if (!setup.checkpoint_save.empty() && nests(tape))
    fail(ErrorKind::usage, "checkpoints inside of checkpoints keep no outputs of ops here",
         setting(Field::checkpoint_save), "leave it out, or checkpoint each module once");
  return tape;
}

constexpr Transform transform_table[] = {
    {"frozen parameters", TransformOf::model, [](const TrainingSetup& s) { return !s.frozen.empty(); },
     [](Tape t, const TrainingSetup& s) { return freeze(t, s.frozen), t; }},
    {"adapters", TransformOf::model,
     [](const TrainingSetup& s) { return s.mode == Mode::training && s.lora.has_value(); },
     [](Tape t, const TrainingSetup& s) { return add_adapters(t, *s.lora, s.precision), t; }},
    {"checkpointing", TransformOf::rank, [](const TrainingSetup& s) { return s.mode == Mode::training; }, checkpointed},
    {"offloaded parameters", TransformOf::rank,
     [](const TrainingSetup& s) { return s.mode == Mode::inference && s.offload.parameters; },
     [](Tape t, const TrainingSetup&) { return offload_parameters(t), t; }},
    {"expert parallelism", TransformOf::rank, [](const TrainingSetup& s) { return s.parallel.expert > 1; },
     [](Tape t, const TrainingSetup& s) { return share_experts(t, s.parallel.expert), t; }},
    {"tensor parallelism", TransformOf::rank, [](const TrainingSetup& s) { return s.parallel.tensor > 1; },
     [](Tape t, const TrainingSetup& s) { return shard_tensors(t, s, Device{}); }},
    {"context parallelism", TransformOf::rank, [](const TrainingSetup& s) { return s.parallel.context > 1; },
     [](Tape t, const TrainingSetup& s) { return gather_keys_and_values(t, s.parallel.context), t; }},
    {"fp8", TransformOf::rank, [](const TrainingSetup& s) { return s.fp8 != Fp8::none; },
     [](Tape t, const TrainingSetup& s) { return linears_in_fp8(t, s), t; }},
    {"autograd functions", TransformOf::rank, [](const TrainingSetup& s) { return s.mode == Mode::training; },
     [](Tape t, const TrainingSetup&) { return join_own_functions(t), t; }},
};

Tape transformed(Tape tape, const TrainingSetup& setup, TransformOf of) {
  for (const Transform& t : transforms()) {
    if (t.of != of || !t.applies(setup)) continue;
    tape = t.apply(std::move(tape), setup);
    verify(tape, "transform", t.name);
  }
  return tape;
}

}  // namespace

std::span<const Transform> transforms() { return transform_table; }

Result<Tape> transform(Tape tape, const TrainingSetup& setup) {
  return catching(
      [&] { return transformed(transformed(std::move(tape), setup, TransformOf::model), setup, TransformOf::rank); });
}

namespace {

Tape restored(Tape tape, const Reading& reading, const TrainingSetup& setup) {
  tape.reading = reading;
  return transformed(unwrap(restore(std::move(tape), setup)), setup, TransformOf::model);
}

/// Calls of a tape that is kept twice, for other readings; beyond, memory is dearer than time.
constexpr std::size_t most_kept_calls = 20'000;

Tape tape_of_file(const Reading& reading, const Model& model, const TrainingSetup& setup, bool keep) {
  DimBinding dims = unwrap(bind(model, setup));
  if (setup.parallel.context > 1) share_sequence(model, setup.parallel.context, dims.sizes);
  Tape tape = lowered(model, dims, setup);
  std::shared_ptr<const Tape> kept;
  if (keep && tape.calls.size() <= most_kept_calls) kept = std::make_shared<const Tape>(tape);
  tape = restored(std::move(tape), reading, setup);
  tape.lowered = std::move(kept);
  return tape;
}

/// A graph tells what a compiler makes of the plain module on one GPU.
void check_compiled_graph(const TrainingSetup& s) {
  const auto refuse = [](Field field) {
    fail(ErrorKind::usage, "a graph does not tell what a compiled step needs with it", setting(field),
         "leave it out, or give what makes the module, as train.py:make_model: PyTorch then compiles it on the "
         "emulated GPU");
  };
  if (runs_nodes(s.runtime)) refuse(Field::runtime);
  if (!s.checkpoint.empty() || s.checkpoint_optimal) refuse(Field::checkpoint);
  if (is_parallel(s.parallel)) refuse(Field::data_parallel);
  if (s.offload.activations || s.offload.optimizer || s.offload.parameters) refuse(Field::offload);
  if (s.kv_cache) refuse(Field::kv_cache);
  if (s.channels_last) refuse(Field::channels_last);
}

/// The recording that travels in a file answers first. What it cannot answer the file's graph does, and says why.
Tape tape_read_as(const Reading& reading, const Model& model, const TrainingSetup& setup, bool keep) {
  check_strategies(setup);
  if (setup.compile && !model.recorded) {
    check_compiled_graph(setup);
    // The compiler traces the branches that an export traces.
    Reading traced = reading;
    traced.masks = MaskReading::traced;
    traced.in_place = InPlaceReading::never;
    traced.functions = FunctionReading::pieces;
    return tape_of_file(traced, model, setup, false);
  }
  if (!model.recorded || !model.recorded->plain) return tape_of_file(reading, model, setup, keep);
  Result<Tape> recorded = catching([&] { return tape_of_file(reading, model, setup, false); });
  if (recorded) return unwrap(std::move(recorded));
  Tape tape = tape_read_as(reading, *model.recorded->plain, setup, false);
  note(tape.notes, {"MP065",
                    fmt::format("the file's recording does not tell this setup, and its graph was taken: {}",
                                recorded.error().what),
                    Evidence::proven_by_file, About::program});
  return tape;
}

Tape placed(Tape model, const TrainingSetup& setup) {
  Tape tape = transformed(std::move(model), setup, TransformOf::rank);
  checkpoint_open_places(tape);
  return tape;
}

}  // namespace

Result<Tape> tape_of_model(const Model& model, const TrainingSetup& setup, bool keep) {
  return catching([&] { return tape_read_as({}, model, setup, keep); });
}

Result<Tape> tape_of_rank(Tape tape, const TrainingSetup& setup) {
  return catching([&] {
    check_strategies(setup);
    return placed(std::move(tape), setup);
  });
}

Result<Tape> tape_of(const Model& model, const TrainingSetup& setup, const Reading& reading) {
  return catching([&] { return placed(tape_read_as(reading, model, setup, reading == Reading{}), setup); });
}

Result<Tape> read_otherwise(const Tape& tape, const Model& model, const TrainingSetup& setup, const Reading& reading) {
  if (!tape.lowered) return tape_of(model, setup, reading);
  return catching([&] { return placed(restored(*tape.lowered, reading, setup), setup); });
}

}  // namespace memplan
