#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "estimators/base/threads.h"
#include "estimators/base/unwrap.h"
#include "estimators/estimate/range.h"
#include "estimators/estimate/summarize.h"
#include "estimators/pipeline.h"
#include "estimators/runtime/runtime.h"
#include "estimators/transforms/parallel.h"
#include "estimators/transforms/pipeline_parallel.h"

namespace memplan {

namespace {

/// `nccl`: what it takes on the card beside the context.
Estimate estimate_schedule(const Tape& tape, const Schedule& schedule, const TrainingSetup& setup, const Device& device,
                           Bytes nccl) {
  Device left = device;  // as the allocator sees it
  left.context = device.context + nccl;
  const Timeline unlimited = unwrap(replay_unlimited(schedule, setup, left));
  Estimate need = unwrap(summarize(tape, schedule, unlimited, setup, device, nccl));
  const AllocatorSetup& allocator = setup.allocator;
  // Only a device that is too small, or settings that look at the device's size, change the replay.
  const bool sees_limit = need.peak.process > device.total || allocator.memory_fraction < 1.0 ||
                          allocator.garbage_collection_threshold > 0 || setup.ort.memory_limit.has_value();
  if (!sees_limit) return need;
  const Timeline limited = unwrap(replay(schedule, setup, left));
  Estimate real = unwrap(summarize(tape, schedule, limited, setup, device, nccl));
  if (real.out_of_memory) {
    // The replay stopped half-way; the figures that help are those of a device that is large enough.
    need.out_of_memory = true;
    need.out_of_memory_at = real.out_of_memory_at;
    need.retries = real.retries;
    return need;
  }
  real.unlimited_process = need.peak.process;
  if (real.retries > 0)
    real.notes.push_back(
        {"MP040 fragmentation-risk",
         fmt::format("the allocator empties its cache and tries again {} times in {} steps; with free room "
                     "the process would grow to {}",
                     real.retries, setup.steps, to_human(need.peak.process)),
         Evidence::proven_by_file, About::allocator});
  return real;
}

Estimate heaviest_stage(const Tape& tape, const TrainingSetup& setup, const Ranks& p, const Device& device,
                        Bytes nccl) {
  const RankPrograms programs = runtime_of(setup).rank_programs(tape, setup, p, device);
  const auto& candidates = programs.ranks;
  const auto blocks = blocks_per_stage(count_blocks(tape, p), p);
  std::vector<Estimate> estimates(candidates.size());
  in_parallel(candidates.size(), [&](std::size_t i) {
    estimates[i] = estimate_schedule(tape, programs.schedule(candidates[i]), setup, device, nccl);
  });
  std::vector<RankClass> classes;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::int64_t rank = candidates[i], end = i + 1 < candidates.size() ? candidates[i + 1] : p.pipeline;
    RankClass c;
    c.name = end - rank == 1 ? fmt::format("pipeline rank {}", rank)
                             : fmt::format("pipeline ranks {}-{}, the first of them", rank, end - 1);
    c.gpus = p.gpus / p.pipeline * (end - rank);
    for (std::int64_t s : stages_of_rank(p, rank)) c.blocks += blocks[static_cast<std::size_t>(s)];
    c.in_flight = most_in_flight(actions_of(p, rank));
    c.peak = estimates[i].peak;
    c.parts = estimates[i].parts;
    classes.push_back(std::move(c));
  }
  const auto heaviest = std::max_element(estimates.begin(), estimates.end(), [](const Estimate& a, const Estimate& b) {
    return a.peak.process < b.peak.process;
  });
  heaviest->ranks = std::move(classes);
  return std::move(*heaviest);
}

TrainingSetup resolved(const TrainingSetup& given, bool falling_addresses) {
  TrainingSetup setup = given;
  setup.parallel = resolve(given.parallel);
  setup.allocator.falling_addresses = falling_addresses;
  return setup;
}

/// Of ranks that all run the schedule.
Estimate estimate_alike(const Tape& tape, const Schedule& schedule, const TrainingSetup& setup, const Device& device) {
  const Ranks ranks = resolve(setup.parallel);
  if (!is_parallel(ranks)) return estimate_schedule(tape, schedule, setup, device, Bytes());
  Estimate e = estimate_schedule(tape, schedule, setup, device, nccl_of(ranks));
  e.ranks.push_back({"all ranks", ranks.gpus, 0, 0, e.peak, e.parts});
  return e;
}

}  // namespace

Result<Estimate> estimate_tape(const Tape& tape, const TrainingSetup& given, const Device& device,
                               std::shared_ptr<const Schedule>* ran) {
  return catching([&] {
    const TrainingSetup setup = resolved(given, tape.reading.falling_addresses);
    const Ranks ranks = resolve(setup.parallel);
    if (setup.checkpoint_optimal) fail(ErrorKind::internal, "an estimate of checkpoints that are yet to be chosen");
    if (is_parallel(ranks)) check_parallel(tape, setup, ranks);
    if (ranks.pipeline > 1) return heaviest_stage(tape, setup, ranks, device, nccl_of(ranks));
    const auto schedule = std::make_shared<const Schedule>(runtime_of(setup).schedule(tape, setup, ranks, device));
    Estimate e = estimate_alike(tape, *schedule, setup, device);
    if (ran) *ran = schedule;
    return e;
  });
}

Result<Estimate> estimate_at_falling_addresses(const Tape& tape, const Schedule& ran, const TrainingSetup& given,
                                               const Device& device) {
  return catching([&] { return estimate_alike(tape, ran, resolved(given, true), device); });
}

Result<Estimate> estimate(const Model& model, const TrainingSetup& setup, const Device& device) {
  return catching([&] { return unwrap(estimate_tape(unwrap(tape_of(model, setup)), setup, device)); });
}

}  // namespace memplan
