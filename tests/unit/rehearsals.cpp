#include <doctest/doctest.h>

#include "estimators/base/unwrap.h"
#include "estimators/setup/names.h"
#include "planner/batch.h"
#include "planner/bounds.h"
#include "tape_builder.h"

using namespace memplan;

TEST_CASE("what a setup keeps is part of its bound, whatever the batch and the optimizer") {
  const Device device = choose_device("h100-80gb").device;
  Rehearsal r;
  r.batch[0] = 1, r.batch[1] = 2;
  r.parameters = 4000, r.gradients = 4000;
  r.work.trained_elements = 1000;
  r.peak[0] = 9000, r.peak[1] = 10000;
  r.forward_peak[0] = 5000, r.forward_peak[1] = 6000;
  for (const Mode mode : {Mode::training, Mode::inference})
    for (const auto& [name, choice, hidden] : optimizer_names)
      for (const bool on_host : {false, true})
        for (const std::int64_t batch : {1, 2, 64}) {
          TrainingSetup setup;
          setup.mode = mode;
          setup.optimizer.kind = choice.kind;
          setup.offload.optimizer = on_host;
          CHECK(least_kept(r, setup, device) <= least(r, setup, batch, device));
        }
  TrainingSetup adamw;
  CHECK(least_kept(r, adamw, device) == Bytes(4000 + 4000 + 2 * 4000) + device.context);
  adamw.mode = Mode::inference;
  CHECK(least_kept(r, adamw, device) == Bytes(4000) + device.context);
}
