#include "planner/job_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "estimators/base/bytes.h"
#include "estimators/setup/field.h"
#include "estimators/setup/strategies.h"
#include "estimators/transforms/pipeline_parallel.h"
#include "planner/rank_forecast.h"

namespace memplan {

JobSpace::JobSpace(const Model& model, const TrainingSetup& given, const Device& device, const SuggestOptions& options,
                   Tapes& tapes)
    : present(given), keep_samples_(options.keep_samples) {
  batch = present.batch.value_or(1);
  micro = present.parallel.pipeline > 1 ? present.parallel.micro_batches : present.accumulate;
  samples = checked_mul(checked_mul(batch, micro), present.parallel.data);
  Knobs knobs = options.knobs;
  for (Knob k : {Knob::batch, Knob::offload, Knob::parallel, Knob::allocator})
    knobs.keep(k);  // offload on several GPUs has no model
  if (in_megatron(present.parallel))
    for (Knob k : {Knob::precision, Knob::weights, Knob::optimizer, Knob::implementation, Knob::adapters})
      knobs.keep(k);  // its own
  TrainingSetup alone = present;
  alone.parallel = ParallelSetup{};
  space = make_space(model, alone, batch, device, knobs, options.keep_samples);
  keep_sayable(space, options.unsaid);
  splits_ = options.knobs.has(Knob::batch) && space.open && present.mode == Mode::training;
  make_choices();
  make_options(alone, device, options, tapes);
}

void JobSpace::make_choices() {
  std::vector<std::uint8_t> choice(space.axes.size(), 0);
  for (bool more = true; more;) {
    Choice c;
    c.point = Point{choice, batch};
    c.setup = setup_at(space, c.point);
    c.setup.parallel = present.parallel;
    c.flags = flags_at(space, c.point);
    c.distance = distance(space, c.point);
    for (std::size_t i = 0; i < choice.size(); ++i) {
      c.turned += choice[i] > 0;
      c.precision = c.precision || (choice[i] > 0 && space.axes[i].knob == Knob::precision);
    }
    choices.push_back(std::move(c));
    more = false;
    for (std::size_t i = 0; i < choice.size() && !more; ++i) {
      choice[i] = static_cast<std::uint8_t>((choice[i] + 1) % space.axes[i].options.size());
      more = choice[i] != 0;
    }
  }
  std::map<std::vector<std::uint8_t>, std::uint32_t> first;
  for (std::uint32_t c = 0; c < choices.size(); ++c) {
    std::vector<std::uint8_t> key = choices[c].point.choice;
    for (std::size_t i = 0; i < key.size(); ++i)
      if (is_minor(space.axes[i].knob)) key[i] = 0;
    choices[c].major = first.emplace(std::move(key), c).first->second;
  }
}

void JobSpace::make_options(const TrainingSetup& alone, const Device& device, const SuggestOptions& options,
                            Tapes& tapes) {
  ParallelLimits limits;
  limits.bf16 = device.sm_major >= 8;
  limits.per_node = options.time.per_node;
  depth = tapes.depth(alone);
  const Result<std::int64_t> count = catching([&] { return count_blocks(tapes.whole(alone), present.parallel); });
  limits.blocks = blocks = count ? *count : 1;
  limits.refusal = [&, alone](std::int64_t tensor, std::int64_t context,
                              std::int64_t expert) -> std::optional<std::string> {
    TrainingSetup s = alone;
    s.parallel.tensor = tensor, s.parallel.context = context, s.parallel.expert = expert;
    s.checkpoint.clear();
    const auto tape = catching([&] { return tapes.of_rank(s, shallow_depths(depth).first); });
    return tape ? std::nullopt : std::optional(tape.error().what);
  };
  parallel = parallel_choices(present, limits, options.knobs);
  // The present one stays the first.
  const auto first = parallel.options.begin() + (parallel.options.empty() ? 0 : 1);
  parallel.options.erase(std::remove_if(first, parallel.options.end(),
                                        [&](const ParallelOption& o) {
                                          TrainingSetup changed = present;
                                          changed.parallel = o.setup;
                                          return !newly_unsaid(options.unsaid, present, changed).empty();
                                        }),
                         parallel.options.end());
}

TrainingSetup JobSpace::setup_of(const Place& p) const {
  TrainingSetup s = choices[p.choice].setup;
  const ParallelOption& o = parallel.options[p.option];
  s.parallel = o.setup;
  if (o.converts && !o.setup.param_dtype && s.precision != Precision::fp16) s.precision = Precision::bf16;
  if (splits_) s.batch = p.batch;
  if (s.parallel.pipeline > 1)
    s.parallel.micro_batches = p.micro_batches, s.accumulate = 1;
  else
    s.accumulate = p.micro_batches;
  return s;
}

std::string JobSpace::flags_of_place(const Place& p) const {
  std::string flags;
  const auto append = [&](const std::string& more) {
    if (!more.empty()) flags += (flags.empty() ? "" : " ") + more;
  };
  const bool pipeline = parallel.options[p.option].setup.pipeline > 1, had_pipeline = present.parallel.pipeline > 1;
  if (p.batch != batch) append(setting(Field::batch, p.batch));
  append(parallel.options[p.option].flags);
  if (pipeline && (p.option > 0 || p.micro_batches != micro)) append(setting(Field::micro_batches, p.micro_batches));
  const std::int64_t accumulate = pipeline ? 1 : p.micro_batches;
  if (accumulate != present.accumulate || (!pipeline && had_pipeline && accumulate > 1))
    append(setting(Field::accumulate, accumulate));
  append(choices[p.choice].flags);
  return flags;
}

Place JobSpace::home() const {
  Place p;
  p.batch = batch, p.micro_batches = micro;
  return p;
}

bool JobSpace::is_home(const Place& p) const {
  return p.option == 0 && p.choice == 0 && p.batch == batch && p.micro_batches == micro;
}

std::vector<std::pair<std::int64_t, std::int64_t>> JobSpace::batches_of(const ParallelOption& o) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  const ParallelSetup& p = o.setup;
  if (!keep_samples_) {
    const std::int64_t count = p.pipeline > 1 ? 4 * p.pipeline : 1;
    if (!splits_) return {{batch, count}};
    for (std::int64_t b = batch * 8; b >= 1; b /= 2) out.emplace_back(b, count);
    return out;
  }
  if (samples % p.data != 0) return out;
  const std::int64_t each = samples / p.data;
  for (std::int64_t b : splits_ ? divisors_descending(each) : std::vector<std::int64_t>{batch}) {
    const std::int64_t count = each / b;
    if (each % b != 0 || (count > 1 && !o.accumulates)) continue;
    if (p.schedule == PipelineSchedule::interleaved && count % p.pipeline != 0) continue;
    out.emplace_back(b, count);
  }
  return out;
}

}  // namespace memplan
