#include "planner/kv_room.h"

#include <algorithm>

#include "estimators/base/unwrap.h"
#include "estimators/runtime/torch/step/inspect_forward.h"
#include "estimators/runtime/torch/step/kv_cache.h"
#include "estimators/setup/field.h"
#include "estimators/transforms/transforms.h"
#include "planner/checkpointing/plan.h"

namespace memplan {

KvBudget kv_budget(const Estimate& forward, Bytes total, Bytes margin) {
  KvBudget b;
  b.limit = total - margin;
  for (const CategoryPart& p : forward.parts)
    if (p.part == Part::parameters || p.part == Part::buffers) b.weights += p.bytes;
  b.activations = forward.peak.allocated - b.weights;
  b.other = forward.peak.process - forward.peak.reserved;
  b.left = b.limit - b.weights - b.activations - b.other;
  return b;
}

std::int64_t tokens_in(Bytes left, Bytes per_token, std::int64_t block) {
  if (left <= Bytes(0) || per_token <= Bytes(0)) return 0;
  return left.count / (per_token * block).count * block;
}

std::optional<LargestKvCache> largest_kv_cache(const Model& model, const TrainingSetup& given, const Device& device,
                                               const MarginOf& margin) {
  if (given.mode != Mode::inference || is_parallel(resolve(given.parallel))) return std::nullopt;
  TrainingSetup setup = given;
  setup.kv_cache.reset();
  const Tape tape = unwrap(tape_of(model, setup));
  std::vector<KvLayer> layers;
  try {
    inspect_forward(tape, setup, device, [&](const Run&, const Environment& env) { layers = kv_layers(tape, env); });
  } catch (const Failure& failure) {
    if (failure.error().where == setting(Field::kv_cache)) return std::nullopt;
    throw;
  }
  LargestKvCache out;
  KvCacheSetup cache = given.kv_cache.value_or(KvCacheSetup{});
  out.block = given.kv_cache ? std::max<std::int64_t>(cache.block, 1) : 16;
  out.length = cache.length > 0 ? cache.length : layers.front().length;
  cache.block = cache.sequences = cache.length = 1;
  out.per_token = kv_cache_bytes(layers, cache);
  const Estimate forward = unwrap(estimate_planned_tape(tape, setup, device));
  out.peak = forward.peak.process;
  out.budget = kv_budget(forward, device.total, margin(device));
  cache.block = out.block;
  const auto fits = [&](std::int64_t blocks) {
    cache.length = blocks * out.block;
    setup.kv_cache = cache;
    const Result<Estimate> e = estimate_to_judge(model, setup, device, margin(device));
    if (!e || judge(*e, device, margin(device)).verdict != Verdict::fits) return false;
    out.tokens = cache.length;
    out.peak = e->peak.process;
    return true;
  };
  // More than the budget cannot fit; what the allocator rounds up, and what of its cache the forward pass takes again,
  // moves the edge.
  std::int64_t good = 0, bad = tokens_in(out.budget.limit, out.per_token, out.block) / out.block + 1;
  std::int64_t probe = tokens_in(out.budget.left, out.per_token, out.block) / out.block;
  while (bad - good > 1) {
    probe = std::clamp(probe, good + 1, bad - 1);
    const bool ok = fits(probe);
    (ok ? good : bad) = probe;
    // The edge is near the quotient: steps that double from there, then halves.
    const std::int64_t step = std::max<std::int64_t>(1, probe / 64);
    const bool open = ok ? bad - good > 4 * step : good == 0;
    probe = open ? (ok ? good + step : bad - step) : good + (bad - good) / 2;
  }
  if (out.tokens > 0 && out.length > 0) out.sequences = good / ((out.length + out.block - 1) / out.block);
  return out;
}

}  // namespace memplan
