// What a file leaves open, as other ways to read it: a row each of what a range is priced by.
#pragma once

#include <optional>
#include <vector>

#include "estimators/estimate/basis.h"
#include "estimators/graph/graph.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/reading.h"
#include "estimators/tape/tape.h"

namespace memplan {

/// One other way to read the file.
struct Trial {
  About about;
  const char* text;  ///< of the source
  Reading reading;
  bool either_way = false;  ///< what it moves in one direction it may as well move in the other
};

/// Whether a fact about it rests on such evidence.
bool rests_on(const Notes& facts, About about, bool (*accept)(Evidence));

/// By a name, a line or a pattern: somebody's word, no proof.
constexpr bool told(Evidence e) {
  return e == Evidence::told_by_name || e == Evidence::told_by_source_line || e == Evidence::told_by_pattern;
}

/// Segments at falling addresses alone: of this reading the program asks for the same, at the same time.
Reading falling_addresses();

/// Those that may matter, given the facts of the estimate.
std::vector<Trial> trials_of(const Tape& tape, const TrainingSetup& setup, const Notes& facts);

/// The tape of another reading; none where it is the same program. Failure as of tape_of.
std::optional<Tape> read_again(const Model& model, const Tape& tape, const TrainingSetup& setup,
                               const Reading& reading);

}  // namespace memplan
