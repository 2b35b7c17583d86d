// What memplan asks of a runtime, the program that runs a model on a GPU: PyTorch's eager mode is the first row.
//
//   Tape -> Schedule    what it allocates, when and why
//   Allocator           where its requests are placed
//   outside             what the process holds beside that
//
// Adding one: a folder that implements Runtime, and a row in runtimes.cpp. The flow of
// pipeline.h asks the runtime that the setup names and knows none by itself.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/facts/device.h"
#include "estimators/runtime/allocator.h"
#include "estimators/schedule/schedule.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// The programs of a pipeline's ranks.
struct RankPrograms {
  std::vector<std::int64_t> ranks;  ///< of which one needs most; each speaks for those up to the next
  std::function<Schedule(std::int64_t rank)> schedule;  ///< may be called from several threads at a time
};

class Runtime {
 public:
  virtual ~Runtime() = default;

  /// For assumptions of an estimate: "PyTorch 2.11 eager".
  virtual std::string title(const TrainingSetup& setup) const = 0;

  /// What its version rests on, where that is less than runs which were compared.
  virtual Notes doubts(const TrainingSetup&) const { return {}; }

  /// Runs `setup.steps` steps on paper; `ranks` are the setup's, resolved. Throws Failure.
  virtual Schedule schedule(const Tape& tape, const TrainingSetup& setup, const Ranks& ranks,
                            const Device& device) const = 0;
  /// The same for the ranks of a pipeline; what is given must outlive the result. Failure(usage) where the runtime has
  /// none.
  virtual RankPrograms rank_programs(const Tape& tape, const TrainingSetup& setup, const Ranks& ranks,
                                     const Device& device) const;

  /// An empty allocator on the device, whose memory is what the driver reports without `outside`. The schedule is what
  /// will be replayed, for arenas that are planned ahead.
  virtual std::unique_ptr<Allocator> allocator(const Schedule& schedule, const TrainingSetup& setup,
                                               const Device& device) const = 0;

  /// Memory of the process that no request of the schedule accounts for.
  virtual Bytes outside(const TrainingSetup& setup, const Device& device) const = 0;
  /// Where that figure comes from, as a sentence without a stop.
  virtual std::string outside_assumption(const TrainingSetup& setup, const Device& device) const = 0;
};

struct RuntimeRow {
  std::string_view name;
  const Runtime& runtime;
};
const std::vector<RuntimeRow>& runtimes();

/// The runtime that the setup names; Failure(usage) with the known names where there is none.
const Runtime& runtime_of(const TrainingSetup& setup);

}  // namespace memplan
