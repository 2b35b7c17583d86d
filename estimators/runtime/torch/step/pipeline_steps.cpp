#include "estimators/runtime/torch/step/pipeline_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/autograd/engine.h"
#include "estimators/runtime/torch/autograd/split_backward.h"
#include "estimators/runtime/torch/step/clip.h"
#include "estimators/runtime/torch/step/loss.h"
#include "estimators/runtime/torch/step/optimizer.h"
#include "estimators/runtime/torch/step/rank_model.h"
#include "estimators/runtime/torch/step/repetition.h"
#include "estimators/runtime/torch/step/steps.h"
#include "estimators/schedule/limits.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/transforms/pipeline_parallel.h"

namespace memplan {

namespace {

using Shape = PipelineShapes::Shape;

/// What a backward pass in two parts keeps between them.
struct HalfWay {
  TensorList outputs;  ///< the stage's, or the loss
  std::vector<WeightGroup> groups;
};

/// One of the rank's stages and what its micro-batches hold.
struct Chunk {
  explicit Chunk(Stage s) : stage(std::move(s)) {}
  Stage stage;
  std::unique_ptr<RankModel> model;
  std::int64_t number = 0;
  bool first = false, last = false;
  std::vector<TensorList> received, gradients;  ///< per micro-batch: buffers of RecvInfo
  std::map<std::int64_t, ValueList> outputs;    ///< fwd_cache
  std::map<std::int64_t, HalfWay> half_way;     ///< backward_state
  std::int64_t backwards = 0;                   ///< of this step
};

/// What the local names of _step_microbatches hold (torch/distributed/pipelining/schedules.py): the last output, and
/// the tensors of the last P2POps. GPipe has one name for all of those. The schedules of several chunks run each action
/// in a function of its own and hold nothing.
struct Names {
  ValueList output;
  TensorList forward_sends, backward_sends;

  /// In the order of the names' first appearance in the function.
  void clear(bool gpipe) {
    forward_sends.clear();
    if (gpipe) backward_sends.clear();
    output.clear();
    backward_sends.clear();
  }
};

class PipelineProgram {
 public:
  PipelineProgram(Run& run, const Tape& tape, const TrainingSetup& setup, const Ranks& ranks, std::int64_t rank,
                  const PipelineShapes& shapes)
      : r_(run),
        setup_(setup),
        parallel_(ranks),
        rank_(rank),
        shapes_(shapes),
        actions_(actions_of(without_repetitions(parallel_), rank)) {
    const std::int64_t count = parallel_.pipeline * parallel_.virtual_stages;
    const auto numbers = stages_of_rank(parallel_, rank);
    std::size_t i = 0;
    for (Stage& stage : cut_stages(tape, parallel_, rank)) {
      auto chunk = std::make_unique<Chunk>(std::move(stage));
      chunk->number = numbers[i++];
      chunk->first = chunk->number == 0;
      chunk->last = chunk->number == count - 1;
      chunks_.push_back(std::move(chunk));
    }
  }

  void run(bool in_full) {
    TensorList trainable;
    for (auto& c : chunks_) {
      c->model = std::make_unique<RankModel>(r_, c->stage.tape, setup_, parallel_);
      c->model->to_device(true);
      trainable.insert(trainable.end(), c->model->trainable.begin(), c->model->trainable.end());
    }
    optimizer_ = make_optimizer(r_, optimizer_of_rank(setup_), trainable);
    std::vector<RecordMark> begins;
    for (std::int64_t s = 1, last = steps_run(setup_); s <= last; ++s) {
      if (s == 3 && !in_full)
        if (const auto carried = repeats_the_first(r_.schedule, begins[0], begins[1], buffers_)) {
          repeat_to_the_end(r_, begins[1], last - s + 1, 1, *carried);
          return;
        }
      begins.push_back(end_of(r_.schedule));
      r_.step = static_cast<std::int32_t>(s);
      r_.schedule.step_begins.push_back(static_cast<std::int32_t>(r_.schedule.events.size()));
      move_batch();
      if (const auto z = setup_.zero_grad; z == ZeroGrad::begin_set_none || z == ZeroGrad::before_backward)
        zero_grad(trainable);
      while (!losses_.empty()) losses_.pop_back();  // losses = []
      if (s == 1) make_buffers();
      for (auto& c : chunks_)
        for (TensorList& in : c->received)
          for (Tensor& t : in) t->grad.reset();  // clear_runtime_states
      // Those of the repetitions that are left out.
      const std::int64_t run = without_repetitions(parallel_).micro_batches;
      if (has_last()) {
        losses_.resize(static_cast<std::size_t>(run));
        if (run < parallel_.micro_batches) r_.begin_op("pipeline: losses");
        for (std::int64_t m = run; m < parallel_.micro_batches; ++m)
          losses_.push_back(r_.empty(Dims{}, DType::float32));
      }
      for (auto& c : chunks_) c->backwards = 0;
      for (const Action& a : actions_) {
        const std::size_t before = r_.schedule.events.size();
        act(a, run);
        if (s == 1 && a.micro_batch == 0) limit_repetitions(r_.schedule.events.size() - before, run * last);
      }
      names_.clear(parallel_.schedule == PipelineSchedule::gpipe);
      r_.autocast = false;
      r_.cast_cache.clear();
      if (setup_.clip_grad_norm) clip_grad_norm(r_, trainable);
      for (auto& c : chunks_) c->model->begin_optimizer();
      if (optimizer_) optimizer_->step(r_);
      if (setup_.zero_grad == ZeroGrad::end_set_none) zero_grad(trainable);
    }
  }

 private:
  /// `micro_batches`: that run.
  void act(const Action& a, std::int64_t micro_batches) {
    Chunk& c = *chunks_[static_cast<std::size_t>(a.chunk)];
    if (a.forward)
      forward(c, a.micro_batch);
    else if (a.part == BackwardPart::inputs)
      backward_inputs_of(c, a.micro_batch);
    else if (a.part == BackwardPart::weights)
      backward_weights_of(c, a.micro_batch);
    else
      backward_of(c, a.micro_batch);
    // _add_reduce_grad
    if (!a.forward && a.part != BackwardPart::inputs && ++c.backwards == micro_batches) {
      r_.phase = Phase::backward;
      c.model->reduce_gradients();
    }
  }

  /// What the first micro-batch asks for, the others ask for as well: too many are refused before they have run.
  void limit_repetitions(std::size_t more_events_of_one, std::int64_t times) {
    events_of_one_ += more_events_of_one;
    if (splits_backward(parallel_.schedule) && events_of_one_ > most_pipeline_events / static_cast<std::size_t>(times))
      fail_most_events(most_pipeline_events, "a pipeline rank with split backward passes");
  }

  void zero_grad(const TensorList& trainable) {
    r_.begin_op("optimizer.zero_grad");
    for (const Tensor& p : trainable) p->grad.reset();
  }

  /// The whole batch of the step on the first stage and its targets on the last one; stages that make positions or
  /// masks themselves get the ids, too.
  void move_batch() {
    r_.phase = Phase::data;
    r_.scope = r_.call = -1;
    r_.begin_op("batch.to");
    for (auto& c : chunks_)
      for (ValueId id : c->stage.tape.inputs) {
        const TapeValue& v = c->stage.tape.values[static_cast<std::size_t>(id.index)];
        if (v.number) continue;
        Dims whole(v.sizes);
        if (whole.size() > 0) whole[0] = checked_mul(whole[0], parallel_.micro_batches);
        if (v.on_host) {  // only its shape is asked for, on this stage
          batch_.try_emplace(id, r_.host(whole, v.dtype));
          continue;
        }
        Tensor fresh = r_.empty(whole, converted(v.dtype, setup_.precision), Category::input);
        r_.label(fresh, v.name);
        r_.set_reason(fresh, "batch of all micro-batches");
        batch_[id] = std::move(fresh);
      }
    if (!has_last() || !has_target(shapes_.target)) return;
    TargetShape all = shapes_.target;
    if (all.sizes.size() > 0) all.sizes[0] = checked_mul(all.sizes[0], parallel_.micro_batches);
    target_ = make_target(r_, all);
  }

  Tensor buffer(ValueId id, const char* what) {
    const Shape& s = shapes_.shapes.at(id);
    Tensor t = r_.empty(s.sizes, s.dtype, Category::input);
    r_.label(t, what);
    r_.set_reason(t, "receives from a neighbouring stage, kept for the whole run");
    return t;
  }

  bool has_last() const {
    return std::any_of(chunks_.begin(), chunks_.end(), [](const auto& c) { return c->last; });
  }

  /// _initialize_stage: a number to and from each neighbour first, which opens NCCL's channels, then the buffers.
  void make_buffers() {
    buffers_.begin = r_.schedule.events.size();
    r_.begin_op("pipeline: receive buffers");
    TensorList hello;  // as the list of P2POps lets them go, from its end
    for (auto& c : chunks_) {
      Tensor received = r_.empty({1}, DType::float32), sent = r_.empty(Dims{}, DType::float32);
      if (c->first) std::swap(received, sent);
      hello.push_back(std::move(received));
      hello.push_back(std::move(sent));
    }
    for (auto& c : chunks_)
      for (std::int64_t m = 0; m < parallel_.micro_batches; ++m) {
        TensorList in;
        for (ValueId id : c->stage.received) {
          in.push_back(buffer(id, "received activations"));
          in.back()->requires_grad_leaf = is_floating(in.back()->dtype);
        }
        c->received.push_back(std::move(in));
      }
    for (auto& c : chunks_)
      for (std::int64_t m = 0; m < parallel_.micro_batches && !c->last; ++m) {
        TensorList grads;
        for (ValueId id : c->stage.sent) grads.push_back(buffer(id, "received gradients"));
        c->gradients.push_back(std::move(grads));
      }
    while (!hello.empty()) hello.pop_back();
    buffers_.end = r_.schedule.events.size();
  }

  void forward(Chunk& c, std::int64_t m) {
    auto& env = c.model->env;
    for (ValueId id : c.stage.tape.inputs) {
      const TapeValue& v = c.stage.tape.values[static_cast<std::size_t>(id.index)];
      auto& slot = env.values[static_cast<std::size_t>(id.index)];
      if (v.number)
        slot = Value(*v.number);
      else
        slot = r_.alias(batch_[id], Dims(v.sizes), contiguous_strides(Dims(v.sizes)), 0);
    }
    for (std::size_t i = 0; i < c.stage.received.size(); ++i)
      env.values[static_cast<std::size_t>(c.stage.received[i].index)] = c.received[static_cast<std::size_t>(m)][i];
    ValueList outputs = c.model->forward(false);
    if (single()) names_.output = outputs;
    if (c.last) {
      r_.phase = Phase::loss;
      r_.begin_op("loss");
      const TargetShape& shape = shapes_.target;
      const Tensor target =
          has_target(shape) ? r_.alias(target_, shape.sizes, contiguous_strides(shape.sizes), 0) : Tensor();
      losses_[static_cast<std::size_t>(m)] = compute_loss(r_, outputs, target, shape, tokens_);
      if (shape.drops_output) outputs.clear(), names_.output.clear();
    }
    TensorList sends;
    for (const Value& v : outputs)
      if (v.is_tensor()) {
        r_.set_reason(v.tensor(), "output of a stage, until the micro-batch's backward pass");
        if (!c.last) sends.push_back(v.tensor());
      }
    if (Chunk* next = on_this_rank(c.number + 1)) {
      // set_local_fwd_input: the output itself takes the place of the buffer.
      TensorList& in = next->received[static_cast<std::size_t>(m)];
      for (std::size_t i = 0; i < in.size(); ++i) {
        in[i] = r_.detach(sends[i]);
        in[i]->requires_grad_leaf = is_floating(in[i]->dtype);
      }
    }
    if (single()) names_.forward_sends = std::move(sends);
    c.outputs[m] = std::move(outputs);
  }

  void backward_of(Chunk& c, std::int64_t m) {
    if (parallel_.schedule == PipelineSchedule::gpipe) {
      names_.forward_sends.clear();  // ops = get_bwd_recv_ops(…)
      names_.backward_sends.clear();
    }
    c.model->expect_backward(false);
    ValueList outputs = std::move(c.outputs[m]);
    c.outputs.erase(m);
    TensorList roots, grads;
    roots_of(c, m, outputs, roots, grads);
    backward(r_, roots, grads);
    roots.clear();
    grads.clear();
    outputs.clear();
    TensorList sends;  // without a name for them they go after the send
    for (const Tensor& t : c.received[static_cast<std::size_t>(m)])
      if (t->grad) {
        sends.push_back(t->grad);
        t->grad.reset();
      }
    hand_back(c, m, sends);
    if (single()) names_.backward_sends = std::move(sends);
    forget_graph(c, m);
  }

  /// What the backward pass of a stage begins with.
  void roots_of(Chunk& c, std::int64_t m, const ValueList& outputs, TensorList& roots, TensorList& grads) {
    r_.phase = Phase::backward;
    if (c.last) {
      roots.push_back(losses_[static_cast<std::size_t>(m)]);
      grads.push_back(r_.empty_like(roots[0]));
      return;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].is_tensor() || !outputs[i].tensor() || !outputs[i].tensor()->grad_fn) continue;
      roots.push_back(outputs[i].tensor());
      grads.push_back(c.gradients[static_cast<std::size_t>(m)][i]);
    }
  }

  /// The loss stays in the schedule's list; without its graph it is a number.
  void forget_graph(Chunk& c, std::int64_t m) {
    if (!c.last) return;
    Tensor& kept = losses_[static_cast<std::size_t>(m)];
    kept = r_.detach(kept);
  }

  /// set_local_bwd_input: the stage before is on this rank, and gets the gradients instead of its buffers.
  void hand_back(Chunk& c, std::int64_t m, const TensorList& grads) {
    if (Chunk* before = on_this_rank(c.number - 1))
      for (std::size_t i = 0; i < grads.size(); ++i) before->gradients[static_cast<std::size_t>(m)][i] = grads[i];
  }

  /// backward_one_chunk(full_backward=False). On the first stage nothing runs before the weights' turn.
  void backward_inputs_of(Chunk& c, std::int64_t m) {
    HalfWay& half = c.half_way[m];
    ValueList outputs = std::move(c.outputs[m]);
    c.outputs.erase(m);
    if (c.first) {
      c.outputs[m] = std::move(outputs);
      return;
    }
    TensorList roots, grads;
    roots_of(c, m, outputs, roots, grads);
    const TensorList& in = c.received[static_cast<std::size_t>(m)];
    TensorList computed = backward_inputs(r_, roots, grads, in, c.model->trainable, half.groups);
    // The gradients stay with the buffers until the next step clears them.
    for (std::size_t i = 0; i < in.size(); ++i) in[i]->grad = computed[i];
    if (c.last)
      forget_graph(c, m);
    else
      for (const Tensor& t : roots) t->grad_fn = {}, half.outputs.push_back(t);  // detach_()
    hand_back(c, m, computed);
  }

  /// backward_weight_one_chunk
  void backward_weights_of(Chunk& c, std::int64_t m) {
    if (c.first) {
      c.half_way.erase(m);
      return backward_of(c, m);
    }
    HalfWay half = std::move(c.half_way.at(m));
    c.half_way.erase(m);
    c.model->expect_backward(false);
    backward_weights(r_, std::move(half.groups));
  }

  Chunk* on_this_rank(std::int64_t stage) {
    for (auto& c : chunks_)
      if (c->number == stage) return c.get();
    return nullptr;
  }

  /// PipelineScheduleSingle: GPipe and 1F1B.
  bool single() const {
    return parallel_.schedule == PipelineSchedule::gpipe || parallel_.schedule == PipelineSchedule::one_f_one_b;
  }

  Run& r_;
  const TrainingSetup& setup_;
  const Ranks parallel_;
  const std::int64_t rank_;
  const PipelineShapes& shapes_;
  const std::vector<Action> actions_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::map<ValueId, Tensor> batch_;
  Tensor target_, tokens_;
  EventRange buffers_;             ///< their making, in the first step
  std::size_t events_of_one_ = 0;  ///< so far, of the first micro-batch
  TensorList losses_;              ///< per micro-batch: the schedule's list and afterwards the program's
  Names names_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

Schedule run_pipeline_steps(const Tape& tape, const TrainingSetup& setup, const Ranks& ranks, const Device& device,
                            std::int64_t rank, const PipelineShapes& shapes, bool in_full) {
  Run run(run_options(setup, tape.reading), device);
  PipelineProgram program(run, tape, setup, ranks, rank, shapes);
  program.run(in_full);
  return run.close();
}

}  // namespace memplan
