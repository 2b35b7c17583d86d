// What the ranks of a pipeline have in common, and which of them stand for the others.
#include "estimators/runtime/torch/step/pipeline_steps.h"
#include "estimators/runtime/torch/step/rank_model.h"
#include "estimators/runtime/torch/step/steps.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/transforms/pipeline_parallel.h"

namespace memplan {

namespace {

/// Notes the shape of every value as one forward pass of the whole model makes it.
struct ShapeInference : CallHooks {
  ShapeInference(const Tape& t, PipelineShapes& into) : tape(t), out(into) {}
  void before(Run&, Environment&, std::int32_t, Lasting) override {}
  void after(Run&, Environment& env, std::int32_t call) override {
    for (ValueId id : tape.calls[static_cast<std::size_t>(call)].outputs) {
      if (!id.valid()) continue;
      const Value& v = env.values[static_cast<std::size_t>(id.index)];
      if (v.is_tensor() && v.tensor()) out.shapes[id] = {v.tensor()->sizes, v.tensor()->dtype};
    }
  }
  const Tape& tape;
  PipelineShapes& out;
};

}  // namespace

ParallelSetup without_repetitions(ParallelSetup p) {
  if (p.schedule == PipelineSchedule::gpipe) return p;
  // Of these every micro-batch leaves something behind until the next step: the gradients of what it received.
  if (splits_backward(p.schedule)) return p;
  const std::int64_t enough = p.schedule == PipelineSchedule::interleaved ? 3 * p.pipeline : p.pipeline + 3;
  p.micro_batches = std::min(p.micro_batches, enough);
  return p;
}

std::vector<std::int64_t> candidate_ranks(const Tape& tape, const Ranks& p) {
  const auto blocks = blocks_per_stage(count_blocks(tape, p), p);
  const auto of_rank = [&](std::int64_t rank) {
    std::int64_t count = 0;
    for (std::int64_t i : stages_of_rank(p, rank)) count += blocks[static_cast<std::size_t>(i)];
    return count;
  };
  // With a backward pass in two parts later ranks keep fewer activations but more gradients.
  const bool alike = !splits_backward(p.schedule);
  std::vector<std::int64_t> ranks{0};
  for (std::int64_t rank = 1; rank + 1 < p.pipeline; ++rank)
    if (!alike || ranks.size() == 1 || of_rank(rank) != of_rank(rank - 1)) ranks.push_back(rank);
  ranks.push_back(p.pipeline - 1);
  return ranks;
}

PipelineShapes pipeline_shapes(const Tape& tape, const TrainingSetup& given, const Ranks& ranks, const Device& device) {
  // Stages find their shapes with what wraps them at work (stage.py, _shape_inference), in the dtype that FSDP gathers
  // in.
  TrainingSetup setup = given;
  setup.precision = dtype_of_run(given);
  PipelineShapes out;
  ShapeInference inference(tape, out);
  Run run(run_options(setup), device);
  ScopedValue<bool> no_grad(run.grad_mode, false);
  RankModel model(run, tape, setup, ranks);
  model.to_device(false);
  for (ValueId id : tape.inputs) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    model.env.values[static_cast<std::size_t>(id.index)] =
        v.number ? Value(*v.number) : Value(run.empty(Dims(v.sizes), converted(v.dtype, setup.precision)));
  }
  model.env.hooks = &inference;
  const std::vector<Value> outputs = model.forward();
  out.target = target_shape(outputs, tape, setup);
  return out;
}

}  // namespace memplan
