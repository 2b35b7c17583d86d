// One table of commands and flags; the parser, --help, the man page and the shell completions are all made from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace memplan::cli {

enum CommandSet : std::uint32_t {
  in_estimate = 1,
  in_explain = 2,
  in_devices = 4,
  in_ops = 8,
  in_completions = 16,
  in_man = 32,
  in_suggest = 64,
  in_size = 128,
  in_sweep = 256,
  in_report = 1 << 10,
  in_check = 1 << 11,
  in_diff = 1 << 12,
  in_baseline = 1 << 13,
  in_config = 1 << 14,
  in_observe = 1 << 20,
  in_validate = 1 << 21,
  in_schema = 1 << 22,
  in_export = 1 << 23,
  in_record = 1 << 24,
  in_attach = 1 << 25,
  in_calibrate = 1 << 26,
  in_all = ~0U,
  in_planner = in_suggest | in_size | in_sweep,
  in_setup = in_estimate | in_explain | in_diff | in_planner | in_validate,
  in_source = in_export | in_record,             ///< make a file of a model
  in_gate = in_check | in_baseline | in_config,  ///< read memplan.toml
  in_documents =
      in_estimate | in_report | in_check | in_diff | in_baseline,  ///< end with a document that every format shows
  in_reports =
      in_estimate | in_explain | in_devices | in_ops | in_documents | in_config | in_planner | in_observe | in_validate,
};

struct Command {
  std::string_view name;
  std::string_view usage;    ///< positional arguments
  std::string_view summary;  ///< one line
  CommandSet id;
  std::size_t most_arguments = 1;
};

struct Given;
struct Options;

/// Puts the values of a flag into the options. Failure(usage) with what to type instead.
using FlagParser = void (*)(const Given& given, Options& options);

struct Flag {
  std::string_view name;     ///< without dashes: "alloc-conf"
  std::string_view letter;   ///< "o", or empty
  std::string_view value;    ///< placeholder of the value; empty for a switch
  std::string_view choices;  ///< "a|b|c" where the values are fixed
  std::string_view group;
  std::string_view help;
  std::uint32_t commands;  ///< which commands take it
  FlagParser parse;        ///< of a flag that was given, after those of the rows above; may be null
  bool repeatable = false;
  bool from_environment = true;  ///< MEMPLAN_<NAME>
};

std::span<const Command> commands();

/// "memplan check [TARGET...]"
std::string usage_of(const Command& command);
/// In the order of the help, in which they are parsed, too.
std::span<const Flag> flags();
/// The first of them: what is estimated.
std::span<const Flag> setup_flags();
/// The others: looks of the answer and what single commands have.
std::span<const Flag> command_flags();
const Command* find_command(std::string_view name);
const Flag* find_flag(std::string_view name);

/// "a|b|c": what the flag takes in this command. Formats are the flag whose values are not the same in all.
std::string_view choices_of(const Flag& flag, const Command& command);

/// The command whose name is nearest to a misspelt one, or null when none is near.
const Command* nearest_command(std::string_view name);

/// The known name nearest to a misspelt one, or empty when none is near.
std::string_view nearest_flag(std::string_view name, std::uint32_t commands);

}  // namespace memplan::cli
