// What exporters lose, put back pass by pass: the arrow restore of pipeline.h.
#pragma once

#include <span>
#include <string_view>

#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

struct RestorePass {
  std::string_view name;
  bool (*when)(const Tape& tape, const TrainingSetup& setup);
  void (*run)(Tape& tape, const TrainingSetup& setup);
};

/// In the order in which they run.
std::span<const RestorePass> restore_passes();

}  // namespace memplan
