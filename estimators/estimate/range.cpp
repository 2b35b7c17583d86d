#include "estimators/estimate/range.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <tuple>

#include "estimators/base/threads.h"
#include "estimators/base/unwrap.h"
#include "estimators/estimate/left_out_calls.h"
#include "estimators/estimate/lengths.h"
#include "estimators/estimate/lost_operands.h"
#include "estimators/estimate/recorded_difference.h"
#include "estimators/estimate/trials.h"
#include "estimators/frontends/recording/steps.h"
#include "estimators/pipeline.h"
#include "estimators/restore/method_states.h"
#include "estimators/setup/repetitions.h"
#include "estimators/tape/own_function.h"
#include "estimators/tape/uses.h"
#include "estimators/transforms/pipeline_parallel.h"

namespace memplan {

namespace {

RangeSource price(const Trial& trial, const Estimate& e, const std::optional<Estimate>& other) {
  RangeSource s{trial.about, trial.text, {}, {}};
  if (!other) return s;
  for (const auto counter : each_counter) {
    const Bytes change = other->peak.*counter - e.peak.*counter;
    const Bytes size = std::max(change, Bytes() - change);
    if (change < Bytes() || trial.either_way) s.below.*counter = size;
    if (change > Bytes() || trial.either_way) s.above.*counter = size;
  }
  return s;
}

/// Readings of the same thing exclude each other: the farthest counts.
void merge(std::vector<RangeSource>& sources, const RangeSource& s) {
  const auto same =
      std::find_if(sources.begin(), sources.end(), [&](const RangeSource& x) { return x.about == s.about; });
  if (same == sources.end()) {
    sources.push_back(s);
    return;
  }
  if (s.moves_requested()) same->text = s.text;
  for (const auto counter : each_counter) {
    same->below.*counter = std::max(same->below.*counter, s.below.*counter);
    same->above.*counter = std::max(same->above.*counter, s.above.*counter);
  }
}

/// Blocks keep what is left of them below 1 MiB, and segments for requests from 1 to 10 MiB are 20 MiB large
/// (c10/core/AllocatorConfig.h: kSmallSize, kLargeBuffer). So an allocation more, less or elsewhere can make each block
/// tighter or looser and move a segment, though next to nothing else is asked for.
RangeSource placement(const Estimate& e) {
  constexpr Bytes rest = Bytes::mib(1), segment = Bytes::mib(20);
  const Bytes rounding = e.peak.allocated - e.peak.requested;
  RangeSource s{About::allocator, "blocks and segments that fall otherwise when allocations do", {}, {}};
  s.below.allocated = rounding;
  s.above.allocated = std::max(rounding, rest);
  for (const auto counter : {&Counters::reserved, &Counters::process}) s.below.*counter = s.above.*counter = segment;
  return s;
}

/// Bytes of a value of the tape as it was recorded.
Bytes recorded_bytes(const Tape& tape, ValueId id) {
  const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
  DType dtype = v.dtype;
  std::vector<std::int64_t> sizes = v.sizes;
  for (const Call& c : tape.calls)
    for (std::size_t o = 0; o < c.outputs.size() && o < c.known_shapes.size(); ++o)
      if (c.outputs[o] == id) std::tie(dtype, sizes) = c.known_shapes[o];
  return bytes_of(dtype, sizes);
}

/// What a checkpointed autograd.Function has saved is made again for its backward pass, and unpacked there: names that
/// hold it decide when it goes (`x, _, _ = ctx.saved_tensors` lets go of the second one at once). Calls say nothing of
/// what none of them reads, which is taken to stay until that pass ends.
RangeSource unpacked_unread(const Tape& tape) {
  RangeSource s{About::function, "what a checkpointed autograd.Function unpacks and does not read", {}, {}};
  Bytes most;
  for (const Call& c : tape.calls) {
    if (!c.own || c.checkpoint < 0) continue;
    const Tape& backward = c.own->backward.tape;
    const std::size_t gradients = backward.inputs.size() - c.own->saved.size();
    Bytes unread;
    for (std::size_t i = 0; i < c.own->saved.size(); ++i) {
      const ValueId id = backward.inputs[gradients + i];
      const bool read = std::any_of(backward.calls.begin(), backward.calls.end(), [&](const Call& b) {
        bool found = false;
        for_each_value(b, [&](ValueId v) { found = found || v == id; });
        return found;
      });
      if (!read) unread += recorded_bytes(c.own->forward.tape, c.own->saved[i]);
    }
    most = std::max(most, unread);
  }
  for (const auto counter : each_counter) s.below.*counter = most;
  return s;
}

/// PyTorch's own peak of a recorded batch, over all steps.
std::optional<std::array<std::int64_t, 3>> recorded_peak(const recording::Run& run, std::int64_t batch) {
  for (const recording::Program& p : run.programs) {
    const auto at = std::find(p.batches.begin(), p.batches.end(), batch);
    if (at == p.batches.end() || p.peaks.empty()) continue;
    std::array<std::int64_t, 3> most{};
    for (const auto& step : p.peaks[static_cast<std::size_t>(at - p.batches.begin())])
      for (std::size_t c = 0; c < most.size(); ++c) most[c] = std::max(most[c], step[c]);
    return most;
  }
  return std::nullopt;
}

/// What a compiled program takes with empty caches, and with matrix products padded, beside what it takes with warm
/// ones: at the recorded batch that is nearest.
std::vector<RangeSource> other_runs(const recording::Steps& steps) {
  std::vector<RangeSource> out;
  const recording::Run& run = steps.recording->runs[steps.run];
  std::int64_t nearest = 0;
  for (const recording::OtherPeak& o : run.others)
    if (nearest == 0 || std::abs(o.batch - steps.batch) < std::abs(nearest - steps.batch)) nearest = o.batch;
  const auto warm = recorded_peak(run, nearest);
  if (!warm) return out;
  RangeSource s{About::framework, "torch.compile with empty caches, and with matrix products padded", {}, {}};
  const auto compare = [&](Bytes Counters::*counter, std::int64_t own, std::int64_t other) {
    s.below.*counter = std::max(s.below.*counter, Bytes(own) - Bytes(other));
    s.above.*counter = std::max(s.above.*counter, Bytes(other) - Bytes(own));
  };
  for (const recording::OtherPeak& o : run.others) {
    if (o.batch != nearest) continue;
    compare(&Counters::requested, (*warm)[0], o.bytes[0]);
    compare(&Counters::allocated, (*warm)[1], o.bytes[1]);
    compare(&Counters::reserved, (*warm)[2], o.bytes[2]);
    compare(&Counters::process, (*warm)[2], o.bytes[2]);
  }
  if (s.moves()) out.push_back(std::move(s));
  return out;
}

bool restored(const Notes& facts) {
  return std::any_of(facts.begin(), facts.end(), [](const Fact& f) {
    return told(f.evidence) || f.evidence == Evidence::nearest_table_entry ||
           (f.evidence == Evidence::assumed && f.about == About::op);
  });
}

}  // namespace

void conclude_range(Estimate& e, std::vector<RangeSource> sources) {
  const Conclusions c = conclude(e.facts, sources);
  e.requested_basis = c.requested;
  for (CategoryPart& p : e.parts) p.basis = c.of(p.part);
  for (RankClass& r : e.ranks)
    for (CategoryPart& p : r.parts) p.basis = c.of(p.part);
  for (const auto counter : each_counter) {
    Bytes below = c.off.below, above = c.off.above;
    for (const RangeSource& s : sources) {
      below += s.below.*counter;
      above += s.above.*counter;
    }
    e.low.*counter = std::max(Bytes(), e.peak.*counter - below);
    e.high.*counter = e.peak.*counter + above;
  }
  e.sources = std::move(sources);
}

std::vector<RangeSource> on_card(std::vector<RangeSource> sources, const Device& device) {
  std::erase_if(sources, [](const RangeSource& s) { return s.about == About::context; });
  RangeSource context{About::context, "CUDA's context and libraries: " + device.context_source, {}, {}};
  context.below.process = device.context_below;
  context.above.process = device.context_above;
  if (context.moves()) sources.push_back(std::move(context));
  return sources;
}

namespace {

/// What trials are compared with: the setup's estimate, or that of fewer repetitions.
struct Base {
  const Model& model;
  const Tape& tape;
  TrainingSetup setup;
  const Device& device;
  Estimate estimate;
  const Schedule* ran = nullptr;
  std::shared_ptr<const Schedule> own{};  ///< where it was run for the trials
};

Base base_of(const Model& model, const Tape& tape, const TrainingSetup& setup, const Device& device, const Estimate& e,
             const Schedule* ran) {
  TrainingSetup resolved = setup;
  resolved.parallel = resolve(setup.parallel);
  const ParallelSetup& ranks = resolved.parallel;
  const bool settles = ranks.pipeline > 1 && splits_backward(ranks.schedule);
  const TrainingSetup least = least_repetitions(resolved, settles ? 3 * ranks.pipeline : 0);
  if (tape.graph || (least.accumulate == setup.accumulate && least.parallel.micro_batches == ranks.micro_batches))
    return {model, tape, setup, device, e, ran};
  Base base{model, tape, least, device, {}};
  base.estimate = unwrap(estimate_tape(tape, least, device, &base.own));
  base.ran = base.own.get();
  return base;
}

/// The trial's source; none where nothing can be run under its reading, which says nothing.
std::optional<RangeSource> priced(const Trial& trial, const Base& b) {
  try {
    if (b.ran && trial.reading == falling_addresses())
      return price(trial, b.estimate, unwrap(estimate_at_falling_addresses(b.tape, *b.ran, b.setup, b.device)));
    const auto other = read_again(b.model, b.tape, b.setup, trial.reading);
    std::optional<Estimate> again;
    if (other) again = unwrap(estimate_tape(*other, b.setup, b.device));
    return price(trial, b.estimate, again);
  } catch (const Failure&) {
    return std::nullopt;
  }
}

/// Networks that are not trained and ops in place are open at once: without some gradients the peak moves to where the
/// others count. What all of these readings together change beyond what they do one by one.
void add_joint(std::vector<RangeSource>& sources, const std::vector<Trial>& trials, const Base& base) {
  Reading all;
  int readings = 0;
  for (const Trial& t : trials) {
    if (t.reading.frozen_names) all.frozen_names = true, ++readings;
    if (t.reading.pretrained) all.pretrained = true, ++readings;
    if (t.reading.in_place == InPlaceReading::wherever) all.in_place = InPlaceReading::wherever, ++readings;
  }
  const auto joint = readings < 2
                         ? std::nullopt
                         : priced({About::weights, "networks that may not be trained, with ops in place", all}, base);
  if (!joint) return;
  RangeSource more{About::weights, joint->text, {}, {}};
  for (const auto counter : each_counter) {
    more.below.*counter = joint->below.*counter;
    for (const RangeSource& s : sources)
      if (s.about == About::weights || s.about == About::in_place) more.below.*counter -= s.below.*counter;
    more.below.*counter = std::max(Bytes(), more.below.*counter);
  }
  const auto weights = std::ranges::find(sources, About::weights, &RangeSource::about);
  if (weights != sources.end())
    for (const auto counter : each_counter) weights->below.*counter += more.below.*counter;
  else if (more.moves())
    sources.push_back(std::move(more));
}

std::vector<RangeSource> all_sources(const std::vector<Trial>& trials, const Base& base) {
  std::vector<std::optional<RangeSource>> each(trials.size());
  in_parallel(trials.size(), [&](std::size_t i) { each[i] = priced(trials[i], base); });
  std::vector<RangeSource> sources;
  for (const auto& s : each)
    if (s) merge(sources, *s);
  add_joint(sources, trials, base);
  return sources;
}

/// One after the other, the likely one first, until they add up to more than the limit: more sources add no less.
/// `peak`: of the estimate that gets the range.
std::vector<RangeSource> sources_up_to(RangeLimit& limit, const std::vector<Trial>& trials, const Base& base,
                                       Bytes peak) {
  std::vector<RangeSource> sources;
  const auto beyond = [&] {
    Bytes high = peak;
    for (const RangeSource& s : sources)
      if (s.about != About::cast || s.moves_requested()) high += s.above.process;  // such casts may be left out
    return high > limit.process;
  };
  std::vector<std::size_t> order(trials.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (limit.likely < order.size())
    std::rotate(order.begin(), order.begin() + limit.likely, order.begin() + limit.likely + 1);
  Bytes most;
  for (const std::size_t i : order) {
    const auto s = priced(trials[i], base);
    if (!s) continue;
    merge(sources, *s);
    if (s->above.process > most) most = s->above.process, limit.likely = i;
    if (beyond()) break;
  }
  return sources;
}

RangeSource states_of_methods(const Tape& tape) {
  RangeSource s{About::lifetime, "tensors that a method of the model's puts into attributes", {}, {}};
  const Bytes held = bytes_of_method_states(tape);
  for (const auto counter : each_counter) s.above.*counter = held;
  return s;
}

Estimate ranged(const Model& model, const Tape& tape, const TrainingSetup& setup, const Device& device, Estimate e,
                RangeLimit* limit, const Schedule* ran) {
  if (tape.recorded) {
    if (auto others = other_runs(*tape.recorded); !others.empty())
      conclude_range(e, on_card(std::move(others), device));
    return e;
  }
  std::vector<Trial> trials = trials_of(tape, setup, e.facts);
  // Of a recorded program only what libraries take is open, and dtypes that it asked its tensors for.
  if (tape.exported.recorded)
    std::erase_if(trials, [](const Trial& t) {
      return t.about != About::workspace && t.about != About::cast && t.about != About::allocator;
    });
  std::vector<RangeSource> sources;
  if (!trials.empty()) {
    const Base base = base_of(model, tape, setup, device, e, ran);
    sources = limit ? sources_up_to(*limit, trials, base, e.peak.process) : all_sources(trials, base);
  }
  if (tape.exported.recorded && setup.mode == Mode::training)
    if (const RangeSource s = unpacked_unread(tape); s.moves()) merge(sources, s);
  if (auto lengths = batches_of_other_lengths(model, tape, setup, device, e)) sources.push_back(std::move(*lengths));
  if (model.recorded && tape.exported.recorded)
    if (const auto off = recorded_difference(model, setup, e)) merge(sources, *off);
  if (const Bytes off = tape.exported.folded_away; off > Bytes()) {
    RangeSource s{
        About::mask, "masks, positions and other small tensors that the exporter's optimizer worked out", {}, {}};
    for (const auto counter : each_counter) s.below.*counter = s.above.*counter = off;
    // One parameter under two names, `self.norm_1 = self.norm_0`, has one gradient and two states.
    if (setup.mode == Mode::training)
      for (const auto counter : each_counter) s.below.*counter += tape.exported.merged_parameters * 3;
    sources.push_back(s);
  }
  if (const RangeSource s = lost_operands(tape, setup); s.moves()) merge(sources, s);
  if (const RangeSource s = left_out_calls(tape, setup); s.moves()) merge(sources, s);
  if (const RangeSource s = states_of_methods(tape); s.moves()) merge(sources, s);
  // Of conversions that the file dropped no reading has more, so that nothing moved proves nothing of them.
  if (rests_on(e.facts, About::cast, [](Evidence v) { return v == Evidence::told_by_source_line; }))
    std::erase_if(sources, [](const RangeSource& s) { return s.about == About::cast && !s.moves_requested(); });
  // `x.to(torch.float32)` does nothing in fp32, whatever was put back.
  if (setup.precision == Precision::fp32) merge(sources, {About::cast, "casts that an export in fp32 drops", {}, {}});
  if (!tape.graph && restored(e.facts)) sources.push_back(placement(e));
  conclude_range(e, on_card(std::move(sources), device));
  return e;
}

}  // namespace

Result<Estimate> with_range(const Model& model, const Tape& tape, const TrainingSetup& setup, const Device& device,
                            Estimate e, const Schedule* ran) {
  return catching([&] { return ranged(model, tape, setup, device, std::move(e), nullptr, ran); });
}

Result<Estimate> with_range_up_to(const Model& model, const Tape& tape, const TrainingSetup& setup,
                                  const Device& device, Estimate e, RangeLimit& limit, const Schedule* ran) {
  return catching([&] { return ranged(model, tape, setup, device, std::move(e), &limit, ran); });
}

}  // namespace memplan
