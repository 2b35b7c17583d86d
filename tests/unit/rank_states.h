// What a rank keeps between the steps of a run.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"

namespace memplan::testing {

inline bool is_state(const Allocation& a) {
  return a.category == Category::parameter || a.category == Category::gradient ||
         a.category == Category::optimizer_state;
}

/// Bytes of the allocations that `counts` takes, at event `at`.
template <class Predicate>
double live(const Schedule& s, std::int32_t at, Predicate counts) {
  double bytes = 0;
  for (const Allocation& a : s.allocations)
    if (counts(a) && a.born <= at && (a.died < 0 || a.died > at)) bytes += static_cast<double>(a.size.count);
  return bytes;
}

/// Parameters, gradients and optimizer state that live when the second step's backward pass has ended.
inline double states(const Tape& tape, const TrainingSetup& setup) {
  const Schedule s = memplan::unwrap(run_steps(tape, setup, Device{}));
  std::int32_t at = -1;
  for (const OpRecord& op : s.ops)
    if (op.step == 2 && op.phase == Phase::backward) at = op.first_event;
  REQUIRE(at >= 0);
  for (const OpRecord& op : s.ops)
    if (op.step == 2 && op.phase == Phase::optimizer) {
      at = op.first_event - 1;
      break;
    }
  return live(s, at, is_state);
}

}  // namespace memplan::testing
