#include "estimators/measured/recorded.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/base/error.h"
#include "estimators/facts/device.h"
#include "estimators/frontends/recording/setups.h"
#include "estimators/frontends/recording/steps.h"
#include "estimators/schedule/schedule.h"
#include "estimators/setup/field.h"

namespace memplan {

namespace {

MeasuredCounters counters(const std::array<std::int64_t, 3>& peaks) {
  MeasuredCounters c;
  c.requested = Bytes(peaks[0]);
  c.allocated = Bytes(peaks[1]);
  c.reserved = Bytes(peaks[2]);
  return c;
}

void add_counters(const recording::Program& p, std::int64_t batch, Measurement& m) {
  const auto at = static_cast<std::size_t>(std::find(p.batches.begin(), p.batches.end(), batch) - p.batches.begin());
  if (at >= p.peaks.size()) return;
  std::array<std::int64_t, 3> most{};
  for (std::size_t step = 0; step < p.peaks[at].size(); ++step) {
    const auto& peaks = p.peaks[at][step];
    m.steps.push_back({static_cast<std::int64_t>(step), counters(peaks), {}});
    for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], peaks[i]);
  }
  m.peak = counters(most);
}

void add_events(const Schedule& s, Measurement& m) {
  m.names = s.names;
  for (const OpRecord& op : s.ops) {
    const auto phase = static_cast<std::int32_t>(m.names.size());
    m.names.emplace_back(name_of(op.phase));
    m.ops.push_back({op.name, -1, -1, phase, op.step});
  }
  for (const Event& e : s.events) {
    const bool made = e.kind == Event::Kind::alloc;
    if (!made && e.kind != Event::Kind::free) continue;
    const Allocation& a = s.allocations[static_cast<std::size_t>(e.allocation)];
    m.events.push_back({made ? MeasuredEvent::Kind::alloc : MeasuredEvent::Kind::free, a.size.count,
                        static_cast<std::uint64_t>(e.allocation) + 1, made ? a.op : -1});
  }
}

}  // namespace

Measurement measurement_from_recording(const Model& model, const TrainingSetup& setup, std::int64_t batch) {
  const recording::Recording& recording = *model.recorded;
  const auto run = recording::exact_run(recording, setup);
  const recording::Program* program = nullptr;
  if (run)
    for (const recording::Program& p : recording.runs[*run].programs)
      if (std::find(p.batches.begin(), p.batches.end(), batch) != p.batches.end()) program = &p;
  if (!program)
    fail(ErrorKind::usage, "the recording has no run of this setup at this batch", model.path,
         "record the module with the setup and the batch that are estimated");
  Measurement m;
  const Device device = choose_device(recording.gpu).device;
  m.device = device.name;
  m.source = fmt::format("PyTorch {} on the {} ({})", recording.torch, recording.evidence, recording.gpu);
  add_counters(*program, batch, m);
  add_events(recording::schedule_of({model.recorded, *run, batch}, setup, device), m);
  return m;
}

}  // namespace memplan
