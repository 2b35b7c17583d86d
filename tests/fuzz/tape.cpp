// Tapes as another process sends them: every op, dtype and size that JSON can name goes through the interpreter,
// autograd and the allocator.
#include <nlohmann/json.hpp>

#include "estimators/pipeline.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/tape/check.h"
#include "estimators/tape/tape_json.h"
#include "tests/fuzz/targets.h"

namespace memplan::fuzz {

namespace {

/// A tape of a file that is read is checked after every pass; one of another process is hostile until then.
bool holds(const Tape& tape) {
  return catching([&] {
           check(tape);
           return true;
         })
      .ok();
}

}  // namespace

void fuzz_tape(std::string_view bytes) {
  const auto json = nlohmann::json::parse(bytes, nullptr, false);
  if (json.is_discarded()) return;
  const auto tape = catching([&] { return tape_from_json(json); });
  if (!tape) return expect_told(tape.error());
  if (!holds(*tape)) return;
  TrainingSetup setup;
  setup.steps = 1;
  for (const Mode mode : {Mode::training, Mode::inference}) {
    setup.mode = mode;
    const auto steps = run_steps(*tape, setup, Device{});
    if (!steps) {
      expect_told(steps.error());
      continue;
    }
    const auto timeline = replay_unlimited(*steps, setup, Device{});
    if (!timeline) expect_told(timeline.error());
  }
}

}  // namespace memplan::fuzz
