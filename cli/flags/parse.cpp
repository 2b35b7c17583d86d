// The only translation unit that includes CLI11, which takes seconds to compile.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cli/flags/flags.h"
#include "cli/flags/parsed.h"
#include "estimators/base/error.h"
#include "estimators/base/text.h"

namespace memplan::cli {

namespace {

constexpr std::string_view variable_prefix = "MEMPLAN_";

std::string environment_name(std::string_view flag) {
  std::string name(variable_prefix);
  for (const char c : flag) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

/// The flag that environment_name() would make `variable` of.
std::string flag_of_variable(std::string_view variable) {
  std::string flag;
  for (const char c : variable.substr(variable_prefix.size()))
    flag += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return flag;
}

/// "memplan size, memplan sweep", at most three of them.
std::string commands_with(const Flag& flag) {
  std::string names;
  int left = 3;
  for (const Command& c : commands())
    if ((flag.commands & c.id) && left-- > 0) names += fmt::format("{}memplan {}", names.empty() ? "" : ", ", c.name);
  return names + (left < 0 ? " and others" : "");
}

/// "memplan suggst model.onnx": a first word that is no file and nearly a command.
void refuse_misspelt_command(const std::string& word) {
  if (word.empty() || word.front() == '-' || word.find_first_of("./") != std::string::npos) return;
  const Command* near = nearest_command(word);
  std::error_code ec;
  if (!near || std::filesystem::exists(word, ec)) return;
  fail(ErrorKind::usage, fmt::format("'{}' is neither a command nor a file", word), {},
       fmt::format("did you mean memplan {}?", near->name));
}

[[noreturn]] void unknown_word(const std::string& word, const Command& command) {
  std::string name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  name = name.substr(0, name.find('='));
  const Flag* flag = find_flag(name);
  if (!flag && word.size() > 1 && word[1] != '-')
    for (const Flag& f : flags())
      if (!f.letter.empty() && f.letter == name.substr(0, 1)) flag = &f;
  std::string hint = fmt::format("memplan {} --help lists the flags", command.name);
  if (flag)
    hint = fmt::format("--{} belongs to {}", flag->name, commands_with(*flag));
  else if (const auto near = nearest_flag(name, command.id); !near.empty())
    hint = fmt::format("did you mean --{}?", near);
  fail(ErrorKind::usage, fmt::format("'{}' is not a flag of memplan {}", word, command.name), word, hint);
}

/// A misspelt variable would be passed over without a word. Variables that are near no flag belong to somebody else.
void warn_of_misspelt_variables() {
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view all = *entry, name = all.substr(0, all.find('='));
    if (!name.starts_with(variable_prefix)) continue;
    const std::string flag = flag_of_variable(name);
    if (find_flag(flag)) continue;
    const std::string_view near = nearest_flag(flag, in_all);
    if (near.empty() || edit_distance(flag, near) > std::max<std::size_t>(1, flag.size() / 5)) continue;
    std::fputs(fmt::format("memplan: {} sets nothing. Did you mean {}?\n", name, environment_name(near)).c_str(),
               stderr);
  }
}

void add_environment(Parsed& parsed) {
  for (const Flag& flag : flags()) {
    if (!flag.from_environment || !(flag.commands & parsed.command->id) || parsed.has(flag.name)) continue;
    const std::string variable = environment_name(flag.name);
    const char* value = std::getenv(variable.c_str());
    if (!value || !*value) continue;
    const std::string_view v = value;
    if (flag.value.empty() && (v == "0" || v == "false" || v == "no")) continue;
    parsed.values[std::string(flag.name)] = {std::string(v)};
    parsed.origin[std::string(flag.name)] = variable;
  }
}

using GivenFlags = std::vector<std::pair<const Flag*, CLI::Option*>>;

[[noreturn]] void refuse_extras(const CLI::ExtrasError& error, const std::vector<std::string>& words,
                                const GivenFlags& options, const Command& command) {
  for (const std::string& word : words) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string name = word.substr(word[1] == '-' ? 2 : 1, word.find('=') - (word[1] == '-' ? 2 : 1));
    bool known = false;
    for (const auto& [flag, option] : options)
      known = known || flag->name == name || (word[1] != '-' && flag->letter == name.substr(0, 1));
    if (!known) unknown_word(word, command);
  }
  fail(ErrorKind::usage, error.what(), {}, "memplan --help shows what can be given");
}

/// The words behind the command: its flags with their values, and its arguments.
void add_words(Parsed& parsed, const std::vector<std::string>& words) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras(false);
  GivenFlags options;
  std::map<const Flag*, std::vector<std::string>> results;
  for (const Flag& flag : flags()) {
    if (!(flag.commands & parsed.command->id)) continue;
    std::string names = fmt::format("--{}", flag.name);
    if (!flag.letter.empty()) names = fmt::format("-{},{}", flag.letter, names);
    CLI::Option* option =
        flag.value.empty() ? app.add_flag(names) : app.add_option(names, results[&flag])->allow_extra_args(false);
    options.emplace_back(&flag, option);
  }
  app.add_option("arguments", parsed.positionals);
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    app.parse(reversed);
  } catch (const CLI::ExtrasError& error) {
    refuse_extras(error, words, options, *parsed.command);
  } catch (const CLI::ParseError& error) {
    std::string hint = "memplan --help shows what can be given";
    for (const auto& [flag, option] : options)
      if (std::string_view(error.what()).find("--" + std::string(flag->name) + ":") == 0 && !flag->choices.empty())
        hint = fmt::format("use one of {}", flag->choices);
    fail(ErrorKind::usage, error.what(), {}, hint);
  }
  for (const auto& [flag, option] : options) {
    if (option->count() == 0) continue;
    parsed.values[std::string(flag->name)] = flag->value.empty() ? std::vector<std::string>{""} : results[flag];
    parsed.origin[std::string(flag->name)] = fmt::format("--{}", flag->name);
  }
}

}  // namespace

Parsed parse_arguments(const std::vector<std::string>& arguments) {
  Parsed parsed;
  std::vector<std::string> words = arguments;
  parsed.command = find_command("estimate");
  if (!words.empty()) {
    if (const Command* named = find_command(words.front())) {
      parsed.command = named;
      words.erase(words.begin());
    } else {
      refuse_misspelt_command(words.front());
    }
  }

  // Behind -- stands the command line of another program, whose flags are none of ours.
  if (parsed.command->id == in_observe)
    if (const auto at = std::find(words.begin(), words.end(), "--"); at != words.end()) {
      parsed.command_line.assign(at + 1, words.end());
      words.erase(at, words.end());
    }
  add_words(parsed, words);
  add_environment(parsed);
  warn_of_misspelt_variables();
  return parsed;
}

}  // namespace memplan::cli
