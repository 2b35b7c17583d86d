// What a rank keeps between the steps of a run.
#pragma once

#include <doctest/doctest.h>

#include "estimators/pipeline.h"

namespace memplan::testing {

/// Parameters, gradients and optimizer state that live when the second step's backward pass has ended.
inline double states(const Tape& tape, const TrainingSetup& setup) {
  const Result<Schedule> run = run_steps(tape, setup, Device{});
  REQUIRE_MESSAGE(run.ok(), (run.ok() ? std::string() : run.error().what));
  const Schedule& s = run.value();
  std::int32_t at = -1;
  for (const OpRecord& op : s.ops)
    if (op.step == 2 && op.phase == Phase::backward) at = op.first_event;
  REQUIRE(at >= 0);
  for (const OpRecord& op : s.ops)
    if (op.step == 2 && op.phase == Phase::optimizer) {
      at = op.first_event - 1;
      break;
    }
  double bytes = 0;
  for (const Allocation& a : s.allocations) {
    const bool state = a.category == Category::parameter || a.category == Category::gradient || a.category == Category::optimizer_state;
    if (state && a.born <= at && (a.died < 0 || a.died > at)) bytes += static_cast<double>(a.size.count);
  }
  return bytes;
}

}  // namespace memplan::testing
