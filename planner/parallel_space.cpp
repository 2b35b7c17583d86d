#include "planner/parallel_space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "estimators/setup/field.h"
#include "estimators/setup/strategies.h"

namespace memplan {

namespace {

/// Divisors of `gpus` up to `most`, one first.
std::vector<std::int64_t> degrees(std::int64_t gpus, std::int64_t most) {
  std::vector<std::int64_t> out;
  for (std::int64_t d = 1; d <= std::min(gpus, most); ++d)
    if (gpus % d == 0) out.push_back(d);
  return out;
}

struct Degrees {
  std::vector<std::int64_t> tensor, context, expert;
};

/// Degrees that fail are left out; the smallest that does says why. What a degree divides, its divisors divide as well.
std::vector<std::int64_t> possible(std::int64_t gpus, std::int64_t most, Field field,
                                   const std::function<std::optional<std::string>(std::int64_t)>& refusal,
                                   ParallelChoices& out) {
  std::vector<std::int64_t> all = degrees(gpus, most), good;
  std::optional<Unavailable> why;
  for (auto d = all.rbegin(); d != all.rend(); ++d) {
    const bool divides = *d == 1 || std::any_of(good.begin(), good.end(), [&](std::int64_t g) { return g % *d == 0; });
    const std::optional<std::string> refused = divides ? std::nullopt : refusal(*d);
    if (refused)
      why = Unavailable{setting(field, *d), *refused};
    else
      good.push_back(*d);
  }
  if (why) out.impossible.push_back(std::move(*why));
  std::reverse(good.begin(), good.end());
  return good;
}

class Enumeration {
 public:
  Enumeration(const TrainingSetup& present, const ParallelLimits& limits, const Knobs& knobs, ParallelChoices& out)
      : present_(present), limits_(limits), out_(out), training_(present.mode == Mode::training) {
    turns_precision_ = knobs.has(Knob::precision) && limits.bf16 && training_;
  }

  void run(const Degrees& d) {
    const std::int64_t gpus = present_.parallel.gpus;
    const std::int64_t stages = training_ ? std::min<std::int64_t>(limits_.blocks, 64) : 1;
    for (std::int64_t tp : d.tensor)
      for (std::int64_t pp : degrees(gpus, std::max<std::int64_t>(1, stages)))
        for (std::int64_t cp : d.context)
          for (std::int64_t ep : d.expert) {
            if (gpus % (tp * pp * cp) != 0) continue;
            ParallelSetup base;
            base.gpus = gpus;
            base.tensor = tp, base.pipeline = pp, base.context = cp, base.expert = ep;
            base.data = gpus / (tp * pp * cp);
            base.blocks = present_.parallel.blocks;
            base.loss_parallel = present_.parallel.loss_parallel && tp > 1;
            if (ep > 1 && (base.data * cp % ep != 0 || tp > 1)) continue;
            schedules(base);
          }
  }

 private:
  void schedules(ParallelSetup base) {
    ways(base);
    if (base.pipeline < 2 || limits_.blocks < 2 * base.pipeline) return;
    base.schedule = PipelineSchedule::interleaved;
    base.virtual_stages = 2;
    base.micro_batches = base.pipeline;
    ways(base);
  }

  void ways(const ParallelSetup& base) {
    const std::int64_t ranks = base.data * base.context;
    if (in_megatron(present_.parallel) && training_) return megatron_ways(base);
    add(base);
    if (ranks < 2 || !training_ || base.expert > 1) return;
    ParallelSetup view = base;
    view.gradient_as_bucket_view = true;
    add(view);
    if (present_.fp8 != Fp8::none) return;  // not modelled with sharded weights
    const bool pure = present_.precision == Precision::bf16 || present_.precision == Precision::fp16;
    for (const DataStrategy& strategy : data_strategies()) {
      if (!strategy.shares_out() || strategy.lone_rank) continue;
      ParallelSetup way = base;
      way.sharding = strategy.kind;
      if (strategy.units) unit_ways(way);
      // A model that is converted keeps fp32 copies of its weights. Not modelled in a pipeline.
      if (strategy.converts && base.pipeline == 1 && (pure || turns_precision_)) add(way, true);
    }
  }

  /// With resharding and without, within nodes, and in another dtype than the shards'.
  void unit_ways(const ParallelSetup& whole) {
    std::vector<ParallelSetup> sharded{whole};
    ParallelSetup kept = whole;
    kept.reshard_after_forward = false;
    sharded.push_back(kept);
    const std::int64_t ranks = whole.data * whole.context;
    // Gathers stay within a node where the shard group does.
    if (const std::int64_t group = limits_.per_node / whole.tensor; group > 1 && ranks > group && ranks % group == 0) {
      ParallelSetup hybrid = whole;
      hybrid.shard_size = group;
      sharded.push_back(hybrid);
    }
    for (const ParallelSetup& s : sharded) {
      add(s);
      if (!turns_precision_ || present_.precision != Precision::fp32 || s.param_dtype) continue;
      ParallelSetup policy = s;
      policy.param_dtype = DType::bfloat16;
      policy.reduce_dtype = DType::float32;
      add(policy, true);
    }
  }

  /// The present framework's own ways and no others.
  void megatron_ways(ParallelSetup base) {
    if (base.expert > 1) return;  // not modelled
    for (const DataStrategy& strategy : data_strategies()) {
      if (strategy.framework != Framework::megatron) continue;
      base.sharding = strategy.kind;
      if (!strategy.shares_out() || base.data * base.context > 1) add(base);
    }
  }

  void add(const ParallelSetup& way, bool converts = false) {
    for (bool sequence : {true, false}) {
      if (sequence && way.tensor == 1) continue;
      ParallelSetup p = way;
      p.sequence_parallel = sequence;
      const Result<Ranks> done = catching([&] { return resolve(p); });
      if (!done) continue;
      ParallelOption o{*done, flags_of(*done), converts, true};
      const DataStrategy& strategy = strategy_of(p);
      if (strategy.converts && present_.precision != Precision::bf16 && present_.precision != Precision::fp16)
        o.flags += " " + setting(Field::precision, "bf16");
      o.accumulates = strategy.accumulates;
      if (seen_.insert(o.flags).second) out_.options.push_back(std::move(o));
    }
  }

  const TrainingSetup& present_;
  const ParallelLimits& limits_;
  ParallelChoices& out_;
  const bool training_;
  bool turns_precision_ = false;
  std::set<std::string> seen_;
};

}  // namespace

std::string flags_of(const ParallelSetup& p) {
  std::string flags = setting(Field::gpus, p.gpus);
  if (p.gradient_as_bucket_view) flags += " " + setting(Field::gradient_as_bucket_view);
  if (p.bucket_cap_mib) flags += " " + setting(Field::bucket_cap, *p.bucket_cap_mib);
  if (p.lazy_buckets) flags += " " + setting(Field::lazy_buckets);
  if (p.shard_size > 0)
    flags += " " + setting(Field::shard_size, p.shard_size);
  else if (const DataStrategy& strategy = strategy_of(p); strategy.chosen())
    flags += " " + strategy.choice();
  if (p.overlap_communication)
    flags += " " + setting(Field::overlap_communication, *p.overlap_communication ? "yes" : "no");
  if (p.reduce_bucket != ParallelSetup().reduce_bucket) flags += " " + setting(Field::reduce_bucket, p.reduce_bucket);
  if (!p.reshard_after_forward) flags += " " + setting(Field::keep_gathered);
  if (p.reduce_buffers != ParallelSetup().reduce_buffers)
    flags += " " + setting(Field::reduce_buffers, p.reduce_buffers);
  if (p.keep_unsharded) flags += " " + setting(Field::keep_unsharded);
  const auto dtype = [](DType d) { return d == DType::bfloat16 ? "bf16" : d == DType::float16 ? "fp16" : "fp32"; };
  if (p.param_dtype) flags += " " + setting(Field::param_dtype, dtype(*p.param_dtype));
  if (p.reduce_dtype) flags += " " + setting(Field::reduce_dtype, dtype(*p.reduce_dtype));
  if (p.tensor > 1) flags += " " + setting(Field::tensor_parallel, p.tensor);
  if (p.sequence_parallel) flags += " " + setting(Field::sequence_parallel);
  if (p.loss_parallel) flags += " " + setting(Field::loss_parallel);
  if (p.pipeline > 1) flags += " " + setting(Field::pipeline_parallel, p.pipeline);
  if (p.pipeline > 1 && p.schedule != PipelineSchedule::one_f_one_b) {
    flags += " " + setting(Field::pipeline_schedule, name_of(p.schedule));
    // zbv says by its name how many chunks there are.
    if (p.virtual_stages > 1 && p.schedule != PipelineSchedule::zbv) flags += fmt::format(":{}", p.virtual_stages);
  }
  if (!p.split.empty()) flags += " " + setting(Field::pipeline_split, fmt::format("{}", fmt::join(p.split, ",")));
  if (p.context > 1) flags += " " + setting(Field::context_parallel, p.context);
  if (p.expert > 1) flags += " " + setting(Field::expert_parallel, p.expert);
  return flags;
}

ParallelChoices parallel_choices(const TrainingSetup& present, const ParallelLimits& limits, const Knobs& knobs) {
  ParallelChoices out;
  const std::int64_t gpus = present.parallel.gpus;
  ParallelOption home{present.parallel, "", false, true};
  home.accumulates = strategy_of(present.parallel).accumulates;
  home.converts = present.parallel.param_dtype.has_value() || strategy_of(present.parallel).converts;
  out.options.push_back(std::move(home));
  if (gpus < 2 || !knobs.has(Knob::parallel)) return out;
  Degrees d;
  d.tensor = possible(
      gpus, limits.per_node, Field::tensor_parallel, [&](std::int64_t n) { return limits.refusal(n, 1, 1); }, out);
  d.context = possible(
      gpus, 8, Field::context_parallel, [&](std::int64_t n) { return limits.refusal(1, n, 1); }, out);
  d.expert = possible(
      gpus, 64, Field::expert_parallel, [&](std::int64_t n) { return limits.refusal(1, 1, n); }, out);
  Enumeration(present, limits, knobs, out).run(d);
  return out;
}

}  // namespace memplan
