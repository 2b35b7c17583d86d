#include "planner/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "estimators/base/bytes.h"
#include "estimators/graph/dims.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/field.h"
#include "estimators/setup/optimizers.h"
#include "estimators/setup/strategies.h"

namespace memplan {

namespace {

bool half_weights(Precision p) { return p == Precision::bf16 || p == Precision::fp16; }
bool is_fp32(Precision p) { return p == Precision::fp32; }

Option present_choice() {
  return {"", "", [](TrainingSetup&) {}};
}

void add(Space& space, Axis axis) {
  if (axis.options.size() > 1) space.axes.push_back(std::move(axis));
}

Axis allocator_axis(const TrainingSetup& s) {
  Axis axis{Knob::allocator, {present_choice()}};
  if (!s.allocator.expandable_segments)
    axis.options.push_back({setting(Field::allocator, "expandable_segments:True"), "",
                            [](TrainingSetup& t) { t.allocator.expandable_segments = true; }});
  return axis;
}

/// Foreach needs temporaries as large as the parameters; the fused kernels and the loop do without.
Axis implementation_axis(const TrainingSetup& s) {
  Axis axis{Knob::implementation, {present_choice()}};
  const OptimizerModel& model = optimizer_model(s.optimizer.kind);
  const bool fused = profile_of(s).optimizer.fused.count(s.optimizer.kind) > 0;
  if (fused && s.optimizer.impl != OptimizerImpl::fused)
    axis.options.push_back({setting(Field::optimizer_impl, "fused"), "",
                            [](TrainingSetup& t) { t.optimizer.impl = OptimizerImpl::fused; }});
  if (model.foreach && s.optimizer.impl != OptimizerImpl::loop)
    axis.options.push_back(
        {setting(Field::optimizer_impl, "loop"), "", [](TrainingSetup& t) { t.optimizer.impl = OptimizerImpl::loop; }});
  return axis;
}

Axis checkpoint_axis(const Model& model, const TrainingSetup& s, Space& space) {
  Axis axis{Knob::checkpoint, {present_choice()}};
  if (!s.checkpoint.empty()) return axis;
  TrainingSetup blocks = s;
  blocks.checkpoint = {"blocks"};
  const Result<Tape> tape = tape_of(model, blocks);
  if (tape) {
    axis.options.push_back(
        {setting(Field::checkpoint, "blocks"), "", [](TrainingSetup& t) { t.checkpoint = {"blocks"}; }});
    axis.options.push_back(
        {setting(Field::checkpoint, "every:2"), "", [](TrainingSetup& t) { t.checkpoint = {"every:2"}; }});
    // Selective: what is dear to compute is kept, the rest of the block runs again.
    if (s.checkpoint_save.empty())
      axis.options.push_back({setting(Field::checkpoint, "blocks") + " " + setting(Field::checkpoint_save, "matmul"),
                              "", [](TrainingSetup& t) {
                                t.checkpoint = {"blocks"};
                                t.checkpoint_save = {"matmul"};
                              }});
  } else
    space.unavailable.push_back({setting(Field::checkpoint, "blocks"), tape.error().what});
  return axis;
}

Axis precision_axis(const TrainingSetup& s, const Device& device, const Knobs& knobs, Space& space) {
  Axis axis{Knob::precision, {present_choice()}};
  const bool training = s.mode == Mode::training;
  const bool bf16 = device.sm_major >= 8;
  if (is_fp32(s.precision) && knobs.has(Knob::precision)) {
    if (bf16)
      axis.options.push_back({setting(Field::autocast, "bf16"), "products in bfloat16 (weights stay fp32)",
                              [](TrainingSetup& t) { t.precision = Precision::amp_bf16; }});
    else
      space.unavailable.push_back(
          {setting(Field::autocast, "bf16"), fmt::format("{} has no bfloat16 units (compute capability {}.{})",
                                                         device.key, device.sm_major, device.sm_minor)});
    // float16 needs loss scaling and gains nothing over bfloat16 where there is one.
    if (!bf16)
      axis.options.push_back({setting(Field::autocast, "fp16"),
                              "products in float16 with loss scaling (weights stay fp32)",
                              [](TrainingSetup& t) { t.precision = Precision::amp_fp16; }});
  }
  // Weights of 16 bits lose small updates in training; a forward pass only rounds them.
  const bool weights = knobs.has(Knob::weights) || (!training && knobs.has(Knob::precision));
  if (!half_weights(s.precision) && bf16 && weights)
    axis.options.push_back({setting(Field::precision, "bf16"),
                            training ? "weights, gradients and optimizer state in bfloat16: small updates are lost"
                                     : "weights rounded to bfloat16",
                            [](TrainingSetup& t) { t.precision = Precision::bf16; }});
  if (!half_weights(s.precision) && !training && weights)
    axis.options.push_back({setting(Field::precision, "fp16"), "weights rounded to float16",
                            [](TrainingSetup& t) { t.precision = Precision::fp16; }});
  return axis;
}

Axis optimizer_axis(const TrainingSetup& s) {
  Axis axis{Knob::optimizer, {present_choice()}};
  const auto offer = [&](OptimizerKind kind, const std::string& flags, const char* caution) {
    if (s.optimizer.kind == kind) return;
    axis.options.push_back({flags, caution, [kind](TrainingSetup& t) {
                              t.optimizer = OptimizerSetup{};
                              t.optimizer.kind = kind;
                              if (!optimizer_model(kind).decays) t.optimizer.weight_decay = 0;
                            }});
  };
  if (s.optimizer.kind == OptimizerKind::none) return axis;
  offer(OptimizerKind::adamw8bit, setting(Field::optimizer, "adamw8bit"), "optimizer state in 8 bits per value");
  offer(OptimizerKind::lion, setting(Field::optimizer, "lion"),
        "another optimizer: half of Adam's state, other learning rates");
  offer(OptimizerKind::adafactor, setting(Field::optimizer, "adafactor"), "another optimizer: factored second moments");
  offer(OptimizerKind::sgd, setting(Field::optimizer, "sgd"),
        "another optimizer: no state, seldom fit for transformers");
  return axis;
}

/// Adam's state in host memory, where the weights are updated.
Axis offload_axis(const TrainingSetup& s) {
  Axis axis{Knob::offload, {present_choice()}};
  if (optimizer_model(s.optimizer.kind).adam && !s.offload.any())
    axis.options.push_back(
        {setting(Field::offload, "optimizer"), "", [](TrainingSetup& t) { t.offload.optimizer = true; }});
  return axis;
}

Axis adapters_axis(const TrainingSetup& s) {
  Axis axis{Knob::adapters, {present_choice()}};
  if (s.lora) return axis;
  const auto offer = [&](const std::string& flags, const char* caution, bool quantized) {
    axis.options.push_back({flags, caution, [quantized](TrainingSetup& t) {
                              t.lora = LoraSetup{};
                              t.lora->rank = 16;
                              t.lora->quantized = quantized;
                            }});
  };
  offer(setting(Field::lora, "r=16"), "only low-rank adapters are trained", false);
  offer(setting(Field::lora_quantized, "r=16"), "only low-rank adapters are trained, on weights of 4 bits", true);
  return axis;
}

}  // namespace

std::vector<std::int64_t> divisors_descending(std::int64_t n) {
  std::vector<std::int64_t> out;
  // Of numbers beyond 2^32 only the divisors below 2^16 and those that they leave: nobody splits a batch otherwise.
  for (std::int64_t d = 1; d <= 65'536 && d * d <= n; ++d)
    if (n % d == 0) {
      out.push_back(d);
      if (d != n / d) out.push_back(n / d);
    }
  std::sort(out.rbegin(), out.rend());
  return out;
}

const char* name_of(Knob knob) {
  switch (knob) {
    case Knob::allocator:
      return "allocator";
    case Knob::implementation:
      return "implementation";
    case Knob::batch:
      return "batch";
    case Knob::checkpoint:
      return "checkpoint";
    case Knob::precision:
      return "precision";
    case Knob::attention:
      return "attention";
    case Knob::parallel:
      return "parallel";
    case Knob::offload:
      return "offload";
    case Knob::weights:
      return "weights";
    case Knob::optimizer:
      return "optimizer";
    case Knob::adapters:
      return "adapters";
  }
  return "?";
}

Knobs Knobs::usual() {
  Knobs k;
  for (Knob each : {Knob::allocator, Knob::implementation, Knob::batch, Knob::checkpoint, Knob::precision,
                    Knob::parallel, Knob::offload})
    k.allow(each);
  return k;
}

std::string newly_unsaid(const Unsaid& unsaid, const TrainingSetup& present, const TrainingSetup& changed) {
  if (!unsaid) return {};
  const std::vector<std::string> before = unsaid(present);
  for (const std::string& what : unsaid(changed))
    if (std::find(before.begin(), before.end(), what) == before.end()) return what;
  return {};
}

void keep_sayable(Space& space, const Unsaid& unsaid) {
  for (Axis& axis : space.axes)
    for (std::size_t i = axis.options.size(); i-- > 1;) {
      TrainingSetup changed = space.present;
      axis.options[i].apply(changed);
      const std::string what = newly_unsaid(unsaid, space.present, changed);
      if (what.empty()) continue;
      space.unavailable.push_back({axis.options[i].flags, "the framework has no setting for " + what});
      axis.options.erase(axis.options.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

Space make_space(const Model& model, const TrainingSetup& present, std::int64_t batch, const Device& device,
                 const Knobs& wanted, bool keep_samples) {
  Space space;
  // What other runtimes do by themselves, and what is not modelled together with them.
  Knobs knobs = wanted;
  if (in_megatron(present.parallel))
    for (Knob k :
         {Knob::precision, Knob::weights, Knob::optimizer, Knob::implementation, Knob::adapters, Knob::offload})
      knobs.keep(k);
  if (present.fp8 != Fp8::none)
    for (Knob k : {Knob::precision, Knob::weights, Knob::adapters, Knob::offload}) knobs.keep(k);
  space.present = present;
  const bool training = present.mode == Mode::training;
  if (knobs.has(Knob::allocator)) add(space, allocator_axis(present));
  if (knobs.has(Knob::implementation) && training) add(space, implementation_axis(present));
  if (knobs.has(Knob::checkpoint) && training) add(space, checkpoint_axis(model, present, space));
  add(space, precision_axis(present, device, knobs, space));
  if (knobs.has(Knob::offload) && training) add(space, offload_axis(present));
  if (knobs.has(Knob::adapters) && training) add(space, adapters_axis(present));
  if (knobs.has(Knob::optimizer) && training) add(space, optimizer_axis(present));
  const auto dims = open_dims(model.graphs.front());
  space.open = std::any_of(dims.begin(), dims.end(), [](const auto& d) { return d.batch; });
  space.keeps_samples = keep_samples;
  space.replica_batch = checked_mul(batch, present.accumulate);
  space.batches = {batch};
  if (knobs.has(Knob::batch) && space.open && training) {
    if (keep_samples) {
      space.batches = divisors_descending(space.replica_batch);
    } else {
      // From eight times the present batch down to one sample, eight steps per halving.
      space.batches.clear();
      for (int i = 0; space.batches.empty() || space.batches.back() > 1; ++i) {
        const auto b = static_cast<std::int64_t>(static_cast<double>(batch) * 8 * std::exp2(-i / 8.0) + 1e-9);
        if (space.batches.empty() || b != space.batches.back()) space.batches.push_back(std::max<std::int64_t>(1, b));
      }
    }
    space.splits = space.batches.size() > 1;
  }
  return space;
}

namespace {

std::int64_t accumulation_at(const Space& space, const Point& point) {
  return space.splits && space.keeps_samples ? space.replica_batch / point.batch : space.present.accumulate;
}

}  // namespace

std::int64_t samples_at(const Space& space, const Point& point) { return point.batch * accumulation_at(space, point); }

TrainingSetup setup_at(const Space& space, const Point& point) {
  TrainingSetup s = space.present;
  for (std::size_t i = 0; i < space.axes.size(); ++i)
    if (point.choice[i] > 0) space.axes[i].options[point.choice[i]].apply(s);
  if (space.splits) s.batch = point.batch;
  s.accumulate = accumulation_at(space, point);
  return s;
}

std::string flags_at(const Space& space, const Point& point) {
  std::string flags;
  const auto append = [&](const std::string& more) { flags += (flags.empty() ? "" : " ") + more; };
  if (space.splits && point.batch != space.present.batch.value_or(1)) {
    append(setting(Field::batch, point.batch));
    if (space.keeps_samples) append(setting(Field::accumulate, accumulation_at(space, point)));
  }
  for (std::size_t i = 0; i < space.axes.size(); ++i)
    if (point.choice[i] > 0) append(space.axes[i].options[point.choice[i]].flags);
  return flags;
}

std::vector<std::string> cautions_at(const Space& space, const Point& point) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < space.axes.size(); ++i)
    if (const Option& o = space.axes[i].options[point.choice[i]]; point.choice[i] > 0 && !o.caution.empty())
      out.push_back(o.caution);
  return out;
}

bool is_minor(Knob knob) { return knob == Knob::allocator || knob == Knob::implementation; }

int distance(const Space& space, const Point& point) {
  int sum = 0;
  for (std::size_t i = 0; i < space.axes.size(); ++i)
    if (point.choice[i] > 0) sum += static_cast<int>(space.axes[i].knob) + 1;
  if (space.splits && point.batch != space.present.batch.value_or(1)) sum += static_cast<int>(Knob::batch) + 1;
  return sum;
}

}  // namespace memplan
