#include "planner/parallel_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "estimators/base/unwrap.h"
#include "planner/checkpointing/plan.h"
#include "planner/job_space.h"
#include "planner/rank_bounds.h"
#include "planner/rank_forecast.h"
#include "planner/setup_search.h"

namespace memplan {

namespace {

class ParallelSearch : public SetupSearch {
 public:
  ParallelSearch(const Model& model, const TrainingSetup& present, const Device& device, Bytes margin,
                 const SuggestOptions& options)
      : SetupSearch(device, margin, options), tapes_(model), job_(model, present, device, options, tapes_) {}

 private:
  void show(const std::string& what) const { SetupSearch::show(static_cast<std::size_t>(out_.count.replayed), what); }

  Candidate present() override {
    show("the present setup");
    Candidate c = estimated(job_.home(), true);
    out_.count.replayed = 1;
    return c;
  }

  void finish() override {
    (out_.fitting.empty() ? out_.count.left : out_.count.slower) =
        static_cast<std::int64_t>(places_.size()) - looked_at_;
    reject(job_.space.unavailable);
    reject(job_.parallel.impossible);
    add_bounded();
  }

  // --- the first sieve --------------------------------------------------------------------------------------------

  const DepthLines* lines_of(const Choice& c, bool converted) { return lines_of(c, converted, 1, false); }

  const DepthLines* lines_of(const Choice& c, bool converted, std::int64_t tensor, bool sequence_parallel) {
    TrainingSetup s = c.setup;
    s.parallel = tensor_alone(c.setup.parallel, tensor, sequence_parallel);
    if (converted && s.precision != Precision::fp16) s.precision = Precision::bf16;
    const std::string key =
        fmt::format("{} {} {} {} {} {} {}", static_cast<int>(s.precision), fmt::join(s.checkpoint, ","),
                    fmt::join(s.checkpoint_save, ","), s.lora ? s.lora->rank : 0, s.lora && s.lora->quantized, tensor,
                    sequence_parallel);
    auto it = lines_.find(key);
    if (it == lines_.end()) {
      show("bounds: " + (c.flags.empty() ? std::string("as it is") : c.flags));
      it = lines_
               .emplace(key, catching([&] {
                          const auto depths = shallow_depths(job_.depth);
                          const std::int64_t low = depths.first, high = depths.second;
                          const DepthRuns runs{low > 0 ? low : 1, low > 0 ? high : 1, low > 0 ? job_.depth.blocks : 1,
                                               job_.space.open ? 1 : job_.batch, job_.space.open ? 2 : job_.batch};
                          return depth_lines(
                              runs,
                              [&](std::int64_t blocks, std::int64_t batch) {
                                TrainingSetup at = s;
                                if (job_.space.open) at.batch = batch;
                                return tapes_.of_rank(at, low > 0 ? blocks : 0);
                              },
                              s, device_);
                        }))
               .first;
    }
    return it->second ? &*it->second : nullptr;
  }

  /// Micro-batches of one shape take the same time wherever they are.
  const StepTime& share_of(const DepthLines& lines, const ParallelSetup& p, std::int64_t batch) {
    const std::uint64_t key =
        (static_cast<std::uint64_t>(p.tensor) << 40) | (static_cast<std::uint64_t>(p.context) << 50) |
        (static_cast<std::uint64_t>(p.sequence_parallel) << 60) | static_cast<std::uint64_t>(batch);
    auto& known = shares_[&lines];
    const auto it = known.find(key);
    return it != known.end()
               ? it->second
               : known.emplace(key, share_of_micro_batch(lines, p, batch, rates_, options_.time)).first->second;
  }

  void find_bounds() override {
    for (std::uint32_t c = 0; c < job_.choices.size(); ++c) {
      const Choice& choice = job_.choices[c];
      for (std::uint32_t o = 0; o < job_.parallel.options.size(); ++o) {
        const ParallelOption& option = job_.parallel.options[o];
        if (option.converts && choice.precision) continue;
        const auto batches = job_.batches_of(option);
        if (batches.empty()) continue;
        const DepthLines* lines = lines_of(choice, option.converts);
        if (!lines) continue;
        Place p;
        p.option = o, p.choice = c;
        const TrainingSetup setup = job_.setup_of(p);
        p.turned = choice.turned + (o > 0);
        for (const auto& [batch, count] : batches) {
          ++out_.count.setups;
          p.batch = batch, p.micro_batches = count;
          if (job_.is_home(p)) continue;
          p.bound = least_of_rank(*lines, setup, batch, count, device_);
          if (p.bound > limit()) {
            ++out_.count.bounded;
            if (p.turned == 1) note_bound(p);
            continue;
          }
          p.distance = choice.distance + (o > 0 ? static_cast<int>(Knob::parallel) + 1 : 0) +
                       (batch != job_.batch ? static_cast<int>(Knob::batch) + 1 : 0);
          const StepTime t =
              rank_step_time(*lines, setup, batch, count, share_of(*lines, option.setup, batch), rates_, options_.time);
          p.seconds = t.total() / static_cast<double>(batch * count * option.setup.data);
          places_.push_back(p);
        }
      }
    }
  }

  /// Of each way that turns one knob, the setup that needs least.
  void note_bound(const Place& p) {
    const auto key = std::make_pair(p.option, p.choice);
    const auto it = bounded_.find(key);
    if (it == bounded_.end() || p.bound < it->second.bound) bounded_[key] = p;
  }

  void add_bounded() {
    std::set<std::pair<std::uint32_t, std::uint32_t>> alive;
    for (const Place& p : places_) alive.insert({p.option, p.choice});
    std::vector<const Place*> all;
    for (const auto& [key, p] : bounded_)
      if (!alive.count(key)) all.push_back(&p);
    std::stable_sort(all.begin(), all.end(), [](const Place* a, const Place* b) { return a->bound < b->bound; });
    for (const Place* p : all) reject(job_.flags_of_place(*p), "needs more in every micro-batch size", p->bound, true);
  }

  // --- the second and third sieve ---------------------------------------------------------------------------------

  Candidate estimated(const Place& p, bool present = false) {
    Candidate c;
    c.setup = job_.setup_of(p);
    c.flags = job_.flags_of_place(p);
    c.cautions = cautions_at(job_.space, job_.choices[p.choice].point);
    const ParallelOption& o = job_.parallel.options[p.option];
    if (p.option > 0 && o.converts)
      c.cautions.push_back(o.setup.param_dtype
                               ? "products in bfloat16 (shards of weights stay fp32)"
                               : "products and gradients in bfloat16 (DeepSpeed keeps fp32 copies of the weights)");
    const Estimate e = unwrap(estimate_planned_tape(*tapes_.of_rank(c.setup, 0), c.setup, device_));
    judge_into(c, e);
    if (present) out_.estimate = e;
    // A rank's tape says its own share of the weights only.
    if (present) out_.parameters = parameters_of_model();
    c.changes = job_.choices[p.choice].turned + (p.option > 0) + (p.batch != job_.batch);
    c.samples = p.batch * p.micro_batches * o.setup.data;
    if (const DepthLines* lines = lines_of(job_.choices[p.choice], o.converts))
      c.time = rank_step_time(*lines, c.setup, p.batch, p.micro_batches, share_of(*lines, o.setup, p.batch), rates_,
                              options_.time);
    return c;
  }

  std::int64_t parameters_of_model() {
    TrainingSetup s = job_.present;
    s.parallel = ParallelSetup{};
    const Tape& tape = tapes_.whole(s);
    std::int64_t count = 0;
    for (ValueId id : tape.parameters) {
      const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
      if (v.same_storage_as.valid()) continue;
      std::int64_t n = 1;
      for (std::int64_t size : v.sizes) n *= size;
      count += n;
    }
    return count;
  }

  using Key = std::tuple<std::uint32_t, std::uint32_t, std::int64_t, std::int64_t>;
  static Key key_of(const Place& p) { return {p.option, p.choice, p.batch, p.micro_batches}; }

  /// Estimated when the forecast says that it may fit; none where it does not, and the reason is noted.
  const Candidate* fitting(const Place& p) {
    const auto known = known_.find(key_of(p));
    if (known != known_.end()) return known->second ? &*known->second : nullptr;
    ++looked_at_;
    std::optional<Candidate>& result = known_[key_of(p)];
    if (implied(p)) {
      ++out_.count.implied;
      return nullptr;
    }
    show(job_.flags_of_place(p));
    const TrainingSetup setup = job_.setup_of(p);
    if (is_refused(setup)) return nullptr;
    const DepthLines* cut = cut_lines_of(p);
    if (const Bytes least = cut ? least_of_rank(*cut, setup, p.batch, p.micro_batches, device_) : Bytes{};
        least > limit()) {
      ++out_.count.bounded;
      note_failure(p, "needs more by a bound from below", least, false, true);
      return nullptr;
    }
    ++forecasts_;
    const Result<Forecast> forecast =
        catching([&] { return forecast_of_rank(tapes_, setup, job_.depth, job_.blocks, crossing_of(p), device_); });
    if (!forecast) return refuse(setup, p, forecast.error().what), nullptr;
    if (forecast->process > limit()) {
      note_failure(p, "does not fit by an estimate with few blocks", forecast->process, forecast->in_optimizer);
      return nullptr;
    }
    ++out_.count.replayed;
    Result<Candidate> c = catching([&] { return estimated(p); });
    if (!c) return refuse(setup, p, c.error().what), nullptr;
    if (c->verdict != Verdict::fits) {
      note_failure(p, why_not(c->verdict), c->peak, false);
      return nullptr;
    }
    result = std::move(*c);
    estimates_.push_back(*result);
    return &*result;
  }

  /// Of the model as tensor parallelism really cuts it: not all of a block is divided among the ranks.
  const DepthLines* cut_lines_of(const Place& p) {
    const ParallelOption& o = job_.parallel.options[p.option];
    return lines_of(job_.choices[p.choice], o.converts, o.setup.tensor, o.setup.sequence_parallel);
  }

  Crossing crossing_of(const Place& p) {
    const ParallelSetup& s = job_.parallel.options[p.option].setup;
    const DepthLines* lines = cut_lines_of(p);
    if (!lines || s.pipeline < 2) return {};
    return {crossing_bytes(*lines, s, p.batch), lines->block.kept.at(p.batch) / static_cast<double>(s.context)};
  }

  /// What one setup of a kind is refused for holds for the others of its kind.
  static std::string sort_of(const TrainingSetup& s) {
    const ParallelSetup& p = s.parallel;
    return fmt::format("{} {} {} {} {} {} {} {} {} {}", static_cast<int>(p.sharding), p.shard_size > 0, p.tensor,
                       p.pipeline > 1, p.virtual_stages, p.context, p.expert, static_cast<int>(s.precision),
                       s.checkpoint.empty(), s.accumulate > 1);
  }

  bool is_refused(const TrainingSetup& s) const { return refused_.count(sort_of(s)) > 0; }

  void refuse(const TrainingSetup& s, const Place& p, const std::string& why) {
    if (refused_.insert(sort_of(s)).second) reject(job_.flags_of_place(p), why);
  }

  /// The same setup with a smaller micro-batch did not fit, whatever minor knobs were turned.
  bool implied(const Place& p) const {
    for (const auto& key :
         {std::make_pair(p.option, p.choice), std::make_pair(p.option, job_.choices[p.choice].major | any_minor)})
      if (const auto it = failed_.find(key); it != failed_.end() && p.batch >= it->second) return true;
    return false;
  }

  /// The implementation of the optimizer matters where its step is the highest point.
  void note_failure(const Place& p, const char* why, Bytes bytes, bool minor_matters, bool bound = false) {
    const auto key = std::make_pair(p.option, minor_matters ? p.choice : job_.choices[p.choice].major | any_minor);
    const auto [it, fresh] = failed_.emplace(key, p.batch);
    if (!fresh)
      it->second = std::min(it->second, p.batch);
    else
      reject(job_.flags_of_place(p), why, bytes, bound);
  }

  /// Of equal times the smaller change comes first.
  void find_fastest() override {
    std::vector<std::uint32_t> order(places_.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::vector<float> grade(places_.size());
    for (std::size_t i = 0; i < grade.size(); ++i) grade[i] = static_cast<float>(time_grade(places_[i].seconds, 1e-12));
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      if (grade[a] != grade[b]) return grade[a] < grade[b];
      const Place &x = places_[a], &y = places_[b];
      if (x.distance != y.distance) return x.distance < y.distance;
      return x.bound != y.bound ? x.bound < y.bound : a < b;
    });
    if (out_.present.verdict == Verdict::fits) out_.fitting.push_back(out_.present), taken_.push_back(job_.home());
    for (std::uint32_t i : order) {
      if (out_.fitting.size() >= options_.wanted || !budget_left(true)) break;
      if (needless(places_[i])) continue;
      if (const Candidate* c = fitting(places_[i])) out_.fitting.push_back(*c), taken_.push_back(places_[i]);
    }
  }

  /// The fastest ones were all too large: the ones that promise least memory, one of each kind of degrees, with as many
  /// forecasts again.
  void find_least() override {
    std::vector<const Place*> order;
    for (const Place& p : places_) order.push_back(&p);
    std::stable_sort(order.begin(), order.end(), [](const Place* a, const Place* b) {
      return a->bound != b->bound ? a->bound < b->bound : a->seconds < b->seconds;
    });
    std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t, Sharding>> tried;
    const std::int64_t most = forecasts_ + static_cast<std::int64_t>(options_.replays);
    for (const Place* p : order) {
      const ParallelSetup& s = job_.parallel.options[p->option].setup;
      if (!tried.insert({s.tensor, s.pipeline, s.context, s.sharding}).second) continue;
      if (const Candidate* c = fitting(*p)) {
        out_.fitting.push_back(*c), taken_.push_back(*p);
        return;
      }
      if (forecasts_ >= most) return;
    }
  }

  /// Replays of whole ranks are dear, forecasts cost a few blocks; a third of both is left for what comes after the
  /// fastest.
  bool budget_left(bool fastest) const {
    const auto most = static_cast<std::int64_t>(options_.replays);
    return fastest ? out_.count.replayed < most / 3 && forecasts_ < most
                   : out_.count.replayed < most / 2 && forecasts_ < most + most / 2;
  }

  /// The same degrees as one that was taken, or the same ways of data parallelism and knobs: no other idea.
  bool needless(const Place& p) const {
    const ParallelSetup& a = job_.parallel.options[p.option].setup;
    return std::any_of(taken_.begin(), taken_.end(), [&](const Place& t) {
      const ParallelSetup& b = job_.parallel.options[t.option].setup;
      const bool degrees =
          a.tensor == b.tensor && a.pipeline == b.pipeline && a.context == b.context && a.expert == b.expert;
      const bool sharding = a.sharding == b.sharding && a.shard_size == b.shard_size && a.param_dtype == b.param_dtype;
      return (degrees && (sharding || p.choice == t.choice)) ||
             (sharding && job_.choices[p.choice].major == job_.choices[t.choice].major && a.pipeline == b.pipeline &&
              a.context == b.context);
    });
  }

  /// Fewest and mildest changes; among equal ones the fastest.
  std::optional<Candidate> find_smallest() override {
    std::vector<const Place*> order;
    for (const Place& p : places_)
      if (p.turned + (p.batch != job_.batch) <= 2) order.push_back(&p);
    const auto less = [&](const Place* a, const Place* b) {
      const int x = a->turned + (a->batch != job_.batch), y = b->turned + (b->batch != job_.batch);
      if (x != y) return x < y;
      return a->distance != b->distance ? a->distance < b->distance : a->seconds < b->seconds;
    };
    std::stable_sort(order.begin(), order.end(), less);
    for (const Place* p : order) {
      if (!budget_left(false)) break;
      if (const Candidate* c = fitting(*p)) return *c;
    }
    // Not all could be looked at: the one that changes least of those that were estimated.
    const auto least =
        std::min_element(estimates_.begin(), estimates_.end(), [](const Candidate& a, const Candidate& b) {
          return a.changes != b.changes ? a.changes < b.changes : per_sample(a) < per_sample(b);
        });
    if (least == estimates_.end()) return std::nullopt;
    // Many flags are no small change, even the fewest that were found: they have to be worth something.
    const auto beats = [&](const Candidate& c) { return per_sample(c) < per_sample(*least) && c.peak <= least->peak; };
    return std::any_of(estimates_.begin(), estimates_.end(), beats) ? std::nullopt : std::optional(*least);
  }

  /// Besides, the one that promises least memory among those that take at most twice the time of the fastest.
  std::vector<Candidate> find_front() override {
    double longest = 1e300;
    for (const Candidate& c : out_.fitting) longest = std::min(longest, 2 * per_sample(c));
    const Place* least = nullptr;
    for (const Place& p : places_)
      if (p.seconds <= longest &&
          (!least || p.bound < least->bound || (p.bound == least->bound && p.seconds < least->seconds)))
        least = &p;
    if (least && budget_left(false)) fitting(*least);
    std::vector<Candidate> all = estimates_;
    if (out_.present.verdict == Verdict::fits) all.push_back(out_.present);
    return all;
  }

  Tapes tapes_;
  const JobSpace job_;
  std::int64_t looked_at_ = 0, forecasts_ = 0;
  static constexpr std::uint32_t any_minor = 1U << 31;
  std::map<std::string, Result<DepthLines>> lines_;
  std::map<const DepthLines*, std::unordered_map<std::uint64_t, StepTime>> shares_;
  std::vector<Place> places_, taken_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Place> bounded_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> failed_;
  std::map<Key, std::optional<Candidate>> known_;
  std::set<std::string> refused_;
  std::vector<Candidate> estimates_;
};

}  // namespace

Suggestion suggest_parallel(const Model& model, const TrainingSetup& present, const Device& device, Bytes margin,
                            const SuggestOptions& options) {
  return ParallelSearch(model, present, device, margin, options).run();
}

}  // namespace memplan
