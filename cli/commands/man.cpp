#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/terminal/output.h"

namespace memplan::cli {

namespace {

/// roff reads a leading dot or quote as a request and '-' as a hyphen.
std::string roff(std::string_view text) {
  std::string out;
  if (!text.empty() && (text[0] == '.' || text[0] == '\'')) out += "\\&";
  for (char c : text) {
    if (c == '-')
      out += "\\-";
    else if (c == '\\')
      out += "\\\\";
    else
      out += c;
  }
  return out;
}

/// "a | b": troff breaks and justifies lines at blanks.
std::string spaced(std::string_view choices) {
  std::string out;
  for (const char c : choices) out += c == '|' ? " | " : std::string(1, c);
  return roff(out);
}

}  // namespace

int run_man() {
  std::string out = fmt::format(".TH MEMPLAN 1 \"\" \"memplan {}\" \"User Commands\"\n", MEMPLAN_VERSION);
  out += ".SH NAME\nmemplan \\- say how much GPU memory a model needs, from the model file alone\n.SH SYNOPSIS\n";
  for (const Command& c : commands())
    out += fmt::format(".B memplan{}\n{} [flags]\n.br\n", c.name == "estimate" ? "" : " " + std::string(c.name),
                       roff(c.usage));
  out +=
      ".SH DESCRIPTION\nReads an ONNX file without its weights, rebuilds the PyTorch ops behind it, replays training "
      "or inference steps through a model of "
      "PyTorch's caching allocator, and reports the peak, what it is made of, and whether it fits a GPU.\n.SH "
      "COMMANDS\n";
  for (const Command& c : commands()) out += fmt::format(".TP\n.B {}\n{}\n", c.name, roff(c.summary));
  std::vector<std::string_view> groups;
  for (const Flag& f : flags())
    if (std::find(groups.begin(), groups.end(), f.group) == groups.end()) groups.push_back(f.group);
  out += ".SH OPTIONS\n";
  for (std::string_view group : groups) {
    out += fmt::format(".SS {}\n", group);
    for (const Flag& f : flags()) {
      if (f.group != group) continue;
      out += ".TP\n.B ";
      if (!f.letter.empty()) out += fmt::format("\\-{}, ", f.letter);
      out += fmt::format("\\-\\-{}{}\n{}", roff(f.name), f.value.empty() ? "" : " " + roff(f.value), roff(f.help));
      if (!f.choices.empty()) out += fmt::format(": {}", spaced(f.choices));
      out += '\n';
    }
  }
  out +=
      ".SH EXIT STATUS\n"
      ".TP\n.B 0\ncomputed; it fits, or no GPU was named\n.TP\n.B 1\ncomputed; a verdict of \\-\\-fail\\-on (does not "
      "fit, unknown)\n"
      ".TP\n.B 2\nwrong usage\n.TP\n.B 3\nthe model cannot be read or has open dimensions; the report cannot be "
      "written\n.TP\n.B 70\na defect in memplan\n"
      ".SH ENVIRONMENT\nEvery flag may be set as MEMPLAN_<FLAG>, such as MEMPLAN_GPU=80GB. NO_COLOR switches colours "
      "off.\n";
  write_out(out, {});
  return 0;
}

}  // namespace memplan::cli
