// How long a schedule may be (docs/limits.md).
#pragma once

#include <cstddef>

namespace memplan {

/// Allocations and frees of a run. Those of three steps of a model with 100,000 ops are a quarter of it; as many take a
/// few seconds and half a GiB.
inline constexpr std::size_t most_events = 4'000'000;

/// Of micro-batches and steps that repeat each other and are all run.
inline constexpr double most_repeated_events = 100'000;

}  // namespace memplan
