#include "estimators/measured/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "estimators/measured/streams.h"

namespace memplan {

namespace {

using Key = std::pair<std::int64_t, std::string>;  // step and phase

void add_counters(std::vector<ComparedCounter>& out, const Sample& predicted, const MeasuredCounters& m) {
  if (m.requested) out.push_back({"requested", Bytes(predicted.requested), *m.requested});
  if (m.allocated) out.push_back({"allocated", Bytes(predicted.allocated), *m.allocated});
  if (m.reserved) out.push_back({"reserved", Bytes(predicted.reserved), *m.reserved});
}

void raise(Sample& peak, const Sample& level) {
  peak.requested = std::max(peak.requested, level.requested);
  peak.allocated = std::max(peak.allocated, level.allocated);
  peak.reserved = std::max(peak.reserved, level.reserved);
}

/// Peaks of every step and phase, as reset_peak_memory_stats at their begin would give them.
std::map<Key, Sample> peaks_by_phase(const Schedule& s, const Timeline& t) {
  std::map<Key, Sample> peaks;
  Sample level;
  std::size_t op = 0;
  const OpRecord* before = nullptr;
  for (std::size_t i = 0; i < std::min(s.events.size(), t.samples.size()); ++i) {
    while (op + 1 < s.ops.size() && static_cast<std::size_t>(s.ops[op + 1].first_event) <= i) ++op;
    if (s.ops.empty()) break;
    const OpRecord& o = s.ops[op];
    Sample& peak = peaks[{o.step, name_of(o.phase)}];
    if (!before || before->step != o.step || before->phase != o.phase) raise(peak, level);
    before = &o;
    level = t.samples[i];
    raise(peak, level);
  }
  return peaks;
}

void merge(MeasuredCounters& into, const MeasuredCounters& more) {
  const auto larger = [](std::optional<Bytes>& a, const std::optional<Bytes>& b) {
    if (b && (!a || *a < *b)) a = b;
  };
  larger(into.requested, more.requested);
  larger(into.allocated, more.allocated);
  larger(into.reserved, more.reserved);
}

class Comparer {
 public:
  Comparer(const Tape& tape, const Schedule& s, const Timeline& t, const Estimate& e, const Measurement& m)
      : tape_(tape), s_(s), t_(t), e_(e), m_(m) {}

  Comparison run() {
    peaks();
    by_step();
    by_phase();
    if (!m_.events.empty()) by_event();
    return std::move(c_);
  }

 private:
  void peaks() {
    const auto add = [&](const char* name, const std::optional<Bytes>& measured, Bytes predicted) {
      if (measured) c_.peak.push_back({name, predicted, *measured});
    };
    add("requested", m_.peak.requested, e_.peak.requested);
    add("allocated", m_.peak.allocated, e_.peak.allocated);
    add("reserved", m_.peak.reserved, e_.peak.reserved);
    add("process", m_.peak.process, e_.peak.process);
  }

  void by_step() {
    for (const MeasuredStep& step : m_.steps) {
      const auto it =
          std::find_if(e_.steps.begin(), e_.steps.end(), [&](const StepSummary& s) { return s.step == step.step; });
      if (it == e_.steps.end()) continue;
      ComparedPhase row{step.step, {}, {}};
      add_counters(row.counters, {it->peak.requested.count, it->peak.allocated.count, it->peak.reserved.count},
                   step.peak);
      c_.steps.push_back(std::move(row));
    }
  }

  void by_phase() {
    const auto predicted = peaks_by_phase(s_, t_);
    std::map<Key, MeasuredCounters> measured;
    std::vector<Key> order;
    for (const MeasuredPhase& p : m_.phases) {
      const Key key{p.step, p.phase};
      if (!measured.count(key)) order.push_back(key);
      merge(measured[key], p.peak);
    }
    for (const Key& key : order) {
      const auto it = predicted.find(key);
      if (it == predicted.end()) continue;  // no event on paper: nothing but the level of the phase before it
      ComparedPhase row{key.first, key.second, {}};
      add_counters(row.counters, it->second, measured[key]);
      c_.phases.push_back(std::move(row));
    }
  }

  void by_event() {
    const std::vector<Life> predicted = lives_of(s_), measured = lives_of(m_);
    const std::vector<std::int32_t> partner = partners(predicted, measured);
    c_.events_compared = true;
    c_.predicted_allocations = static_cast<std::int64_t>(predicted.size());
    c_.measured_allocations = static_cast<std::int64_t>(measured.size());
    for (std::size_t j = 0; j < measured.size(); ++j)
      c_.equal_allocations +=
          partner[j] >= 0 && predicted[static_cast<std::size_t>(partner[j])].bytes == measured[j].bytes;
    categories(predicted, measured, partner);
    first_difference(predicted, measured, partner);
  }

  void categories(const std::vector<Life>& predicted, const std::vector<Life>& measured,
                  const std::vector<std::int32_t>& partner) {
    std::map<std::string, std::pair<std::int64_t, std::int64_t>> bytes;
    const auto category = [&](const Life& p) -> std::string {
      return name_of(s_.allocations[static_cast<std::size_t>(p.id)].category);
    };
    for (std::int32_t i : alive_at_peak(predicted))
      bytes[category(predicted[static_cast<std::size_t>(i)])].first += predicted[static_cast<std::size_t>(i)].bytes;
    for (std::int32_t j : alive_at_peak(measured)) {
      const std::int32_t p = partner[static_cast<std::size_t>(j)];
      bytes[p < 0 ? "not predicted" : category(predicted[static_cast<std::size_t>(p)])].second +=
          measured[static_cast<std::size_t>(j)].bytes;
    }
    for (const auto& [name, pair] : bytes) c_.categories.push_back({name, Bytes(pair.first), Bytes(pair.second)});
    std::stable_sort(c_.categories.begin(), c_.categories.end(),
                     [](const auto& a, const auto& b) { return a.measured > b.measured; });
  }

  std::string name_of_predicted(std::int32_t op) const {
    if (op < 0 || s_.ops[static_cast<std::size_t>(op)].name < 0) return {};
    return s_.names[static_cast<std::size_t>(s_.ops[static_cast<std::size_t>(op)].name)];
  }
  std::string name_of_measured(std::int32_t op) const {
    if (op < 0) return {};
    const MeasuredOp& o = m_.ops[static_cast<std::size_t>(op)];
    std::string text = o.name < 0 ? std::string() : m_.names[static_cast<std::size_t>(o.name)];
    if (o.node >= 0) text += (text.empty() ? "" : " of ") + m_.names[static_cast<std::size_t>(o.node)];
    return text;
  }
  std::string label(const Life& p) const {
    const std::int32_t label = s_.allocations[static_cast<std::size_t>(p.id)].label;
    return label < 0 ? std::string("a tensor") : s_.names[static_cast<std::size_t>(label)];
  }

  /// Step, phase, module and line of source, from whichever side knows them.
  void locate(Divergence& d, std::int32_t predicted_op, std::int32_t measured_op) const {
    d.predicted_op = name_of_predicted(predicted_op);
    d.measured_op = name_of_measured(measured_op);
    std::int32_t call = -1, scope = -1;
    if (measured_op >= 0) {
      const MeasuredOp& o = m_.ops[static_cast<std::size_t>(measured_op)];
      d.step = o.step;
      if (o.phase >= 0) d.phase = m_.names[static_cast<std::size_t>(o.phase)];
      call = o.call;
    } else if (predicted_op >= 0) {
      const OpRecord& o = s_.ops[static_cast<std::size_t>(predicted_op)];
      d.step = o.step;
      d.phase = name_of(o.phase);
      call = o.call;
      scope = o.scope;
    }
    if (call >= 0 && static_cast<std::size_t>(call) < tape_.calls.size()) {
      scope = tape_.calls[static_cast<std::size_t>(call)].scope;
      d.source = tape_.calls[static_cast<std::size_t>(call)].source;
    }
    if (scope >= 0) d.module = tape_.scopes[static_cast<std::size_t>(scope)].path;
  }

  void first_difference(const std::vector<Life>& predicted, const std::vector<Life>& measured,
                        const std::vector<std::int32_t>& partner) {
    // Up to the first pair that is not equal, both number their allocations alike.
    std::size_t equal = 0;
    while (equal < predicted.size() && equal < measured.size() && partner[equal] == static_cast<std::int32_t>(equal) &&
           predicted[equal].bytes == measured[equal].bytes)
      ++equal;
    const auto death = [&](const Life& l) { return l.died_before < 0 ? INT64_MAX : l.died_before; };
    std::int64_t earliest = static_cast<std::int64_t>(equal);
    std::size_t other_death = equal;
    for (std::size_t i = 0; i < equal; ++i) {
      if (death(predicted[i]) == death(measured[i])) continue;
      const std::int64_t at = std::min(death(predicted[i]), death(measured[i]));
      // Beyond the last equal allocation there is nothing to tell it by, and runs may end with more or fewer names
      // bound.
      if (at >= static_cast<std::int64_t>(equal)) continue;
      if (other_death == equal || at < earliest) other_death = i, earliest = at;
    }
    if (other_death < equal) return freed_apart(predicted[other_death], measured[other_death], earliest);
    if (equal == predicted.size() && equal == measured.size()) return;
    Divergence d;
    d.allocation = static_cast<std::int64_t>(equal);
    const Life* p = equal < predicted.size() ? &predicted[equal] : nullptr;
    const Life* m = equal < measured.size() ? &measured[equal] : nullptr;
    const bool measured_alone = m && (partner[equal] != static_cast<std::int32_t>(equal)) &&
                                (!p || std::find(partner.begin() + static_cast<std::ptrdiff_t>(equal), partner.end(),
                                                 static_cast<std::int32_t>(equal)) != partner.end());
    const bool predicted_alone = p && !measured_alone && (!m || partner[equal] != static_cast<std::int32_t>(equal));
    if (predicted_alone) m = nullptr;
    if (measured_alone) p = nullptr;
    if (p) d.predicted = Bytes(p->bytes);
    if (m) d.measured = Bytes(m->bytes);
    locate(d, p ? p->born_op : -1, m ? m->born_op : -1);
    d.kind = p && m ? "size" : p ? "only predicted" : "only measured";
    const std::string op = p ? d.predicted_op : d.measured_op;
    d.text = p && m ? fmt::format("{}: {} B predicted, {} B measured", label(*p), p->bytes, m->bytes)
             : p    ? fmt::format("{}: {} B predicted that {} does not ask for", label(*p), p->bytes, m_.program)
                    : fmt::format("{} asks for {} B that are not predicted", m_.program, m->bytes);
    if (!op.empty()) d.text += " (" + op + ")";
    c_.divergence = std::move(d);
  }

  void freed_apart(const Life& p, const Life& m, std::int64_t at) {
    Divergence d;
    d.allocation = at;
    const bool later = m.died_before < 0 || (p.died_before >= 0 && m.died_before > p.died_before);
    d.kind = later ? "freed later" : "freed earlier";
    d.predicted = d.measured = Bytes(p.bytes);
    locate(d, p.died_op, m.died_op);
    d.text = fmt::format("{}, {} B: {} frees it {} than predicted", label(p), p.bytes, m_.program,
                         later ? "later" : "earlier");
    c_.divergence = std::move(d);
  }

  const Tape& tape_;
  const Schedule& s_;
  const Timeline& t_;
  const Estimate& e_;
  const Measurement& m_;
  Comparison c_;
};

}  // namespace

double ComparedCounter::relative() const {
  if (measured.count == 0) return predicted.count == 0 ? 0 : INFINITY;
  return static_cast<double>(predicted.count - measured.count) / static_cast<double>(measured.count);
}

const ComparedCounter* Comparison::worst() const {
  const auto it = std::max_element(peak.begin(), peak.end(), [](const auto& a, const auto& b) {
    return std::abs(a.relative()) < std::abs(b.relative());
  });
  return it == peak.end() ? nullptr : &*it;
}

Comparison compare(const Tape& tape, const Schedule& schedule, const Timeline& timeline, const Estimate& estimate,
                   const Measurement& measured) {
  return Comparer(tape, schedule, timeline, estimate, measured).run();
}

}  // namespace memplan
