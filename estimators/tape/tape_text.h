// The text form of a Tape, which docs/tape-format.md describes: for people, and for tests that write tapes by hand.
#pragma once

#include <string>
#include <string_view>

#include "estimators/tape/tape.h"

namespace memplan {

/// One call per line: `%y, _ = aten::linear(%x, %fc.weight, None) in 3 del(%x) at "net.py:12 y = self.fc(x)"`.
std::string to_text(const Tape& tape);

/// The reverse: to_text(from_text(text)) says the same, and from_text(to_text(tape)) is the tape. Failure(input) names
/// the line and what is wrong with it. The tape is as sound as its text (check.h).
Tape from_text(std::string_view text);

}  // namespace memplan
