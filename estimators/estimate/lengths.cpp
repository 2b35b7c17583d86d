#include "estimators/estimate/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "estimators/base/threads.h"
#include "estimators/base/unwrap.h"
#include "estimators/runtime/runtime.h"
#include "estimators/schedule/mixed_steps.h"

namespace memplan {

namespace {

constexpr std::size_t lengths_tried = 8, orders_tried = 16, steps_of_an_order = 12;

/// From the shortest to the longest, evenly.
std::vector<Schedule> schedules_of(const Model& model, const Tape& tape, const TrainingSetup& setup,
                                   const Device& device) {
  const std::int64_t shortest = *setup.shortest_sequence, longest = *setup.sequence;
  std::vector<Schedule> out(lengths_tried);
  in_parallel(lengths_tried, [&](std::size_t i) {
    TrainingSetup s = setup;
    const auto part = static_cast<std::int64_t>(i), parts = static_cast<std::int64_t>(lengths_tried) - 1;
    s.sequence = shortest + (longest - shortest) * part / parts;
    const Ranks ranks = resolve(s.parallel);
    s.parallel = ranks;
    const Tape read = *s.sequence == longest ? tape : unwrap(tape_of(model, s, tape.reading));
    out[i] = runtime_of(s).schedule(read, s, ranks, device);
  });
  return out;
}

/// The longest comes in the middle: after shorter ones, and before some. The others are drawn.
std::vector<const Schedule*> drawn_order(const std::vector<Schedule>& schedules, std::uint32_t seed) {
  std::vector<const Schedule*> order;
  std::uint64_t state = seed;
  for (std::size_t step = 0; step < steps_of_an_order; ++step) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    order.push_back(step == steps_of_an_order / 2 ? &schedules.back() : &schedules[(state >> 33) % schedules.size()]);
  }
  return order;
}

}  // namespace

std::optional<RangeSource> batches_of_other_lengths(const Model& model, const Tape& tape, const TrainingSetup& setup,
                                                    const Device& device, const Estimate& e) {
  if (!setup.shortest_sequence || !setup.sequence || tape.graph) return std::nullopt;
  const std::vector<Schedule> schedules = schedules_of(model, tape, setup, device);
  std::array<Counters, orders_tried> peaks{};
  std::array<bool, orders_tried> known{};
  in_parallel(orders_tried, [&](std::size_t i) {
    const auto mixed = mixed_steps(drawn_order(schedules, static_cast<std::uint32_t>(i) + 1));
    if (!mixed) return;
    known[i] = true;
    TrainingSetup s = setup;
    s.allocator.falling_addresses = i % 2 != 0;
    const Timeline timeline = unwrap(replay_unlimited(*mixed, s, device));
    for (const Sample& at : timeline.samples) {
      peaks[i].allocated = std::max(peaks[i].allocated, Bytes(at.allocated));
      peaks[i].reserved = std::max(peaks[i].reserved, Bytes(at.reserved));
    }
  });
  if (std::find(known.begin(), known.end(), true) == known.end())
    fail_input("what lives from one batch into the next is not the same at every length", {},
               fmt::format("leave out {}", setting(Field::shortest_sequence)));
  RangeSource s{About::allocator,
                fmt::format("batches of {} to {} tokens leave blocks of other sizes ({} orders were tried)",
                            *setup.shortest_sequence, *setup.sequence, orders_tried),
                {},
                {}};
  for (const Counters& peak : peaks) {
    s.above.allocated = std::max(s.above.allocated, peak.allocated - e.peak.allocated);
    s.above.reserved = std::max(s.above.reserved, peak.reserved - e.peak.reserved);
  }
  s.above.process = s.above.reserved;
  return s;
}

}  // namespace memplan
