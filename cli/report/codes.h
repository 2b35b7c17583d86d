// The codes of warnings and rules: one table that `memplan explain MP101`, SARIF and the docs agree with.
#pragma once

#include <span>
#include <string_view>

namespace memplan::cli {

struct Code {
  std::string_view code;  ///< "MP101": stable
  std::string_view rule;  ///< "no-fit", a rule of the gate; empty for a warning of a report
  std::string_view text;  ///< what it says, one sentence
  std::string_view more;  ///< what follows for the figure, and what to do
};

/// All of them, ascending.
std::span<const Code> codes();

/// Null where there is none of this name; small letters are known too.
const Code* find_code(std::string_view name);

}  // namespace memplan::cli
