// What only reports that show the run itself want: every event, the map of the memory, and estimates of larger and
// smaller sizes and of other cards.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/program/parts.h"
#include "estimators/pipeline.h"
#include "estimators/replay/memory_map.h"
#include "planner/scaling.h"
#include "planner/suggest.h"

namespace memplan::cli {

struct RunRecord {
  std::vector<Scope> scopes;  ///< of the tape
  Schedule schedule;
  Timeline timeline;
  MemoryMap map;                 ///< at the peak and at the end
  std::int32_t peak_event = -1;  ///< the first event after which most is allocated
  bool limited = false;          ///< replayed with the device's size, because that changed what the allocator did
  Bytes context;                 ///< of the process, outside PyTorch's counters
  std::vector<ScaleCurve> curves;
  std::vector<Card> cards;
  std::optional<Suggestion> suggestion;     ///< where the setup does not fit with its margin
  std::map<std::string, ModelParts> parts;  ///< of each suggested setup, by its flags
};

/// Replays the setup of `estimate` once more and keeps everything. Like the estimate, a setup that does not fit is
/// shown as it would run on a device that is large enough.
RunRecord run_of(const Tape& tape, const TrainingSetup& setup, const Device& device, const Estimate& estimate);

/// Estimates of other sizes and cards, and with `change` of setups that fit; fewer of them for tapes so long that each
/// takes a second. `ranks`: how many kinds of ranks each estimate runs.
void add_surroundings(RunRecord& run, const Model& model, const Tape& tape, const TrainingSetup& setup,
                      const Device& device, const MarginOf& margin, bool change, std::size_t ranks);

}  // namespace memplan::cli
