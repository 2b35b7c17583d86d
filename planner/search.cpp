#include "planner/search.h"

#include <algorithm>
#include <cmath>

#include "estimators/estimate/range.h"
#include "estimators/frontends/recording/steps.h"
#include "estimators/graph/dims.h"
#include "estimators/setup/repetitions.h"
#include "planner/batch.h"
#include "planner/checkpointing/plan.h"

namespace memplan {

namespace {

constexpr std::int64_t upper_end = 1 << 20;

/// The largest batch with planned checkpoints is looked for to one part in so many: each try is a plan.
constexpr std::int64_t planned_precision = 100;

/// What a batch is asked for.
enum class Asked : std::uint8_t {
  smallest_step,     ///< whether there is a plan of checkpoints for it; what it costs is not asked
  smallest_verdict,  ///< the verdict of that step
  peak,              ///< whether its peak fits, without the range
  verdict,
};

struct Probe {
  bool fits = false;
  Bytes peak;
  Bytes high;  ///< what the verdict goes by
};

class BatchSearch {
 public:
  BatchSearch(const Model& model, const TrainingSetup& setup, const Device& device, Bytes margin, Asked asked)
      : model_(model), setup_(setup), device_(device), margin_(margin), asked_(asked) {}

  /// What the peak may be for the verdict `fits`; only where the search looks first, the verdict decides.
  double limit() const {
    const Bytes whole = device_.total - margin_;
    return static_cast<double>(
        (asked_ == Asked::smallest_step ? setup_.checkpoint_budget.value_or(whole) : whole).count);
  }

  /// The answer may be smaller by one part in so many.
  bool rough() const { return asked_ == Asked::smallest_verdict; }
  std::int64_t precision() const { return rough() ? planned_precision : upper_end + 1; }

  /// The same batches with another question.
  void ask(Asked asked) { asked_ = asked; }

  Probe probe(std::int64_t batch) {
    setup_.batch = batch;
    if (asked_ == Asked::smallest_step) return probe_smallest(batch);
    if (asked_ == Asked::smallest_verdict) return probe_smallest_verdict();
    const Result<Estimate> e = asked_ == Asked::peak ? estimate_planned(model_, setup_, device_)
                                                     : estimate_to_search(model_, setup_, device_, margin_, enough_);
    // A batch whose sizes overflow does not fit either.
    if (!e) return {};
    return probe_of(*e);
  }

  Probe probe_of(const Estimate& e) const {
    return {judge(e, device_, margin_).verdict == Verdict::fits, e.peak.process,
            std::max(e.peak.process, e.high.process)};
  }

 private:
  /// The regions that were the smallest choice for another batch are the first that are tried. Where they do not fit,
  /// neither does what is far smaller than their batch, and nothing else is tried where the answer is nearly known:
  /// other ones seldom bring more than that.
  Probe probe_smallest(std::int64_t batch) {
    const Result<Tape> tape = tape_of(model_, setup_);
    if (!tape) return {};
    const std::int64_t close_part = tape->calls.size() > many_calls ? 32 : planned_precision;
    const Bytes most(static_cast<std::int64_t>(limit()));
    if (known_) {
      const Result<Bytes> peak = peak_with_regions(known_->regions, *tape, setup_, device_);
      const bool close = too_large_ - fits_ <= fits_ / close_part;
      const bool hopeless = batch <= known_->batch * 2 && (close || !peak || !nearly_fits(*tape, *peak, most));
      if (peak && (*peak <= most || hopeless)) return counted(batch, {*peak <= most, *peak, *peak});
    }
    Result<SmallestStep> step = smallest_step(*tape, setup_, device_);
    if (!step) return {};
    if (!step->regions.empty()) known_ = Known{batch, std::move(step->regions)};
    return counted(batch, {step->fits, step->peak, step->peak});
  }

  Probe counted(std::int64_t batch, const Probe& p) {
    if (p.fits)
      fits_ = std::max(fits_, batch);
    else
      too_large_ = std::min(too_large_, batch);
    return p;
  }

  /// By the regions that a plan falls back to for this batch, so that it has the verdict as well.
  Probe probe_smallest_verdict() {
    const Result<Tape> tape = tape_of(model_, setup_);
    if (!tape) return {};
    const Result<SmallestStep> step = smallest_step(*tape, setup_, device_);
    if (!step) return {};
    const Result<Estimate> e = estimate_to_search(model_, *tape, step->regions, setup_, device_, margin_, enough_);
    return e ? probe_of(*e) : Probe{};
  }

  struct Known {
    std::int64_t batch;
    std::vector<CheckpointRegion> regions;
  };

  RangeLimit enough_;
  std::optional<Known> known_;
  std::int64_t fits_ = 0, too_large_ = upper_end + 1;
  const Model& model_;
  TrainingSetup setup_;
  const Device& device_;
  Bytes margin_;
  Asked asked_;
};

LargestBatch search_batches(BatchSearch& search) {
  std::int64_t fits = 0, too_large = upper_end + 1;
  Bytes fits_peak, smallest_peak;
  const auto look = [&](std::int64_t batch) {
    const Probe p = search.probe(batch);
    if (p.fits && batch > fits) fits = batch, fits_peak = p.peak;
    if (!p.fits && batch < too_large) too_large = batch;
    if (batch == 1) smallest_peak = p.peak;
    return p;
  };
  // The caching allocator makes memory no strictly rising function of the batch, so the search takes the same way
  // whatever batch was asked for, or the answer would depend on it.
  std::int64_t x0 = 1, x1 = 8;
  double y0 = static_cast<double>(look(x0).peak.count),
         y1 = too_large == 1 ? y0 : static_cast<double>(look(x1).peak.count);
  // Memory is nearly a straight line in the batch, so the line through two points says where to look next.
  double slope = 0;
  for (int round = 0; too_large - fits > 1 && fits < upper_end; ++round) {
    // Neighbours may need the same, since memory comes in segments: the line through others is right then.
    if (x1 != x0 && y1 != y0) slope = (y1 - y0) / static_cast<double>(x1 - x0);
    std::int64_t next = (fits + too_large) / 2;
    if (slope > 0 && round < 6) {
      const double guess = static_cast<double>(x1) + (search.limit() - y1) / slope;
      // Below the guess first, then above it: the two answers usually close the interval.
      next =
          static_cast<std::int64_t>(std::floor(std::clamp(guess, 0.0, static_cast<double>(upper_end)))) + (round % 2);
    } else if (too_large > upper_end) {
      next = std::min(upper_end, std::max<std::int64_t>(1, fits) * 16);
    }
    next = std::clamp(next, fits + 1, std::min(upper_end, too_large - 1));
    const Probe p = look(next);
    if (p.peak.count > 0) x0 = x1, y0 = y1, x1 = next, y1 = static_cast<double>(p.peak.count);
  }
  return LargestBatch{fits, fits > 0 ? fits_peak : smallest_peak, fits == upper_end};
}

/// What a sample takes, over enough of them that the allocator's rounding does not show.
double bytes_of_sample(BatchSearch& by_peak, const LargestBatch& here) {
  const std::int64_t below = here.batch - std::max<std::int64_t>(1, here.batch / 8);
  const Bytes peak = below > 0 ? by_peak.probe(below).peak : Bytes();
  return static_cast<double>((here.peak - peak).count) / static_cast<double>(here.batch - below);
}

/// The largest batch with the verdict, from the one that is the largest by its peak down. `slope_of`: bytes of a
/// sample. `here`: what is known of batch `at`.
template <class Slope>
LargestBatch verdicts_below(const LargestBatch& by_peaks, const Slope& slope_of, BatchSearch& search,
                            std::int64_t at = 0, const std::optional<Probe>& here = {}) {
  if (by_peaks.batch == 0) return by_peaks;
  std::int64_t fits = 0, too_large = by_peaks.batch + 1, next = by_peaks.batch;
  Bytes fits_peak, smallest_peak;
  std::optional<double> slope;
  for (int round = 0;; ++round) {
    const Probe p = here && next == at ? *here : search.probe(next);
    if (p.fits) fits = next, fits_peak = p.peak;
    if (!p.fits) too_large = next, smallest_peak = p.peak;
    if (too_large - fits <= 1 + fits / search.precision()) break;
    if (!slope) slope = slope_of();
    const double guess = static_cast<double>(next) + (search.limit() - static_cast<double>(p.high.count)) / *slope;
    next = (fits + too_large) / 2;
    // What ranges add rises in steps, so that the line is right once, and its neighbour shows whether it was. Roughly
    // right is enough where neighbours are not told apart.
    if (*slope > 0 && round < (search.rough() ? 1 : 2))
      next = static_cast<std::int64_t>(std::floor(std::clamp(guess, 0.0, static_cast<double>(too_large)))) + round;
    next = std::clamp(next, fits + 1, std::max(fits + 1, too_large - 1));
  }
  return LargestBatch{fits, fits > 0 ? fits_peak : smallest_peak, by_peaks.at_least && fits == by_peaks.batch};
}

/// The range takes many runs, so the largest batch is looked for by the peak alone, and the verdict is asked from there
/// down: beyond what fits by its peak nothing fits.
LargestBatch search_verdicts(BatchSearch& by_peak, BatchSearch& search, std::int64_t at,
                             const std::optional<Probe>& here) {
  LargestBatch by_peaks = search_batches(by_peak);
  if (by_peaks.batch == 0 && here && at == 1) by_peaks.peak = here->peak;
  return verdicts_below(
      by_peaks, [&] { return bytes_of_sample(by_peak, by_peaks); }, search, at, here);
}

/// Checkpoints are planned anew for every batch, so that the search asks for the smallest step of each, and plans only
/// for its answers: the largest batch by its peak, then the largest one where the smallest step has the verdict, and
/// from there down.
LargestBatch largest_planned_batch(const Model& model, TrainingSetup setup, const Device& device, Bytes margin) {
  BatchSearch search(model, few_repetitions(setup), device, margin, Asked::smallest_step);
  LargestBatch found = search_batches(search);
  std::optional<Probe> here;
  const auto fits = [&] {
    setup.batch = found.batch;
    const Result<Estimate> e = estimate_to_judge(model, setup, device, margin);
    here.reset();
    if (!e) return false;
    here = search.probe_of(*e);
    if (here->fits) found.peak = here->peak;
    return here->fits;
  };
  if (found.batch == 0) return LargestBatch{};
  if (fits()) return found;
  const double slope = bytes_of_sample(search, found);
  search.ask(Asked::smallest_verdict);
  // An answer that does not fit has tried the smallest step.
  found = verdicts_below(
      found, [&] { return slope; }, search, found.batch, here);
  // The steps down become larger, since each is a plan.
  for (std::int64_t step = std::max<std::int64_t>(1, found.batch / 64); found.batch > 0; step *= 2) {
    if (fits()) return found;
    found.batch = std::max<std::int64_t>(0, found.batch - step);
  }
  return LargestBatch{};
}

}  // namespace

Model searchable(Model model) {
  if (!model.recorded) return model;
  auto recording = std::make_shared<recording::Recording>(*model.recorded);
  if (std::none_of(recording->runs.begin(), recording->runs.end(),
                   [](const auto& run) { return run.calls != nullptr; })) {
    if (recording->plain) return Model(*recording->plain);
    fail(ErrorKind::usage, "suggest searches settings, and this recording holds no calls to work them out from",
         model.path, "record the module again with memplan.record, without calls=False");
  }
  recording->by_calls = true;
  recording->plain = nullptr;
  model.recorded = std::move(recording);
  return model;
}

std::optional<LargestBatch> largest_batch(const Model& model, const TrainingSetup& setup, const Device& device,
                                          const MarginOf& margin, const Estimate& known) {
  if (model.graphs.empty()) return std::nullopt;
  const auto dims = open_dims(model.graphs.front());
  const auto batch_dim = std::find_if(dims.begin(), dims.end(), [](const auto& d) { return d.batch; });
  if (batch_dim == dims.end()) return std::nullopt;

  if (model.recorded && !recording::open_batch(*model.recorded, setup)) return std::nullopt;
  const std::int64_t at = batch_of(model, setup);
  TrainingSetup start = setup;
  start.dims.erase(batch_dim->name);  // --dim comes before --batch, which the search sets
  // Under a budget that is larger than the card nothing that fits is checkpointed.
  if (start.checkpoint_budget >= device.total) start.checkpoint_optimal = false;
  // No batch leaves the whole card free.
  if (margin(device) >= device.total)
    return LargestBatch{0, BatchSearch(model, start, device, margin(device), Asked::peak).probe(1).peak, false};
  if (start.checkpoint_optimal && start.mode == Mode::training)
    return largest_planned_batch(model, start, device, margin(device));
  const auto searching = [&](TrainingSetup s, Asked asked) {
    // Peaks only bound the answer. A step after the second adds what the allocator caches at most, so two are enough.
    if (asked == Asked::peak && !model.recorded) s.steps = std::min(s.steps, decltype(s.steps){2});
    return BatchSearch(model, s, device, margin(device), asked);
  };
  BatchSearch search = searching(start, Asked::verdict), by_peak = searching(start, Asked::peak);
  if (!model.recorded && !has_few_repetitions(start)) {
    // More of them need no less, but for what the allocator caches: the answer is asked again with all, and the next
    // batch, too.
    const TrainingSetup few = few_repetitions(start);
    BatchSearch by_few = searching(few, Asked::verdict), by_few_peak = searching(few, Asked::peak);
    LargestBatch found = search_verdicts(by_few_peak, by_few, 0, {});
    if (found.batch == 0) return LargestBatch{0, at == 1 ? known.peak.process : found.peak, false};
    const Probe all = search.probe(found.batch);
    if (all.fits && (found.at_least || !search.probe(found.batch + 1).fits)) {
      found.peak = all.peak;
      return found;
    }
  }
  return search_verdicts(by_peak, search, at, search.probe_of(known));
}

std::vector<Card> smallest_cards(const Tape& tape, const TrainingSetup& setup, const MarginOf& margin,
                                 const Estimate& known, std::size_t count) {
  std::vector<Device> by_size = devices();
  std::stable_sort(by_size.begin(), by_size.end(), [](const Device& a, const Device& b) { return a.total < b.total; });
  std::vector<Card> cards;
  // What differs between cards is far below a quarter of the peak: smaller cards need not be tried.
  const Bytes hopeless(known.peak.requested.count / 4 * 3);
  std::size_t tried = 0;
  for (const Device& d : by_size) {
    if (cards.size() == count || tried == count + 4) break;
    if (d.total < hopeless || d.key.ends_with("-laptop")) continue;  // nobody buys the card of a laptop alone
    // Too small by the figures of the card asked for: two of the nearest are tried all the same.
    if (d.total < known.peak.process && d.total + Bytes::gib(1) < known.peak.process) continue;
    Result<Estimate> e = estimate_planned_tape(tape, setup, d);
    if (!e) continue;  // cards without the units that the setup needs
    ++tried;
    conclude_range(*e, on_card(known.sources, d));  // what the file leaves open moves as much on every card
    const Judgement j = judge(*e, d, margin(d));
    if (j.verdict == Verdict::fits) cards.push_back({d, e->peak.process, j.verdict});
  }
  return cards;
}

}  // namespace memplan
