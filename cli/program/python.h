// Names of a model file as Python text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace memplan::cli {

/// A string literal. Names come from files: quotes, backslashes and control characters cannot end it.
std::string python_string(std::string_view text);

/// "a", "b": the literals of some names, for a line of arguments or a list.
std::string python_names(const std::vector<std::string>& names);

/// A list of strings over several lines, each after `indent`. Names that count up, as those of a model's blocks do, are
/// one line: *(f"layers.{i}" for i in range(32)).
std::string python_list(const std::vector<std::string>& names, const std::string& indent = "    ");

}  // namespace memplan::cli
