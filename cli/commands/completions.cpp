#include <fmt/format.h>

#include <algorithm>

#include "cli/commands/commands.h"
#include "cli/terminal/output.h"
#include "estimators/facts/device.h"

namespace memplan::cli {

namespace {

std::string words_of(std::string_view choices) {
  std::string words(choices);
  std::replace(words.begin(), words.end(), '|', ' ');
  return words;
}

std::string command_names() {
  std::string names;
  for (const Command& c : commands()) names += fmt::format("{}{}", names.empty() ? "" : " ", c.name);
  return names;
}

std::string device_keys() {
  std::string keys;
  for (const Device& d : devices()) keys += fmt::format("{}{}", keys.empty() ? "" : " ", d.key);
  return keys;
}

std::string flags_of(const Command& command) {
  std::string names;
  for (const Flag& f : flags())
    if (f.commands & command.id) names += fmt::format("{}--{}", names.empty() ? "" : " ", f.name);
  return names;
}

std::string bash() {
  std::string values, by_command;
  for (const Flag& f : flags()) {
    if (!f.choices.empty())
      values += fmt::format("    --{}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n", f.name,
                            words_of(f.choices));
    else if (!f.value.empty() && f.name != "gpu" && f.name != "output")
      values += fmt::format("    --{}) return ;;\n", f.name);
  }
  for (const Command& c : commands()) by_command += fmt::format("    {}) flags=\"{}\" ;;\n", c.name, flags_of(c));
  return fmt::format(R"(# memplan completions for bash: source <(memplan completions bash)
_memplan() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} flags
  case $prev in
    --gpu) COMPREPLY=($(compgen -W "{}" -- "$cur")); return ;;
    -o|--output) COMPREPLY=($(compgen -f -- "$cur")); return ;;
{}  esac
  case ${{COMP_WORDS[1]}} in
{}    *) flags="{}" ;;
  esac
  case ${{COMP_WORDS[1]}} in
    devices) [[ $cur != -* ]] && COMPREPLY=($(compgen -W "{}" -- "$cur")) && return ;;
    completions) COMPREPLY=($(compgen -W "bash zsh fish" -- "$cur")); return ;;
  esac
  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif (( COMP_CWORD == 1 )); then COMPREPLY=($(compgen -W "{}" -- "$cur") $(compgen -f -- "$cur"))
  else COMPREPLY=($(compgen -f -- "$cur")); fi
}}
complete -o filenames -F _memplan memplan
)",
                     device_keys(), values, by_command, flags_of(*find_command("estimate")), device_keys(),
                     command_names());
}

/// Descriptions go into single quotes; in zsh's specs brackets and colons have a meaning.
std::string quoted(std::string_view text, bool zsh) {
  std::string out;
  for (char c : text) {
    if (c == '\'')
      out += zsh ? "'\\''" : "\\'";
    else if (zsh && (c == '[' || c == ']' || c == ':'))
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out;
}

std::string zsh() {
  std::string out =
      "#compdef memplan\n# memplan completions for zsh: memplan completions zsh > \"${fpath[1]}/_memplan\"\n_memplan() "
      "{\n  local -a specs\n";
  out += fmt::format("  if (( CURRENT == 2 )); then compadd -- {}; fi\n", command_names());
  out += "  case ${words[2]} in\n    completions) compadd -- bash zsh fish; return ;;\n";
  out += fmt::format("    devices) [[ ${{words[CURRENT]}} != -* ]] && compadd -- {} ;;\n  esac\n", device_keys());
  out += "  case ${words[2]} in\n";
  for (const Command& c : commands()) {
    if (c.name == "estimate") continue;
    out += fmt::format("    {}) specs=(", c.name);
    for (const Flag& f : flags())
      if (f.commands & c.id) out += fmt::format(" '--{}[{}]'", f.name, quoted(f.help, true));
    out += ") ;;\n";
  }
  out += "    *) specs=(\n";
  for (const Flag& f : flags()) {
    if (!(f.commands & in_estimate)) continue;
    std::string value;
    if (!f.choices.empty())
      value = fmt::format(":{}:({})", f.value, words_of(f.choices));
    else if (f.name == "gpu")
      value = fmt::format(":gpu:({})", device_keys());
    else if (f.name == "output")
      value = ":file:_files";
    else if (!f.value.empty())
      value = fmt::format(":{}:", f.name);
    out += fmt::format("      '--{}[{}]{}'\n", f.name, quoted(f.help, true), value);
  }
  out += "    ) ;;\n  esac\n  _arguments -s $specs '*:file:_files'\n}\n_memplan \"$@\"\n";
  return out;
}

std::string fish() {
  std::string out =
      "# memplan completions for fish: memplan completions fish > ~/.config/fish/completions/memplan.fish\n";
  for (const Command& c : commands())
    out +=
        fmt::format("complete -c memplan -n __fish_use_subcommand -a {} -d '{}'\n", c.name, quoted(c.summary, false));
  out += fmt::format("complete -c memplan -n '__fish_seen_subcommand_from devices' -f -a '{}'\n", device_keys());
  out += "complete -c memplan -n '__fish_seen_subcommand_from completions' -f -a 'bash zsh fish'\n";
  for (const Flag& f : flags()) {
    std::string condition;
    if (!(f.commands & in_estimate)) {
      for (const Command& c : commands())
        if (f.commands & c.id)
          condition += fmt::format("{}{}", condition.empty() ? " -n '__fish_seen_subcommand_from " : " ", c.name);
      condition += "'";
    }
    std::string value;
    if (!f.choices.empty())
      value = fmt::format(" -x -a '{}'", words_of(f.choices));
    else if (f.name == "gpu")
      value = fmt::format(" -x -a '{}'", device_keys());
    else if (f.name == "output")
      value = " -r -F";
    else if (!f.value.empty())
      value = " -x";
    out += fmt::format("complete -c memplan{} -l {}{}{} -d '{}'\n", condition, f.name,
                       f.letter.empty() ? "" : fmt::format(" -s {}", f.letter), value, quoted(f.help, false));
  }
  return out;
}

}  // namespace

int run_completions(const Options& options) {
  if (options.argument == "bash")
    write_out(bash(), {});
  else if (options.argument == "zsh")
    write_out(zsh(), {});
  else if (options.argument == "fish")
    write_out(fish(), {});
  else
    fail(ErrorKind::usage, fmt::format("there are no completions for '{}'", options.argument), "memplan completions",
         "use bash, zsh or fish");
  return 0;
}

}  // namespace memplan::cli
