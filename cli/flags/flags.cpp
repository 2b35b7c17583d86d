#include "cli/flags/flags.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "estimators/base/text.h"

namespace memplan::cli {

namespace {

constexpr std::size_t many = 1000;

constexpr std::array command_table{
    Command{"estimate", "MODEL", "estimate one setup (the default command)", in_estimate},
    Command{"explain", "MODEL|CODE",
            "what lives at the peak and why; the reference program; what a code such as MP101 means", in_explain},
    Command{"report", "REPORT.json", "a saved JSON report in another format", in_report},
    Command{"suggest", "MODEL", "what must change so that it fits, fastest first, with settings to paste", in_suggest},
    Command{"check", "[TARGET...]", "the gate: every target of memplan.toml against its limits and the baseline",
            in_check, many},
    Command{"diff", "A [B]", "what moved between two reports, models or setups (--to)", in_diff, 2},
    Command{"baseline", "write|update|show [TARGET...]", "the peaks that memplan check compares with", in_baseline,
            many},
    Command{"config", "show [TARGET...]", "memplan.toml as memplan reads it; --effective: every value with its origin",
            in_config, many},
    Command{"validate", "MODEL", "the estimate against PyTorch itself, on the emulated GPU or a real one", in_validate},
    Command{"size", "MODEL", "the largest batch and sequence of a card, and the smallest or cheapest cards", in_size},
    Command{"sweep", "MODEL", "a table over lists of values: --batch 1,2,4..64 --amp none,bf16 --gpu l4,a10", in_sweep},
    Command{"devices", "[NAME]", "the GPUs that memplan knows, or one of them", in_devices},
    Command{"ops", "[MODEL]", "the ops that memplan models, or those of a model", in_ops},
    Command{"observe", "-- COMMAND ...", "run a PyTorch script on an emulated GPU: what would it have needed?",
            in_observe},
    Command{"calibrate", "",
            "measure this machine's GPU with PyTorch; estimates for it then use the measured context and total",
            in_calibrate, 0},
    Command{"export", "SOURCE",
            "write a model's graph as a .pt2 file, without weights (runs your Python; docs/export.md)", in_export},
    Command{"record", "SOURCE", "run a model's own code on the emulated GPU and write down what it allocates",
            in_record},
    Command{
        "attach", "RECORDING MODEL",
        "put a recording into the ONNX file or .pt2 archive of its module, which then answers as the recording does",
        in_attach, 2},
    Command{"schema", "[NAME]",
            "the JSON Schema of what --format json prints: report (the default), observe, planner, validate",
            in_schema},
    Command{"completions", "bash|zsh|fish", "print a completion script for a shell", in_completions},
    Command{"man", "", "print the manual page", in_man},
};

}  // namespace

std::span<const Command> commands() { return command_table; }

std::string usage_of(const Command& command) {
  return "memplan " + std::string(command.name) + (command.usage.empty() ? "" : " ") + std::string(command.usage);
}

std::span<const Flag> flags() {
  static const std::vector<Flag> all = [] {
    std::vector<Flag> both(setup_flags().begin(), setup_flags().end());
    both.insert(both.end(), command_flags().begin(), command_flags().end());
    return both;
  }();
  return all;
}

const Command* find_command(std::string_view name) {
  for (const Command& c : command_table)
    if (c.name == name) return &c;
  return nullptr;
}

const Flag* find_flag(std::string_view name) {
  for (const Flag& f : flags())
    if (f.name == name) return &f;
  return nullptr;
}

std::string_view choices_of(const Flag& flag, const Command& command) {
  if (flag.name != "format" || (command.id & in_documents)) return flag.choices;
  return command.id == in_sweep ? "text|json|csv" : command.id == in_suggest ? "text|json|md" : "text|json";
}

const Command* nearest_command(std::string_view name) {
  const Command* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (const Command& c : command_table)
    if (const std::size_t d = edit_distance(name, c.name); d < best_distance) best_distance = d, best = &c;
  return best;
}

std::string_view nearest_flag(std::string_view name, std::uint32_t commands) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const Flag& f : flags()) {
    if (!(f.commands & commands)) continue;
    const std::size_t d = edit_distance(name, f.name);
    if (d < best_distance) {
      best_distance = d;
      best = f.name;
    }
  }
  return best;
}

}  // namespace memplan::cli
