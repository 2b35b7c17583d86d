// From events and bytes to an answer: peaks, the parts that add up to the highest one, and what is alive there.
#include "estimators/estimate/summarize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "estimators/estimate/basis.h"
#include "estimators/estimate/grounds.h"
#include "estimators/estimate/range.h"
#include "estimators/estimate/reasons.h"
#include "estimators/pipeline.h"
#include "estimators/runtime/runtime.h"

namespace memplan {

namespace {

class Summary {
 public:
  Summary(const Tape& tape, const Schedule& s, const Timeline& t, Bytes context, Bytes communication,
          const Conclusions& conclusions)
      : tape_(tape),
        s_(s),
        t_(t),
        context_(context),
        communication_(communication),
        conclusions_(conclusions),
        count_(std::min(s.events.size(), t.samples.size())) {}

  Estimate run() {
    walk();
    locate();
    parts();
    live();
    return std::move(e_);
  }

 private:
  std::string name(std::int32_t id) const { return id < 0 ? std::string() : s_.names[id]; }

  std::string module_of(std::int32_t op) const {
    if (op < 0 || s_.ops[op].scope < 0) return {};
    return tape_.scopes[s_.ops[op].scope].path;
  }

  /// The op whose events contain event `at`: the last one that begins at or before it.
  std::int32_t op_at(std::int32_t at) const {
    auto it = std::upper_bound(s_.ops.begin(), s_.ops.end(), at,
                               [](std::int32_t e, const OpRecord& o) { return e < o.first_event; });
    return static_cast<std::int32_t>(it - s_.ops.begin()) - 1;
  }

  Bytes process(std::int64_t reserved) const { return context_ + communication_ + Bytes(reserved); }

  /// Peaks of every step and phase, and the event at which most is allocated. A step's peak counts the level at
  /// its start too, as torch.cuda.reset_peak_memory_stats does.
  void walk() {
    std::array<Sample, 16> phase_peak{};
    std::array<bool, 16> phase_seen{};
    Sample level, peak;
    std::size_t op = 0, next_step = 0;
    std::int64_t step = 0, best = -1;
    auto close_step = [&] {
      StepSummary sum;
      sum.step = step;
      sum.peak = {Bytes(peak.requested), Bytes(peak.allocated), Bytes(peak.reserved), process(peak.reserved)};
      sum.allocated_after = Bytes(level.allocated);
      sum.requested_after = Bytes(level.requested);
      e_.steps.push_back(sum);
    };
    for (std::size_t i = 0; i < count_; ++i) {
      while (next_step < s_.step_begins.size() && static_cast<std::size_t>(s_.step_begins[next_step]) <= i) {
        close_step();
        peak = level;
        ++step;
        ++next_step;
      }
      level = t_.samples[i];
      raise(peak, level);
      while (op + 1 < s_.ops.size() && static_cast<std::size_t>(s_.ops[op + 1].first_event) <= i) ++op;
      if (!s_.ops.empty()) {
        const auto phase = static_cast<std::size_t>(s_.ops[op].phase);
        raise(phase_peak[phase], level);
        phase_seen[phase] = true;
      }
      if (level.allocated > best) {
        best = level.allocated;
        peak_event_ = static_cast<std::int32_t>(i);
        e_.peak_step = step;
      }
    }
    close_step();
    for (std::size_t p = 0; p < phase_seen.size(); ++p)
      if (phase_seen[p])
        e_.phases.push_back({static_cast<Phase>(p), Bytes(phase_peak[p].requested), Bytes(phase_peak[p].allocated),
                             Bytes(phase_peak[p].reserved)});
    for (const StepSummary& sum : e_.steps) {
      e_.peak.requested = std::max(e_.peak.requested, sum.peak.requested);
      e_.peak.allocated = std::max(e_.peak.allocated, sum.peak.allocated);
      e_.peak.reserved = std::max(e_.peak.reserved, sum.peak.reserved);
      e_.peak.process = std::max(e_.peak.process, sum.peak.process);
    }
    e_.unlimited_process = e_.peak.process;
  }

  static void raise(Sample& peak, const Sample& level) {
    peak.requested = std::max(peak.requested, level.requested);
    peak.allocated = std::max(peak.allocated, level.allocated);
    peak.reserved = std::max(peak.reserved, level.reserved);
  }

  void locate() {
    if (peak_event_ < 0) return;
    const std::int32_t op = op_at(peak_event_);
    if (op < 0) return;
    e_.peak_phase = s_.ops[op].phase;
    e_.peak_op = name(s_.ops[op].name);
    e_.peak_module = module_of(op);
  }

  bool alive_at_peak(const Allocation& a) const {
    return a.born >= 0 && a.born <= peak_event_ && (a.died < 0 || a.died > peak_event_);
  }

  /// Requested bytes by category, then what the allocator adds, then the context: together peak.process.
  void parts() {
    std::array<Bytes, category_count> by_category{};
    Bytes requested;
    for (const Allocation& a : s_.allocations)
      if (alive_at_peak(a)) {
        by_category[static_cast<std::size_t>(a.category)] += a.size;
        requested += a.size;
      }
    const auto add = [&](Part part, Bytes bytes) { e_.parts.push_back({part, bytes, conclusions_.of(part)}); };
    for (int c = 0; c < category_count; ++c)
      if (by_category[c].count != 0) add(part_of(static_cast<Category>(c)), by_category[c]);
    const Bytes allocated = peak_event_ < 0 ? Bytes() : Bytes(t_.samples[peak_event_].allocated);
    add(Part::rounding, allocated - requested);
    add(Part::cached, e_.peak.reserved - allocated);
    add(Part::context, context_);
    if (communication_.count != 0) add(Part::nccl, communication_);
  }

  void live() {
    std::vector<std::int32_t> alive;
    for (std::size_t i = 0; i < s_.allocations.size(); ++i)
      if (alive_at_peak(s_.allocations[i])) alive.push_back(static_cast<std::int32_t>(i));
    // By size, the older one first among equals, so that the same run always prints the same.
    std::sort(alive.begin(), alive.end(), [&](std::int32_t a, std::int32_t b) {
      const auto &x = s_.allocations[a], &y = s_.allocations[b];
      return x.size != y.size ? x.size > y.size : x.born < y.born;
    });
    e_.live_at_peak.reserve(alive.size());
    for (std::int32_t id : alive) {
      const Allocation& a = s_.allocations[id];
      LiveTensor tensor;
      tensor.op = a.op < 0 ? std::string() : name(s_.ops[a.op].name);
      tensor.name = a.label >= 0 ? name(a.label) : tensor.op;
      if (a.shape_at >= 0) {
        tensor.sizes = s_.shapes[a.shape_at].sizes;
        tensor.dtype = std::string(name_of(static_cast<DType>(s_.shapes[a.shape_at].dtype)));
      }
      tensor.requested = a.size;
      tensor.block = static_cast<std::size_t>(id) < t_.block_bytes.size() ? Bytes(t_.block_bytes[id]) : a.size;
      tensor.category = a.category;
      tensor.module = module_of(a.op);
      tensor.reason = a.reason >= 0 ? name(a.reason) : default_reason(a.category);
      tensor.born_op = a.op;
      tensor.dies_op = a.died < 0 ? -1 : op_at(a.died);
      e_.live_at_peak.push_back(std::move(tensor));
    }
  }

  const Tape& tape_;
  const Schedule& s_;
  const Timeline& t_;
  const Bytes context_, communication_;  ///< of the process, beside what its allocator holds
  const Conclusions& conclusions_;
  std::size_t count_;
  std::int32_t peak_event_ = -1;
  Estimate e_;
};

void count_parameters(const Tape& tape, Estimate& e) {
  for (ValueId id : tape.parameters) {
    const TapeValue& v = tape.values[id.index];
    if (v.same_storage_as.valid()) continue;
    std::int64_t n = 1;
    for (std::int64_t s : v.sizes) n = checked_mul(n, s);
    e.parameter_count = checked_add(e.parameter_count, n);
    if (v.requires_grad) e.trainable_count = checked_add(e.trainable_count, n);
  }
}

}  // namespace

Result<Estimate> summarize(const Tape& tape, const Schedule& schedule, const Timeline& timeline,
                           const TrainingSetup& setup, const Device& device) {
  return summarize(tape, schedule, timeline, setup, device, Bytes());
}

Result<Estimate> summarize(const Tape& tape, const Schedule& schedule, const Timeline& timeline,
                           const TrainingSetup& setup, const Device& device, Bytes communication) {
  return catching([&] {
    Notes facts = grounds_of(tape, schedule, setup, device, communication);
    Conclusions conclusions = conclude(facts);
    const Bytes context = runtime_of(setup).outside(setup, device);
    Estimate e = Summary(tape, schedule, timeline, context, communication, conclusions).run();
    count_parameters(tape, e);
    e.facts = std::move(facts);
    e.assumptions = std::move(conclusions.assumptions);
    e.unmodelled = std::move(conclusions.unmodelled);
    e.notes = std::move(conclusions.warnings);
    conclude_range(e, on_card({}, device));
    e.recovered = tape.recovered;
    e.retries = timeline.retries;
    if (timeline.out_of_memory_event) {
      const std::int32_t event = *timeline.out_of_memory_event;
      e.out_of_memory = true;
      const Event& failed = schedule.events[event];
      const Allocation& a = schedule.allocations[failed.allocation];
      const OpRecord* op = a.op < 0 ? nullptr : &schedule.ops[a.op];
      e.out_of_memory_at = fmt::format("a request of {}", to_human(Bytes(timeline.out_of_memory_request)));
      if (op) {
        e.out_of_memory_at += fmt::format(" in {}", name_of(op->phase));
        if (op->name >= 0) e.out_of_memory_at += " by " + schedule.names[op->name];
        if (op->scope >= 0 && !tape.scopes[op->scope].path.empty())
          e.out_of_memory_at += " in " + tape.scopes[op->scope].path;
        e.out_of_memory_at += fmt::format(", step {}", op->step);
      }
    }
    return e;
  });
}

}  // namespace memplan
