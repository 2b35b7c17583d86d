// A Tape as JSON, for other processes: what running it needs. Names, their bindings and what the file said of itself
// stay behind; tape_text.h has all of it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "estimators/tape/tape.h"

namespace memplan {

/// A Tape as JSON. An argument is null, a number, true/false, a string, a list, {"v": 3} for a value or
/// {"dtype": "float32"}.
nlohmann::json to_json(const Tape& tape);

/// The reverse. Failure(input) naming what is wrong: unknown dtypes, ids outside the tape, missing fields.
Tape tape_from_json(const nlohmann::json& json);

}  // namespace memplan
