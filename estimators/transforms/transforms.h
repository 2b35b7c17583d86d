// Strategies that edit a tape, one row each: the arrow transform of pipeline.h. A new one is a file of this folder and
// a row of the table in transforms.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/graph/graph.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// What a transform is about: the model, which all ranks have in common, or what one rank runs of it.
enum class TransformOf : std::uint8_t { model, rank };

struct Transform {
  std::string_view name;
  TransformOf of;
  bool (*applies)(const TrainingSetup& setup);
  Tape (*apply)(Tape tape, const TrainingSetup& setup);  ///< lifetimes are right before and after; Failure(usage)
};

/// In the order in which they run; those of the model come first.
std::span<const Transform> transforms();

// tape_of of pipeline.h in two halves, for those who ask for many setups of one model.

/// bind, lower, restore, and the transforms of the model. Of the strategies only frozen parameters, adapters, the dtype
/// and context parallelism's share of the sequence are in it. `keep`: as tape_of() does, it keeps what it was restored
/// from, for read_otherwise().
Result<Tape> tape_of_model(const Model& model, const TrainingSetup& setup, bool keep = false);

/// tape_of for another reading of the file that `tape` is of, for the same setup: not lowered again where the tape kept
/// what it was restored from.
Result<Tape> read_otherwise(const Tape& tape, const Model& model, const TrainingSetup& setup, const Reading& reading);

/// The transforms of a rank on such a tape. Failure(usage) as of tape_of, which checks the strategies first.
Result<Tape> tape_of_rank(Tape model, const TrainingSetup& setup);

}  // namespace memplan
