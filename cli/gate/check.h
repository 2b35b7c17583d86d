// The gate: every target of a configuration estimated and held against its rules.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/gate/config.h"
#include "cli/report/document.h"

namespace memplan::cli {

/// What the command line and the environment say beside the configuration, each with where it was said.
struct GateFlags {
  std::optional<std::vector<std::string>> fail_on;
  std::string fail_on_origin;
  std::optional<std::string> baseline;  ///< relative to the working directory
  std::string baseline_origin;
  std::vector<std::string> targets;  ///< names or globs; empty: all
  bool exit_zero = false;
};

/// Those of the command line (or the environment); `targets` are not taken from it, since commands differ in where they
/// stand.
GateFlags gate_flags(const Options& options, std::vector<std::string> targets = {});

/// A document of the kind "check". A target that cannot be estimated has the status "error" and makes the exit code of
/// its error, but the others are still checked: a report of half the truth beats none.
Json check_targets(const Config& config, const GateFlags& flags);

/// The same document without rules and comparisons: what a baseline file holds.
Json baseline_of(const Config& config, const std::vector<std::string>& targets);

/// The file of the baseline and whether somebody named it.
struct BaselinePlace {
  std::string path, origin;
  bool named = false;
};
BaselinePlace baseline_place(const Config& config, const GateFlags& flags);

/// The words that fail the gate, and who says so.
struct FailOn {
  std::vector<std::string> words;
  std::string origin;
};
FailOn fail_on(const Config& config, const GateFlags& flags);

/// One row of a list per line, so that two versions of a baseline can be read side by side.
std::string baseline_text(const Json& document);

}  // namespace memplan::cli
