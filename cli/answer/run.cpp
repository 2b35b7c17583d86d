#include "cli/answer/run.h"

#include <algorithm>

#include "cli/answer/answer.h"
#include "estimators/runtime/runtime.h"

namespace memplan::cli {

RunRecord run_of(const Tape& tape, const TrainingSetup& setup, const Device& device, const Estimate& estimate) {
  RunRecord run;
  run.scopes = tape.scopes;
  run.context = runtime_of(setup).outside(setup, device);
  run.schedule = unwrap(run_steps(tape, setup, device));
  // Retries are what a limit leaves in an estimate that is not out of memory.
  run.limited = !estimate.out_of_memory && (estimate.retries > 0 || setup.allocator.memory_fraction < 1.0 ||
                                            setup.allocator.garbage_collection_threshold > 0);
  Device replayed_on = device;
  // Large enough for anything, and small enough that addresses stay exact numbers in the languages of viewers.
  if (!run.limited) replayed_on.total = std::max(Bytes::gib(4096), Bytes(estimate.peak.process.count * 2));
  run.timeline = unwrap(replay(run.schedule, setup, replayed_on));
  std::int64_t most = -1;
  for (std::size_t i = 0; i < run.timeline.samples.size(); ++i)
    if (run.timeline.samples[i].allocated > most) {
      most = run.timeline.samples[i].allocated;
      run.peak_event = static_cast<std::int32_t>(i);
    }
  run.map = unwrap(map_memory(run.schedule, setup, replayed_on, run.peak_event));
  return run;
}

void add_surroundings(RunRecord& run, const Model& model, const Tape& tape, const TrainingSetup& setup,
                      const Device& device, const MarginOf& margin, bool change, std::size_t ranks) {
  constexpr std::size_t long_run = 80000;  // events: each size and each card is an estimate as long
  constexpr std::size_t medium_run = 10000;
  constexpr std::size_t plan = 8;  // what planning checkpoints costs, in estimates
  const bool planned = setup.checkpoint_optimal && setup.mode == Mode::training;
  const std::size_t events = run.schedule.events.size() * ranks * (planned ? plan : 1);
  const bool longish = events > long_run, medium = events > medium_run;
  run.curves = scale(model, tape.dims, setup, device, margin(device), longish ? 3 : medium ? 5 : 9);
  if (longish) return;
  run.cards = every_card(tape, setup, margin);
  if (!change || setup.mode != Mode::training) return;
  SuggestOptions search;
  search.replays = medium ? 6 : 12;
  // A model that the search cannot take in leaves the report without its suggestions, not without an answer.
  const Result<Suggestion> found = catching([&] { return suggest(model, setup, device, margin, search); });
  if (!found) return;
  run.suggestion = *found;
  const auto keep_parts = [&](const Candidate& c) { run.parts.emplace(c.flags, parts_of(model, c.setup, device)); };
  for (const Candidate& c : found->fitting) keep_parts(c);
  if (found->smallest) keep_parts(*found->smallest);
}

}  // namespace memplan::cli
