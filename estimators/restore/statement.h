// The line of Python where a call stands, taken apart as far as names and in-place operators go.
#pragma once

#include <string_view>
#include <vector>

namespace memplan {

/// What `text` ("out += identity", "q, k = a.chunk(2)") does with names. Empty targets: an expression, a return, or the
/// middle of a longer statement.
struct Statement {
  /// Names (or attributes, "self.x") on the left, one list per `=`: "a = b, c = f()" gives {a}, {b, c}.
  std::vector<std::vector<std::string_view>> targets;
  char augmented = 0;      ///< '+', '-', '*', '/' of an augmented assignment
  std::string_view value;  ///< the right-hand side, or the whole text
};

/// `source` is "file.py:12 text", as in Call::source; the views point into it.
Statement parse_statement(std::string_view source);

}  // namespace memplan
