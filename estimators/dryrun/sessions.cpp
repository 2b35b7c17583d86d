#include "estimators/dryrun/sessions.h"

#include <algorithm>
#include <unordered_map>

#include "estimators/onnxruntime/sessions.h"

namespace memplan {

namespace {

constexpr Bytes no_limit{std::int64_t{1} << 40};  // the emulated GPU has addresses for twice as much

std::vector<SessionInput> inputs_of(const Tape& tape) {
  std::vector<SessionInput> out;
  for (const ValueId id : tape.inputs) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    out.push_back({v.name, std::string(name_of(v.dtype)), v.sizes});
  }
  return out;
}

/// Most bytes held in each phase; what is freed twice or was never taken changes nothing.
std::vector<Bytes> peaks_of(const SessionLog& log) {
  std::unordered_map<std::uint64_t, std::int64_t> held;
  std::vector<Bytes> peaks;
  Bytes now;
  for (const auto& phase : log.phases) {
    Bytes& peak = peaks.emplace_back(now);
    for (const DriverRequest& r : phase) {
      const auto known = held.find(r.address);
      if (known != held.end()) {
        now = now - Bytes(known->second);
        held.erase(known);
      }
      if (r.gives_back) continue;
      held[r.address] = r.bytes;
      now += Bytes(r.bytes);
      peak = std::max(peak, now);
    }
  }
  return peaks;
}

void add_events(const SessionLog& log, Measurement& m) {
  for (std::size_t step = 0; step < log.phases.size(); ++step) {
    MeasuredOp op;
    op.step = static_cast<std::int64_t>(step);
    m.ops.push_back(op);
    for (const DriverRequest& r : log.phases[step])
      m.events.push_back({r.gives_back ? MeasuredEvent::Kind::free : MeasuredEvent::Kind::alloc, r.bytes, r.address,
                          static_cast<std::int32_t>(step)});
  }
}

}  // namespace

Measurement measure_sessions(const std::string& slim, const Tape& tape, const TrainingSetup& setup,
                             const DryRunPlace& place, const std::string& python) {
  SessionPlace where;
  where.python = python;
  where.time_limit = place.time_limit;
  Device unlimited = place.card;
  unlimited.total = no_limit;
  where.card = emulated_environment(place.card);
  where.unlimited = emulated_environment(unlimited);
  const SessionLogs logs = run_sessions(slim, inputs_of(tape), setup.ort, setup.steps, where);
  Measurement m;
  m.program = "ONNX Runtime";
  m.step_word = "run";
  m.device = place.card.name.empty() ? place.card.key : place.card.name;
  m.source = "onnxruntime-gpu " + logs.requests.version + " on an emulated " + m.device;
  m.out_of_memory = logs.arena.out_of_memory;
  add_events(logs.requests, m);
  const std::vector<Bytes> requested = peaks_of(logs.requests), reserved = peaks_of(logs.arena);
  Bytes most_requested, most_reserved;
  for (std::size_t step = 0; step < requested.size(); ++step) {
    MeasuredStep s;
    s.step = static_cast<std::int64_t>(step);
    s.peak.requested = requested[step];
    most_requested = std::max(most_requested, requested[step]);
    if (step < reserved.size()) s.peak.reserved = reserved[step];
    m.steps.push_back(s);
  }
  for (std::size_t step = 0; step < reserved.size(); ++step) {
    most_reserved = std::max(most_reserved, reserved[step]);
    for (const DriverRequest& r : logs.arena.phases[step])
      if (!r.gives_back) m.regions.push_back({r.bytes, static_cast<std::int64_t>(step)});
  }
  m.peak.requested = most_requested;
  m.peak.reserved = most_reserved;
  m.notes.push_back("weights are compared in the order in which this session loaded them; another process has another");
  return m;
}

}  // namespace memplan
