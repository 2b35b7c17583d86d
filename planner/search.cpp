#include "planner/search.h"

#include <algorithm>
#include <cmath>

#include "estimators/estimate/range.h"
#include "estimators/frontends/recording/steps.h"
#include "estimators/graph/dims.h"
#include "estimators/setup/repetitions.h"
#include "estimators/setup/runtimes.h"
#include "planner/batch.h"
#include "planner/checkpointing/plan.h"

namespace memplan {

namespace {

constexpr std::int64_t upper_end = 1 << 20;

/// What a batch is asked for.
enum class Asked : std::uint8_t {
  smallest_step,  ///< whether there is a plan of checkpoints for it; what it costs is not asked
  peak,           ///< whether its peak fits, without the range
  verdict,
};

struct Probe {
  bool fits = false;
  Bytes peak;
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

  Probe probe(std::int64_t batch) {
    setup_.batch = batch;
    if (asked_ == Asked::smallest_step) {
      const Result<Tape> tape = tape_of(model_, setup_);
      if (!tape) return {};
      const Result<SmallestStep> step = smallest_step(*tape, setup_, device_);
      return step ? Probe{step->fits, step->peak} : Probe{};
    }
    const Result<Estimate> e = asked_ == Asked::peak ? estimate_planned(model_, setup_, device_)
                                                     : estimate_to_search(model_, setup_, device_, margin_, enough_);
    // A batch whose sizes overflow does not fit either.
    if (!e) return {};
    return {judge(*e, device_, margin_).verdict == Verdict::fits, e->peak.process};
  }

 private:
  RangeLimit enough_;
  const Model& model_;
  TrainingSetup setup_;
  const Device& device_;
  Bytes margin_;
  Asked asked_;
};

/// `here`: what is known of batch `at`.
LargestBatch search_batches(BatchSearch& search, std::int64_t at, const std::optional<Probe>& here) {
  std::int64_t fits = 0, too_large = upper_end + 1;
  Bytes fits_peak, smallest_peak;
  const auto look = [&](std::int64_t batch) {
    const Probe p = here && batch == at ? *here : search.probe(batch);
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
  for (int round = 0; too_large - fits > 1 && fits < upper_end; ++round) {
    const double slope = x1 == x0 ? 0 : (y1 - y0) / static_cast<double>(x1 - x0);
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

/// Checkpoints are planned anew for every batch, so that the search asks for the smallest step of each, and plans only
/// for its answer. None where that answer has not the verdict `fits` after all.
std::optional<LargestBatch> largest_planned_batch(const Model& model, TrainingSetup setup, const Device& device,
                                                  Bytes margin) {
  BatchSearch search(model, few_repetitions(setup), device, margin, Asked::smallest_step);
  LargestBatch found = search_batches(search, 0, {});
  if (found.batch == 0) return LargestBatch{};
  setup.batch = found.batch;
  const Result<Estimate> e = estimate_planned(model, setup, device);
  if (!e || judge(*e, device, margin).verdict != Verdict::fits) return std::nullopt;
  found.peak = e->peak.process;
  return found;
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
  if (start.checkpoint_optimal && start.mode == Mode::training)
    if (const auto planned = largest_planned_batch(model, start, device, margin(device))) return planned;
  BatchSearch search(model, start, device, margin(device), Asked::verdict);
  const Probe here{judge(known, device, margin(device)).verdict == Verdict::fits, known.peak.process};
  if (runs_nodes(setup.runtime)) {
    // The range of a session is that of many orders of its weights: only the answer is asked for it, where it holds.
    BatchSearch by_peak(model, start, device, margin(device), Asked::peak);
    const LargestBatch found = search_batches(by_peak, at, here);
    if (found.batch == 0 || search.probe(found.batch).fits) return found;
  }
  if (!model.recorded && !has_few_repetitions(start)) {
    // More of them need no less, but for what the allocator caches: the answer is asked again with all, and the next
    // batch, too.
    BatchSearch by_few(model, few_repetitions(start), device, margin(device), Asked::verdict);
    LargestBatch found = search_batches(by_few, 0, {});
    const Probe all = found.batch > 0 ? search.probe(found.batch) : Probe{};
    if (all.fits && (found.at_least || !search.probe(found.batch + 1).fits)) {
      found.peak = all.peak;
      return found;
    }
  }
  return search_batches(search, at, here);
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
    if (d.total < hopeless) continue;
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
