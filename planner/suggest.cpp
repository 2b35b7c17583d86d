#include "planner/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "estimators/base/unwrap.h"
#include "estimators/estimate/range.h"
#include "estimators/graph/dims.h"
#include "planner/batch.h"
#include "planner/checkpointing/plan.h"
#include "planner/parallel_search.h"
#include "planner/setup_search.h"
#include "planner/shared_ranges.h"

namespace memplan {

namespace {

constexpr std::int64_t few_micro_batches = 4;

/// Knobs that change the tape: setups that agree in them share a rehearsal.
bool shapes_tape(Knob k) {
  return k == Knob::checkpoint || k == Knob::precision || k == Knob::attention || k == Knob::adapters;
}

/// All micro-batches of one choice of knobs, the largest first.
struct Family {
  std::vector<std::uint8_t> choice;
  std::size_t next = 0;  ///< index into Space::batches: larger ones are ruled out
  double seconds = 0;    ///< per sample, at that micro-batch
  Bytes bound;           ///< likewise
  int changed = 0;       ///< distance()
};

class DeviceSearch : public SetupSearch {
 public:
  DeviceSearch(const Model& model, Tapes& tapes, const TrainingSetup& present, const Device& device, Bytes margin,
               const SuggestOptions& options)
      : SetupSearch(device, margin, options), model_(model), tapes_(tapes), ranges_(tapes, device, margin) {
    home_.batch = batch_of(model, present);
    const TrainingSetup plain = with_batch(model, present, home_.batch);
    space_ = make_space(model, plain, home_.batch, device, options.knobs, options.keep_samples);
    keep_sayable(space_, options.unsaid);
    home_.choice.assign(space_.axes.size(), 0);
  }

 private:
  bool budget_left(std::size_t spare = 0) const { return replayed_ + spare < options_.replays; }

  // --- shared runs ------------------------------------------------------------------------------------------------

  std::vector<std::uint8_t> key_of(const std::vector<std::uint8_t>& choice, bool (*matters)(Knob)) const {
    std::vector<std::uint8_t> key;
    for (std::size_t i = 0; i < choice.size(); ++i) key.push_back(matters(space_.axes[i].knob) ? choice[i] : 0);
    return key;
  }

  TrainingSetup setup_of(const std::vector<std::uint8_t>& choice, std::int64_t batch) const {
    return setup_at(space_, Point{choice, batch});
  }

  const Result<Rehearsal>& rehearsal_of(const std::vector<std::uint8_t>& choice) {
    const auto key = key_of(choice, shapes_tape);
    auto it = rehearsals_.find(key);
    if (it == rehearsals_.end()) {
      const std::int64_t largest = space_.batches.front();
      const std::int64_t large = std::max<std::int64_t>(2, largest), small = std::max<std::int64_t>(1, large / 2);
      // A batch that the file fixes cannot be varied: both ends of the line are the same run.
      it = rehearsals_
               .emplace(key, rehearse(tapes_, setup_of(choice, home_.batch), space_.open ? small : home_.batch,
                                      space_.open ? large : home_.batch, device_))
               .first;
    }
    return it->second;
  }

  // --- one setup --------------------------------------------------------------------------------------------------

  /// Estimated once; the error of a setup that PyTorch or the model does not allow.
  const Result<Candidate>& candidate(const Point& point) {
    auto it = known_.find(point);
    if (it != known_.end()) return it->second;
    show(replayed_, flags_at(space_, point));
    ++replayed_;
    return known_.emplace(point, catching([&] { return judged(point); })).first->second;
  }

  Candidate judged(const Point& point) {
    Candidate c;
    c.setup = setup_at(space_, point);
    c.flags = flags_at(space_, point);
    c.cautions = cautions_at(space_, point);
    // Micro-batches after the first few repeat them; what is printed is estimated with all of them in the end.
    TrainingSetup few = c.setup;
    few.accumulate = std::min<std::int64_t>(few.accumulate, few_micro_batches);
    const Estimate e = point == home_
                           ? unwrap(answer_for(model_, *tapes_.of(few), few, device_))
                           : ranges_.to_compare(few, {key_of(point.choice, shapes_tape), point.batch, c.flags});
    judge_into(c, e);
    if (point == home_) ranges_.know(c.flags, e.sources), out_.estimate = e, out_.parameters = e.parameter_count;
    c.time = step_time(take_rehearsal(point.choice), c.setup, point.batch, rates_, options_.time);
    for (std::uint8_t chosen : point.choice) c.changes += chosen > 0;
    c.changes += point.batch != home_.batch;
    c.samples = samples_at(space_, point);
    return c;
  }

  Candidate present() override {
    const Result<Candidate>& c = candidate(home_);
    if (!c) throw Failure(c.error());
    return *c;
  }

  const Rehearsal& take_rehearsal(const std::vector<std::uint8_t>& choice) {
    const Result<Rehearsal>& r = rehearsal_of(choice);
    if (!r) throw Failure(r.error());
    return *r;
  }

  bool fits(const Point& point) {
    const Result<Candidate>& c = candidate(point);
    return c && c->verdict == Verdict::fits;
  }

  // --- the search -------------------------------------------------------------------------------------------------

  /// Moves the family to its largest micro-batch whose bound is below the limit; false when none is.
  bool settle(Family& f, const Rehearsal& r) {
    for (; f.next < space_.batches.size(); ++f.next) {
      const std::int64_t batch = space_.batches[f.next];
      const TrainingSetup setup = setup_of(f.choice, batch);
      f.bound = least(r, setup, batch, device_);
      if (f.bound <= limit()) {
        f.seconds = step_time(r, setup, batch, rates_, options_.time).total() /
                    static_cast<double>(samples_at(space_, Point{f.choice, batch}));
        return true;
      }
      ++out_.count.bounded;
    }
    return false;
  }

  void find_bounds() override {
    std::vector<std::uint8_t> choice(space_.axes.size(), 0);
    for (bool more = true; more;) {
      out_.count.setups += static_cast<std::int64_t>(space_.batches.size());
      consider(choice);
      more = false;
      for (std::size_t i = 0; i < choice.size() && !more; ++i) {
        choice[i] = static_cast<std::uint8_t>((choice[i] + 1) % space_.axes[i].options.size());
        more = choice[i] != 0;
      }
    }
  }

  /// What the choice keeps whatever is checkpointed, where that is too much already: a rehearsal is spared.
  std::optional<Bytes> kept_beyond_limit(const std::vector<std::uint8_t>& choice) {
    const auto plain = key_of(choice, [](Knob k) { return k != Knob::checkpoint && k != Knob::attention; });
    if (plain == choice) return std::nullopt;
    const Result<Rehearsal>& r = rehearsal_of(plain);
    const TrainingSetup setup = setup_of(choice, home_.batch);
    const Bytes kept = r && !setup.offload.parameters ? least_kept(*r, setup, device_) : Bytes();
    return kept > limit() ? std::optional(kept) : std::nullopt;
  }

  void consider(const std::vector<std::uint8_t>& choice) {
    const std::string flags = flags_at(space_, Point{choice, home_.batch});
    if (const auto kept = kept_beyond_limit(choice)) {
      out_.count.bounded += std::ssize(space_.batches);
      if (turned_once(choice)) reject(flags, "needs more whatever the batch", *kept, true);
      return;
    }
    const Result<Rehearsal>& r = rehearsal_of(choice);
    if (!r) {
      if (turned_once(choice)) reject(flags, r.error().what);
      return;
    }
    Family f{choice, 0, 0, {}, distance(space_, Point{choice, home_.batch})};
    if (settle(f, *r)) {
      const Bytes alone = least(*r, setup_of(choice, home_.batch), home_.batch, device_);
      if (turned_once(choice) && alone > limit()) reject(flags, "is not enough alone", alone, true);
      families_.push_back(std::move(f));
    } else if (turned_once(choice)) {
      reject(flags, space_.splits ? "needs more even with one sample per micro-batch" : "needs more", f.bound, true);
    }
  }

  /// What a family is expected to need beyond its bound, from replays of the same kind of tape.
  void learn(const Family& f, const Candidate& c) {
    const auto key = key_of(f.choice, shapes_tape);
    excess_[key] = static_cast<double>((c.peak - f.bound).count);
  }

  bool expected_to_fit(const Family& f) const {
    const auto it = excess_.find(key_of(f.choice, shapes_tape));
    // A fiftieth of the device in doubt: then the replay decides.
    return it == excess_.end() ||
           static_cast<double>(f.bound.count) + it->second <
               static_cast<double>(limit().count) + static_cast<double>(device_.total.count) / 50;
  }

  /// Fastest first; a family that fails comes back with its next smaller micro-batch. Of equal times the smaller change
  /// comes first, and the smaller need.
  void find_fastest() override {
    const auto grade = [](const Family& f) { return time_grade(f.seconds, 1e-9); };
    const auto later = [&](const Family& a, const Family& b) {
      if (const double x = grade(a), y = grade(b); x != y) return x > y;
      if (a.changed != b.changed) return a.changed > b.changed;
      return a.bound > b.bound;
    };
    std::vector<Family> heap = families_;
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty() && out_.fitting.size() < options_.wanted && budget_left(options_.replays / 3)) {
      std::pop_heap(heap.begin(), heap.end(), later);
      Family f = std::move(heap.back());
      heap.pop_back();
      if (needless(f)) {
        ++out_.count.slower;
        continue;
      }
      const Point point{f.choice, space_.batches[f.next]};
      bool good = false;
      if (expected_to_fit(f)) {
        const Result<Candidate>& c = candidate(point);
        if (!c) {
          reject(flags_at(space_, point), c.error().what);
          continue;
        }
        learn(f, *c);
        Candidate whole = *c;
        good = whole.verdict == Verdict::fits && confirm(whole);
        if (good)
          out_.fitting.push_back(whole), taken_.push_back(f);
        else
          note_failure(point, whole);
      } else {
        ++out_.count.implied;
      }
      if (good) continue;
      ++f.next;
      const Result<Rehearsal>& r = rehearsal_of(f.choice);
      if (settle(f, *r)) {
        heap.push_back(std::move(f));
        std::push_heap(heap.begin(), heap.end(), later);
      }
    }
    if (out_.fitting.empty())
      out_.count.left = static_cast<std::int64_t>(heap.size());
    else
      out_.count.slower += static_cast<std::int64_t>(heap.size());
  }

  /// The same idea as one that was taken: it differs in minor knobs only, or turns more of them for no less time.
  bool needless(const Family& f) const {
    return std::any_of(taken_.begin(), taken_.end(), [&](const Family& t) {
      bool same = true, more = true;
      for (std::size_t i = 0; i < f.choice.size(); ++i) {
        if (is_minor(space_.axes[i].knob)) continue;
        same = same && t.choice[i] == f.choice[i];
        more = more && (t.choice[i] == 0 || t.choice[i] == f.choice[i]);
      }
      return same || (more && t.next <= f.next);
    });
  }

  /// One knob turned: what is worth a line among the rejections. Two are worth it only when they were estimated.
  static bool turned_once(const std::vector<std::uint8_t>& choice) {
    return std::count_if(choice.begin(), choice.end(), [](std::uint8_t c) { return c > 0; }) == 1;
  }

  void note_failure(const Point& point, const Candidate& c) {
    // The largest micro-batch of each choice is enough to say why.
    if (!failed_.insert(point.choice).second) return;
    reject(flags_at(space_, point), why_not(c.verdict), c.peak);
  }

  /// Fewest and mildest changes: one knob at a time, then two.
  std::optional<Candidate> find_smallest() override {
    std::vector<Family> order;
    for (Family f : families_) {
      int turned = 0;
      for (std::uint8_t chosen : f.choice) turned += chosen > 0;
      if (turned <= 2) order.push_back(std::move(f));
    }
    // The batch as it is, then split, for every choice of the other knobs.
    struct Step {
      int cost;
      Point point;
      bool split;
      const Family* family;
    };
    std::vector<Step> steps;
    for (const Family& f : order) {
      const std::size_t home = static_cast<std::size_t>(
          std::find(space_.batches.begin(), space_.batches.end(), home_.batch) - space_.batches.begin());
      if (f.next <= home && f.changed > 0) steps.push_back({f.changed, Point{f.choice, home_.batch}, false, &f});
      if (space_.splits && space_.batches.size() > home + 1)
        steps.push_back({f.changed + static_cast<int>(Knob::batch) + 1, Point{f.choice, home_.batch}, true, &f});
    }
    std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.cost < b.cost; });
    for (const Step& s : steps) {
      if (!budget_left(options_.replays / 6)) return std::nullopt;
      const std::optional<Point> found = s.split         ? largest_split(*s.family)
                                         : fits(s.point) ? std::optional(s.point)
                                                         : std::nullopt;
      if (std::optional<Candidate> whole; found && confirm(whole.emplace(*candidate(*found)))) return whole;
    }
    return std::nullopt;
  }

  /// The largest smaller micro-batch that fits.
  std::optional<Point> largest_split(const Family& family) {
    const std::size_t home = static_cast<std::size_t>(
        std::find(space_.batches.begin(), space_.batches.end(), home_.batch) - space_.batches.begin());
    std::size_t low = std::max(home + 1, family.next), high = space_.batches.size();
    if (low >= high || !budget_left() || !fits(Point{family.choice, space_.batches.back()})) return std::nullopt;
    --high;  // fits
    while (low < high && budget_left()) {
      const std::size_t middle = (low + high) / 2;
      if (fits(Point{family.choice, space_.batches[middle]}))
        high = middle;
      else
        low = middle + 1;
    }
    return Point{family.choice, space_.batches[high]};
  }

  std::vector<Candidate> find_front() override {
    std::vector<Family> order = families_;
    std::stable_sort(order.begin(), order.end(),
                     [](const Family& a, const Family& b) { return a.seconds < b.seconds; });
    Bytes smallest(INT64_MAX);
    for (const Family& f : order) {
      if (!budget_left()) break;
      if (f.bound >= smallest) continue;
      smallest = f.bound;
      candidate(Point{f.choice, space_.batches[f.next]});
    }
    std::vector<Candidate> all;
    for (const auto& [point, c] : known_)
      if (c && c->verdict == Verdict::fits) all.push_back(*c);
    return all;
  }

  /// With all micro-batches and its own range; false when that changes the verdict to one that does not fit.
  bool confirm(Candidate& c) {
    auto it = confirmed_.find(c.flags);
    if (it == confirmed_.end()) {
      if (c.setup.accumulate <= few_micro_batches && ranges_.has_own(c.flags)) return c.verdict == Verdict::fits;
      const auto e = catching([&] { return ranges_.to_answer(c.setup, c.flags); });
      if (!e) return false;
      it = confirmed_.emplace(c.flags, std::make_pair(e->peak.process, judge(*e, device_, margin_))).first;
    }
    c.peak = it->second.first;
    c.verdict = it->second.second.verdict;
    c.headroom = it->second.second.headroom;
    return c.verdict == Verdict::fits;
  }

  void finish() override {
    std::erase_if(out_.front, [&](Candidate& c) { return !confirm(c); });
    if (out_.present.setup.accumulate > few_micro_batches) confirm(out_.present);
    out_.count.replayed = static_cast<std::int64_t>(replayed_);
    reject(space_.unavailable);
    for (const auto& [point, c] : known_)
      if (c && c->verdict != Verdict::fits && point != home_) note_failure(point, *c);
  }

  const Model& model_;
  Tapes& tapes_;
  Space space_;
  Point home_;
  std::size_t replayed_ = 0;
  std::map<std::vector<std::uint8_t>, Result<Rehearsal>> rehearsals_;
  std::map<std::vector<std::uint8_t>, double> excess_;
  std::map<Point, Result<Candidate>> known_;
  std::set<std::vector<std::uint8_t>> failed_;
  SharedRanges ranges_;
  std::map<std::string, std::pair<Bytes, Judgement>> confirmed_;
  std::vector<Family> families_, taken_;
};

}  // namespace

Suggestion suggest(const Model& model, const TrainingSetup& present, const Device& device, const MarginOf& margin,
                   const SuggestOptions& options) {
  TrainingSetup resolved = with_batch(model, present, batch_of(model, present));
  resolved.parallel = resolve(present.parallel);
  if (is_parallel(resolved.parallel)) return suggest_parallel(model, resolved, device, margin(device), options);
  Tapes own(model);
  Tapes& tapes = options.tapes ? *options.tapes : own;
  return DeviceSearch(model, tapes, present, device, margin(device), options).run();
}

}  // namespace memplan
