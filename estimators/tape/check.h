// What holds for every tape, whichever pass made it.
#pragma once

#include <string_view>

#include "estimators/tape/tape.h"

namespace memplan {

/// Failure(internal), which names the stage, the call and its op, where one of these does not hold:
///   * ids, scopes and bindings are in range; a scope stands after its parent;
///   * a value that a call reads was made before, and is made once; inputs, parameters and buffers are made by no call;
///   * the tape's inputs, parameters and buffers (constants among these) are of that kind, none is listed twice, sizes
///     are not negative, and a tied parameter stands for one that is not tied itself;
///   * an in-place op has a target;
///   * what Call::last_uses and Call::releases let go was made, goes once, is read by no later call and is no output;
///   * checkpoint regions are in range, ascend by their first call, and lie inside of each other or apart.
/// `stage` and `part` say what has just run: "restore", "casts".
void check(const Tape& tape, std::string_view stage = {}, std::string_view part = {});

/// check(), where checks are on: in debug builds, and where the environment variable MEMPLAN_CHECK is set, as the test
/// runner does.
void verify(const Tape& tape, std::string_view stage, std::string_view part = {});

}  // namespace memplan
