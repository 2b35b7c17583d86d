// The words of a command line, sorted by flags.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace memplan::cli {

struct Command;
struct Flag;

/// The words of the command line, sorted but not yet understood. Flags that were not given but are in the
/// environment as MEMPLAN_<NAME> are added; `origin` keeps the name to blame in errors.
struct Parsed {
  const Command* command = nullptr;
  std::vector<std::string> positionals;
  std::vector<std::string> command_line;  ///< what stands after --: another program and its arguments
  std::map<std::string, std::vector<std::string>, std::less<>> values;  ///< "" for switches
  std::map<std::string, std::string, std::less<>> origin;               ///< "--gpu" or "MEMPLAN_GPU"
  bool has(std::string_view flag) const { return values.find(flag) != values.end(); }
};

/// Splits the arguments (without the program's name). Failure(usage) on unknown flags and missing values.
Parsed parse_arguments(const std::vector<std::string>& arguments);

/// One flag that was given, for the parser of its row.
struct Given {
  const Flag& flag;
  const std::vector<std::string>& values;  ///< at least one; "" of a switch
  const Parsed& parsed;                    ///< the other words of the same command line

  /// Of values that may be given once, the last one counts.
  const std::string& text() const { return values.back(); }
  /// A whole number of at least `least`.
  std::int64_t count(std::int64_t least = 1) const;
  /// All values, cut at `separator`, without empty words and blanks around them.
  std::vector<std::string> words(char separator = ',') const;
  /// For errors: the mark of its field (setup/field.h), or "--gpu" of a flag without one.
  std::string name() const;
  /// "--gpu" or "MEMPLAN_GPU"; empty of a configuration's.
  std::string origin() const;
};

/// Words between separators, without the empty ones.
std::vector<std::string> split_words(std::string_view text, char separator = ',');

/// The flags of these groups that say what is estimated, as they would be typed again, in the order of the table.
std::vector<std::string> words_of(const Parsed& parsed, const std::vector<std::string_view>& groups);

}  // namespace memplan::cli
