#include "planner/cost/profile.h"

#include <algorithm>

#include "estimators/runtime/torch/aten/cost.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/runtime/torch/step/steps.h"
#include "estimators/transforms/blocks.h"

namespace memplan {

namespace {

bool is_convolution(std::string_view op) { return op.find("conv") != std::string_view::npos; }

/// fp32 products run on plain units unless allowed otherwise; cuDNN's convolutions take TF32 by default
/// (torch.backends.cuda.matmul.allow_tf32 is off, torch.backends.cudnn.allow_tf32 on).
Unit unit_of(std::string_view op, DType dtype) {
  if (op.starts_with("transformer_engine::")) return Unit::fp8;
  if (dtype == DType::bfloat16) return Unit::bf16;
  if (dtype == DType::float16) return Unit::half;
  return is_convolution(op) ? Unit::tf32 : Unit::fp32;
}

class Counter : public CallObserver {
 public:
  Counter(const Tape& tape, const TrainingSetup& setup) : tape_(tape), setup_(setup), works_(tape.calls.size()) {}

  void before(Run& run, std::size_t call, const std::vector<Value>& args,
              const std::vector<std::pair<std::string, Value>>& kwargs) override {
    if (run.recomputing) {
      works_[call].again += 1;
      return;
    }
    call_ = OpCall{};
    call_.op = tape_.calls[call].op;
    storages_.clear();
    casts_forward_ = casts_backward_ = 0;
    row_ = tape_.calls[call].unknown ? nullptr : run.profile.ops->find(call_.op);
    lower_ = run.autocast && row_ && row_->autocast == Autocast::lower;
    for (std::size_t i = 0; i < args.size(); ++i) {
      take(run, args[i], call_.inputs);
      name_argument(i, args[i]);
    }
    for (const auto& [name, value] : kwargs) {
      take(run, value, call_.inputs);
      if (name == "transposed" && std::holds_alternative<bool>(value.v)) call_.transposed = std::get<bool>(value.v);
    }
    call_.scores_in_memory = setup_.attention == AttentionBackend::math;
  }

  void after(Run& run, std::size_t call, const ValueList& results) override {
    if (run.recomputing) return;
    CallWork& work = works_[call];
    work.call = static_cast<std::int32_t>(call);
    if (!results.empty() && results[0].is_tensor() && results[0].tensor())
      work.out_bytes = static_cast<double>(results[0].tensor()->bytes().count);
    bool view = true;
    for (const Value& v : results) look_for_views(v, view);
    work.kernel = is_in_place(call_.op) || !view;
    if (!work.kernel) return;
    for (const Value& v : results) take(run, v, call_.outputs);
    if (call_.outputs.empty()) {
      work.kernel = false;
      return;
    }
    const Flops flops = flops_of(call_);
    const Traffic traffic = traffic_of(call_);
    work.unit = unit_of(call_.op, call_.inputs.empty() ? call_.outputs[0].dtype : call_.inputs[0].dtype);
    work.forward_flops = flops.forward;
    work.backward_flops = flops.backward;
    work.forward_bytes = traffic.forward + casts_forward_;
    work.backward_bytes = traffic.backward + casts_backward_;
  }

  std::vector<CallWork> works() && { return std::move(works_); }

 private:
  void take(Run& run, const Value& v, std::vector<Operand>& into) {
    if (v.is_list())
      for (const Value& inner : v.list()) take(run, inner, into);
    if (!v.is_tensor() || !v.tensor() || v.tensor()->on_host) return;
    const Tensor& t = v.tensor();
    storages_.push_back(t->storage.get());
    Operand o{{}, t->dtype, run.grad_mode && t->requires_grad()};
    o.sizes.reserve(static_cast<std::size_t>(t->rank()));
    for (int d = 0; d < t->rank(); ++d) o.sizes.push_back(t->sizes[d]);
    if (&into == &call_.inputs && lower_ && t->dtype == DType::float32) {
      // Autocast's copy: four bytes read, two written per element; its gradient goes the other way.
      const double elements = static_cast<double>(t->numel());
      casts_forward_ += 6 * elements;
      if (o.wants_grad) casts_backward_ += 6 * elements;
      o.dtype = run.autocast_dtype;
    }
    into.push_back(std::move(o));
  }

  void name_argument(std::size_t i, const Value& v) {
    if (call_.op == "aten::einsum" && std::holds_alternative<std::string>(v.v))
      equation_ = std::get<std::string>(v.v), call_.equation = equation_;
    if (!row_ || i >= row_->arguments.size() || row_->arguments[i] != "transposed") return;
    if (std::holds_alternative<bool>(v.v)) call_.transposed = std::get<bool>(v.v);
  }

  void look_for_views(const Value& v, bool& view) const {
    if (v.is_list())
      for (const Value& inner : v.list()) look_for_views(inner, view);
    if (!v.is_tensor() || !v.tensor() || v.tensor()->on_host) return;
    if (std::find(storages_.begin(), storages_.end(), v.tensor()->storage.get()) == storages_.end()) view = false;
  }

  const Tape& tape_;
  const TrainingSetup& setup_;
  std::vector<CallWork> works_;
  OpCall call_;
  std::string equation_;
  std::vector<const Storage*> storages_;
  const Row* row_ = nullptr;
  bool lower_ = false;
  double casts_forward_ = 0, casts_backward_ = 0;
};

Bytes made_in(const Schedule& s, Category category) {
  Bytes sum;
  for (const Allocation& a : s.allocations)
    if (a.category == category) sum += a.size;
  return sum;
}

/// The loss runs outside of the tape: what it makes it has written, and read as much before.
CallWork loss_work(const Schedule& s) {
  CallWork work;
  work.kernel = true;
  for (const Allocation& a : s.allocations)
    if (a.op >= 0 && s.ops[static_cast<std::size_t>(a.op)].phase == Phase::loss)
      work.forward_bytes += 2.0 * static_cast<double>(a.size.count);
  work.backward_bytes = work.forward_bytes;
  return work;
}

bool is_other(const Allocation& a) {
  return a.category != Category::workspace && a.category != Category::parameter && a.category != Category::buffer &&
         a.category != Category::gradient && a.category != Category::optimizer_state;
}

/// Profile::turn
std::vector<double> turn_of(const Schedule& s) {
  std::vector<double> turn;
  std::int64_t now = 0;
  std::size_t op = 0;
  bool turned = false;
  for (std::size_t i = 0; i < s.events.size(); ++i) {
    while (op + 1 < s.ops.size() && s.ops[op + 1].first_event <= static_cast<std::int32_t>(i)) ++op;
    if (!turned && op < s.ops.size() && s.ops[op].phase == Phase::loss)
      turned = true, turn.push_back(static_cast<double>(now));
    const Event& e = s.events[i];
    if (e.kind == Event::Kind::empty_cache) continue;
    const Allocation& a = s.allocations[static_cast<std::size_t>(e.allocation)];
    if (is_other(a)) now += e.kind == Event::Kind::alloc ? a.size.count : -a.size.count;
    if (turned) turn.push_back(static_cast<double>(now));
  }
  return turn;
}

/// Blocks, and what they hand on.
void look_at_blocks(const Tape& tape, Profile& p) {
  const ScopeSpans spans(tape);
  for (std::int32_t block : outermost(tape, repeated_modules(tape))) {
    const std::int32_t last = spans.last[static_cast<std::size_t>(block)];
    if (last < 0) continue;
    ++p.blocks;
    p.boundary = std::max(p.boundary, p.calls[static_cast<std::size_t>(last)].out_bytes);
  }
}

}  // namespace

Bytes requested_peak(const Schedule& s, std::optional<Phase> phase) {
  std::int64_t now = 0, peak = 0;
  std::size_t op = 0;
  for (std::size_t i = 0; i < s.events.size(); ++i) {
    const Event& e = s.events[i];
    if (e.kind == Event::Kind::empty_cache) continue;
    const Allocation& a = s.allocations[static_cast<std::size_t>(e.allocation)];
    if (a.category == Category::workspace) continue;
    const std::int64_t size = a.size.count;
    now += e.kind == Event::Kind::alloc ? size : -size;
    while (op + 1 < s.ops.size() && s.ops[op + 1].first_event <= static_cast<std::int32_t>(i)) ++op;
    if (!phase || (op < s.ops.size() && s.ops[op].phase == *phase)) peak = std::max(peak, now);
  }
  return Bytes(peak);
}

Result<Profile> profile(const Tape& tape, const TrainingSetup& given, const Device& device) {
  return catching([&] {
    TrainingSetup setup = given;
    setup.steps = setup.accumulate = 1;
    setup.optimizer.kind = OptimizerKind::none;
    setup.offload.optimizer = false;
    Counter counter(tape, setup);
    const Result<Schedule> ran = run_steps_observed(tape, setup, resolve(setup.parallel), device, &counter);
    if (!ran) throw Failure(ran.error());
    Profile p;
    p.calls = std::move(counter).works();
    if (setup.mode == Mode::training) p.calls.push_back(loss_work(*ran));
    p.peak = requested_peak(*ran);
    p.forward_peak = std::max(requested_peak(*ran, Phase::forward), requested_peak(*ran, Phase::loss));
    p.parameters = made_in(*ran, Category::parameter) + made_in(*ran, Category::buffer);
    p.gradients = made_in(*ran, Category::gradient);
    if (setup.mode == Mode::training) p.turn = turn_of(*ran);
    look_at_blocks(tape, p);
    for (ValueId id : tape.parameters) {
      const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
      if (!v.requires_grad || v.same_storage_as.valid()) continue;
      std::int64_t n = 1;
      for (std::int64_t size : v.sizes) n *= size;
      p.trained_elements += n;
      p.trained_tensors += 1;
    }
    for (const CallWork& w : p.calls) {
      p.forward_flops += w.forward_flops;
      p.backward_flops += w.backward_flops;
      p.again_flops += w.again * w.forward_flops;
    }
    return p;
  });
}

}  // namespace memplan
