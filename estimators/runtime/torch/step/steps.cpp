// The reference program (docs/reference-program.md) on paper: set-up, then the training or inference loop.

#include "estimators/frontends/recording/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "estimators/pipeline.h"
#include "estimators/runtime/torch/aten/autocast.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/autograd/engine.h"
#include "estimators/runtime/torch/autograd/host_store.h"
#include "estimators/runtime/torch/autograd/interpreter.h"
#include "estimators/runtime/torch/step/clip.h"
#include "estimators/runtime/torch/step/inspect_forward.h"
#include "estimators/runtime/torch/step/kv_cache.h"
#include "estimators/runtime/torch/step/loss.h"
#include "estimators/runtime/torch/step/muon.h"
#include "estimators/runtime/torch/step/optimizer.h"
#include "estimators/runtime/torch/step/pipeline_steps.h"
#include "estimators/runtime/torch/step/rank_model.h"
#include "estimators/runtime/torch/step/repetition.h"
#include "estimators/runtime/torch/step/scaler.h"
#include "estimators/runtime/torch/step/steps.h"
#include "estimators/schedule/limits.h"
#include "estimators/setup/optimizers.h"
#include "estimators/transforms/parallel.h"

namespace memplan {

namespace {

class Program {
 public:
  Program(Run& run, const Tape& tape, const TrainingSetup& setup, const Ranks& ranks)
      : r_(run), tape_(tape), setup_(setup), framework_(wrapper_of(ranks.sharding)), model_(run, tape, setup, ranks) {}

  void probe(const std::function<void(const Run&, const Environment&)>& look) {
    model_.to_device(false);
    model_.env.keeps_values = true;
    move_batch();
    r_.phase = Phase::forward;
    ScopedValue<bool> grad(r_.grad_mode, setup_.mode == Mode::training);
    model_.begin_autocast();
    run_forward(r_, tape_, model_.env);
    look(r_, model_.env);
  }

  /// All steps. The first batch carries a target whose shape only the first forward pass tells: its place in the order
  /// of events is kept, and its size filled in then. False when there turns out to be no target (`target` is set: run
  /// again).
  bool run(std::optional<TargetShape>& target, CallObserver* observer, const std::vector<KvLayer>& kv) {
    target_shape_ = &target;
    model_.env.observer = observer;
    model_.to_device(true);
    const bool training = setup_.mode == Mode::training;
    if (setup_.kv_cache) cache_ = make_kv_cache(r_, kv, *setup_.kv_cache);
    if (training && !setup_.offload.optimizer) make_optimizers();
    const std::int64_t steps = steps_run(setup_);
    std::vector<RecordMark> begins;
    for (std::int64_t s = 1; s <= steps; ++s) {
      const std::size_t first = r_.schedule.events.size();
      if (may_repeat(begins)) {
        repeat_to_the_end(r_, begins.back(), steps - s + 1, 1);
        break;
      }
      if (const auto carried = carried_from_first(begins)) {
        repeat_to_the_end(r_, begins.back(), steps - s + 1, 1, *carried);
        break;
      }
      begins.push_back(end_of(r_.schedule));
      r_.step = static_cast<std::int32_t>(s);
      r_.schedule.step_begins.push_back(static_cast<std::int32_t>(first));
      if (training && !train()) return false;
      if (!training && setup_.keep_loss_history) {
        if (!evaluate()) return false;
        if (s == 1) limit_repetitions(r_.schedule.events.size() - first);
      }
      if (!training && !setup_.keep_loss_history) infer();
      if (setup_.empty_cache) r_.empty_cache();
    }
    return true;
  }

 private:
  /// x = x.to("cuda") for every input of the batch; the name's old tensor goes when the new one is bound.
  void move_batch() {
    r_.phase = Phase::data;
    r_.scope = r_.call = -1;
    r_.begin_op("batch.to");
    batch_.resize(tape_.inputs.size());
    for (std::size_t i = 0; i < tape_.inputs.size(); ++i) {
      const TapeValue& v = tape_.values[tape_.inputs[i].index];
      if (v.number) {
        model_.env.values[tape_.inputs[i].index] = Value(*v.number);
        continue;
      }
      Tensor fresh = model_.formatted(Dims(v.sizes), converted(v.dtype, setup_.precision), Category::input);
      r_.label(fresh, v.name);
      r_.set_reason(fresh, "batch");
      batch_[i] = fresh;
      model_.env.values[tape_.inputs[i].index] = fresh;
    }
  }

  /// output = model(x): the name's old value goes when the call has returned.
  void forward(bool sync = true) {
    output_ = model_.forward(sync);
    for (const Value& v : output_)
      if (v.is_tensor()) r_.set_reason(v.tensor(), "the name of the model's output");
  }

  /// With a history of losses micro-batches and steps differ and none is left out, so there is a limit.
  void limit_repetitions(std::size_t events_of_one) const {
    const bool training = setup_.mode == Mode::training;
    const double events = static_cast<double>(events_of_one),
                 each = training ? events * static_cast<double>(setup_.accumulate) : events,
                 all = each * static_cast<double>(setup_.steps);
    if (setup_.keep_loss_history && all > std::max(most_repeated_events, 30 * events))
      fail_input(fmt::format("the run has more than {} allocations and frees, the limit of events of repeated "
                             "micro-batches and steps",
                             most_repeated_events),
                 {}, "ask for fewer steps or micro-batches (docs/limits.md)");
  }

  /// Whether the last of these stretches, which ends now, asked for what the one before it asked for. The next one will
  /// ask for the same then, so that nothing has to run. Where somebody looks on, everything runs.
  bool may_repeat(const std::vector<RecordMark>& begins) const {
    return begins.size() > 1 && !model_.env.observer && !setup_.keep_loss_history &&
           is_repeated(r_.schedule, begins[begins.size() - 2], begins.back());
  }

  /// Of the first two steps.
  std::optional<Carried> carried_from_first(const std::vector<RecordMark>& begins) const {
    if (begins.size() != 2 || model_.env.observer || setup_.keep_loss_history) return std::nullopt;
    return repeats_the_first(r_.schedule, begins[0], begins[1]);
  }

  bool train() {
    const std::int64_t count = micro_batches_run(setup_);
    const std::size_t begin = r_.schedule.events.size();
    std::vector<RecordMark> begins;
    for (std::int64_t k = 0; k < count; ++k) {
      // The last one of several ranks reduces gradients.
      if (!is_parallel(setup_.parallel) && may_repeat(begins)) {
        repeat_to_the_end(r_, begins.back(), count - k, 0);
        break;
      }
      begins.push_back(end_of(r_.schedule));
      move_batch();
      move_target();
      if (k == 0 && setup_.zero_grad == ZeroGrad::begin_set_none) zero_grad();
      {
        const auto store = std::make_shared<HostStore>();
        ScopedValue<SaveHook*> offload(r_.save_hook, setup_.offload.activations ? store.get() : nullptr);
        forward(k + 1 == count);
        if (!take_loss(setup_.accumulate > 1)) return false;
        if ((*target_shape_)->drops_output) output_.clear();
      }
      model_.end_autocast();
      if (k == 0 && setup_.zero_grad == ZeroGrad::before_backward) zero_grad();
      model_.begin_backward();
      if (setup_.precision == Precision::amp_fp16) {
        Tensor scaled = scaler_.scale(r_, loss_);
        backward(r_, scaled);
      } else {
        const Tensor root = model_.scaled(loss_);
        backward(r_, root);
        model_.end_backward();
      }
      if (k == 0 && r_.step == 1) limit_repetitions(r_.schedule.events.size() - begin);
    }
    if (setup_.precision == Precision::amp_fp16) scaler_.unscale(r_);
    if (setup_.clip_grad_norm && !framework_.clips) clip_grad_norm(r_, model_.trainable);
    do {
      model_.begin_optimizer();
      if (optimizer_) optimizer_->step(r_);
    } while (model_.end_optimizer());
    if (setup_.offload.optimizer) step_on_host();
    if (setup_.precision == Precision::amp_fp16) scaler_.update(r_);
    if (setup_.zero_grad == ZeroGrad::end_set_none) zero_grad();
    return true;
  }

  void make_optimizers() {
    if (optimizer_model(setup_.optimizer.kind).adam && framework_.deepspeed_adam) {
      optimizer_ = make_deepspeed_adam(r_, model_.trainable);
      return;
    }
    if (setup_.optimizer.kind != OptimizerKind::muon) {
      optimizer_ = make_optimizer(r_, optimizer_of_rank(setup_), model_.trainable);
      return;
    }
    TensorList hidden, others;
    const std::vector<ValueId> chosen = hidden_matrices(tape_);
    for (const Tensor& p : model_.trainable) {
      const bool takes = std::any_of(chosen.begin(), chosen.end(), [&](ValueId id) {
        const Value& v = model_.env.values[static_cast<std::size_t>(id.index)];
        return v.is_tensor() && v.tensor().get() == p.get();
      });
      (takes ? hidden : others).push_back(p);
    }
    optimizer_ = make_muon(r_, setup_.optimizer, hidden, others);
  }

  /// y = host_y.to("cuda"). Before the first forward pass its shape is not known.
  void move_target() {
    target_known_ = target_shape_->has_value();
    target_ = target_known_ ? make_target(r_, **target_shape_) : make_target(r_, TargetShape{.sizes = {1}});
  }

  /// False when the program must begin anew without a target.
  bool take_loss(bool mean) {
    if (!target_known_) {
      *target_shape_ = target_shape(output_, tape_, setup_);
      if (!has_target(**target_shape_)) return false;
      r_.resize(target_, (*target_shape_)->sizes, (*target_shape_)->dtype);
    }
    r_.phase = Phase::loss;
    r_.begin_op("loss");
    Tensor fresh = compute_loss(r_, output_, target_, **target_shape_, tokens_);
    if (mean) fresh = op::div_number(r_, fresh);
    loss_ = std::move(fresh);
    if (setup_.keep_loss_history) losses_.push_back(loss_);
    return true;
  }

  /// The optimizer works on copies in host memory: gradients go there one after the other, and the new weights are
  /// copied into the old ones.
  void step_on_host() {
    r_.phase = Phase::optimizer;
    r_.scope = r_.call = -1;
    r_.begin_op("gradients to the host");
    for (const Tensor& p : model_.trainable) p->grad.reset();
  }

  /// An evaluation that forgets torch.no_grad() and keeps every loss: losses.append(loss).
  bool evaluate() {
    move_batch();
    move_target();
    forward();
    if (!take_loss(false)) return false;
    model_.end_autocast();
    return true;
  }

  void infer() {
    move_batch();
    ScopedValue<bool> no_grad(r_.grad_mode, false);
    forward();
    model_.end_autocast();
  }

  void zero_grad() {
    r_.begin_op("optimizer.zero_grad");
    for (const Tensor& p : model_.trainable) p->grad.reset();
  }

  Run& r_;
  const Tape& tape_;
  const TrainingSetup& setup_;
  const WrapperRow& framework_;
  RankModel model_;
  TensorList batch_;
  std::vector<Value> output_;
  std::optional<TargetShape>* target_shape_ = nullptr;
  bool target_known_ = false;
  Tensor target_, loss_, tokens_;
  TensorList losses_;
  TensorList cache_;
  std::unique_ptr<Optimizer> optimizer_;
  GradScaler scaler_;
};

Bytes requested_peak(const Schedule& s) {
  Bytes now, most;
  for (const Event& e : s.events) {
    if (e.kind == Event::Kind::empty_cache) continue;
    const Bytes size = s.allocations[static_cast<std::size_t>(e.allocation)].size;
    now = e.kind == Event::Kind::alloc ? now + size : now - size;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace

std::int64_t micro_batches_run(const TrainingSetup& setup) {
  if (setup.keep_loss_history) return setup.accumulate;
  if (is_parallel(setup.parallel)) return std::min<std::int64_t>(setup.accumulate, 4);
  // From the second one on micro-batches ask for the same, and what the allocator holds repeats itself: every second
  // time as a rule, since a batch comes before the one before it goes, in some models after more of them.
  return setup.accumulate < 10 ? setup.accumulate : 6 + (setup.accumulate - 6) % 4;
}

std::int64_t steps_run(const TrainingSetup& setup) {
  if (setup.keep_loss_history) return setup.steps;
  return std::min(setup.steps, std::max<std::int64_t>(3, 24 / micro_batches_run(setup)));
}

void inspect_forward(const Tape& tape, const TrainingSetup& setup, const Device& device,
                     const std::function<void(const Run&, const Environment&)>& look) {
  if (tape.graph) fail(ErrorKind::internal, "PyTorch was asked about a tape of another runtime");
  Run run(run_options(setup), device);
  Program(run, tape, setup, resolve(setup.parallel)).probe(look);
}

Result<Schedule> run_steps_observed(const Tape& tape, const TrainingSetup& setup, const Ranks& ranks,
                                    const Device& device, CallObserver* observer) {
  return catching([&] {
    if (tape.recorded) return recording::schedule_of(*tape.recorded, setup, device);
    check_parallel(tape, setup, ranks);
    if (ranks.pipeline > 1 && !observer) {
      // The rank that asks for most speaks for the job.
      std::optional<Schedule> heaviest;
      const PipelineShapes shapes = pipeline_shapes(tape, setup, ranks, device);
      for (std::int64_t rank : candidate_ranks(tape, ranks)) {
        Schedule s = run_pipeline_steps(tape, setup, ranks, device, rank, shapes);
        if (!heaviest || requested_peak(s) > requested_peak(*heaviest)) heaviest = std::move(s);
      }
      return std::move(*heaviest);
    }
    std::optional<TargetShape> target;
    std::vector<KvLayer> kv;
    if (setup.kv_cache) {
      Run run(run_options(setup), device);
      Program(run, tape, setup, ranks).probe([&](const Run&, const Environment& env) { kv = kv_layers(tape, env); });
    }
    for (;;) {
      Run run(run_options(setup, tape.reading), device);
      Program program(run, tape, setup, ranks);
      // The program's names are still bound when the record closes: their memory stays taken in the schedule.
      if (!program.run(target, observer, kv)) continue;
      Schedule schedule = run.close();
      const auto left_out = [&](std::int64_t all, std::int64_t run, const char* what) {
        if (run < all)
          schedule.notes.push_back({{},
                                    fmt::format("of {} {} {} are replayed: requested bytes are those of all, "
                                                "what the allocator caches meanwhile may differ",
                                                all, what, run),
                                    Evidence::assumed,
                                    About::allocator});
      };
      if (!is_parallel(setup.parallel)) left_out(setup.accumulate, micro_batches_run(setup), "micro-batches");
      left_out(setup.steps, steps_run(setup), "steps");
      return schedule;
    }
  });
}

}  // namespace memplan
