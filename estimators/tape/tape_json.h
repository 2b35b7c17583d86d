// The text form of a Tape: JSON, for tests, tools and other processes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimators/tape/tape.h"

namespace memplan {

/// A Tape as JSON. An argument is null, a number, true/false, a string, a list, {"v": 3} for a value or
/// {"dtype": "float32"}.
nlohmann::json to_json(const Tape& tape);

/// The reverse. Failure(input) naming what is wrong: unknown dtypes, ids outside the tape, missing fields.
Tape tape_from_json(const nlohmann::json& json);

/// One call per line, "%12 = aten::linear(%11, fc.weight, fc.bias)  # layer source", for people.
std::string to_text(const Tape& tape);

}  // namespace memplan
