#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/flags/parsed.h"
#include "cli/terminal/output.h"
#include "cli/terminal/style.h"

namespace memplan::cli {

namespace {

constexpr const char* introduction =
    R"(memplan says how much GPU memory a model needs, from the model file alone: no GPU, no run.

usage:
  memplan MODEL.onnx --gpu 80GB          does one training step (AdamW) fit, and where is the peak?
  memplan MODEL.onnx --gpu l4 --batch 32 --seq 1024 --amp bf16
  memplan ./checkpoint --gpu 24GB        also a transformers folder, hf:org/name, train.py:fn
  memplan observe -- python train.py     a whole script, on an emulated GPU
  memplan MODEL.onnx                     how much is needed, and which cards are enough
  memplan explain MODEL.onnx             what lives at the peak, and why
  memplan explain MODEL.onnx --program   the PyTorch script whose memory is estimated
  memplan suggest MODEL.onnx --gpu l4    what must change so that it fits, with settings to paste
  memplan devices                        the cards that --gpu knows
  memplan ops MODEL.onnx                 the ops of a model, and how exactly each is modelled

commands:
)";

constexpr const char* conclusion = R"(
Every flag may be set in the environment as MEMPLAN_<FLAG>, such as MEMPLAN_GPU=80GB.
The command line wins.

exit codes:
  0   it fits, or no --gpu was given
  1   it does not fit, or memplan cannot tell, or a gate fails
  2   wrong usage
  3   the model cannot be read, or has open dimensions
  4   the baseline cannot be used
  5   --timeout passed
  70  a defect in memplan
)";

std::string left_side(const Flag& f) {
  std::string text = f.letter.empty() ? "    " : fmt::format("-{}, ", f.letter);
  text += fmt::format("--{}", f.name);
  if (!f.value.empty()) text += fmt::format(" {}", f.value);
  return text;
}

/// What is explained, and behind it (below it where it is long) the explanation.
std::string row(const std::string& left, std::string_view right) {
  constexpr std::size_t column = 29;
  const std::string gap =
      left.size() + 3 > column ? "\n" + std::string(column, ' ') : std::string(column - 2 - left.size(), ' ');
  return fmt::format("  {}{}{}\n", left, gap, wrap(std::string(right), 100, column, column));
}

/// Words that a line has no room for are listed with blanks, at which it breaks.
std::string choices_text(std::string_view choices) {
  constexpr std::size_t room = 60;
  return choices.size() <= room ? std::string(choices) : fmt::format("{}", fmt::join(split_words(choices, '|'), ", "));
}

std::string commands_text() {
  std::string out;
  for (const Command& c : commands()) out += row(fmt::format("{} {}", c.name, c.usage), c.summary);
  return out;
}

std::string flags_text(const Command& command) {
  std::string out;
  std::vector<std::string_view> groups;
  for (const Flag& f : flags())
    if ((f.commands & command.id) &&
        (groups.empty() || std::find(groups.begin(), groups.end(), f.group) == groups.end()))
      groups.push_back(f.group);
  for (std::string_view group : groups) {
    out += fmt::format("\n{}:\n", group);
    for (const Flag& f : flags()) {
      if (f.group != group || !(f.commands & command.id)) continue;
      std::string help(f.help);
      if (!f.choices.empty()) help += fmt::format(": {}", choices_text(choices_of(f, command)));
      if (f.repeatable) help += "; may be repeated";
      out += row(left_side(f), help);
    }
  }
  return out;
}

}  // namespace

std::string short_help() {
  return introduction + commands_text() +
         "\nmemplan --help also lists the flags, memplan help COMMAND those of one command.\n";
}

std::string help_text(const Command& command, bool overview) {
  std::string out;
  if (overview) {
    out = introduction + commands_text();
  } else {
    out = fmt::format("usage: {} [flags]\n{}\n", usage_of(command), wrap(std::string(command.summary), 100, 0));
  }
  out += flags_text(command);
  if (overview) out += conclusion;
  return out;
}

}  // namespace memplan::cli
