// memplan.toml: what the gate checks. A rule that is not written is off; a key that memplan does not know is an error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags/options.h"
#include "cli/flags/threshold.h"
#include "cli/report/state.h"
#include "estimators/base/bytes.h"

namespace memplan::cli {

/// A setting of the model's setup, as the flag of the same name would be given.
struct Setting {
  std::vector<std::string> values;  ///< empty of a switch that is off
  std::int64_t line = 0;
  bool from_defaults = false;  ///< [defaults], not the target itself
};

struct Target {
  std::string name;
  std::string model;                                     ///< as written, relative to the folder of the configuration
  std::string path;                                      ///< as this process can open it
  std::map<std::string, Setting> setup;                  ///< by the name of the flag
  std::optional<Threshold> limit, warn;                  ///< of the peak; percent of the card
  std::optional<Threshold> max_increase, warn_increase;  ///< of the peak over the baseline's; percent of the baseline
  std::string baseline;                                  ///< a report of its own instead of the common baseline
  std::string message;                                   ///< said when the target fails
  std::int64_t line = 1, model_line = 1;
};

/// A finding that is known and accepted until a day.
struct Ignore {
  GateRule rule = GateRule::error;
  std::string target, reason, expires;  ///< target may be a glob; expires "2027-01-31", that day included
  std::int64_t line = 1;
};

struct Config {
  std::string path;    ///< as opened
  std::string shown;   ///< as reports name it: relative to the working directory where it lies below it
  std::string folder;  ///< models and baselines lie in it or below
  std::vector<Target> targets;
  std::vector<Ignore> ignores;
  std::optional<std::vector<std::string>> fail_on;
  std::int64_t fail_on_line = 0;
  std::string baseline = ".memplan/baseline.json";
  std::int64_t baseline_line = 0;  ///< 0: nobody wrote it
  bool ratchet = false;            ///< a peak that falls below the baseline must be locked in by an update
};

/// The configuration of --config, or the nearest memplan.toml, .config/memplan.toml or pyproject.toml with
/// [tool.memplan] from the working directory upward, not beyond the root of the repository. Failure(usage) when there
/// is none, when it is not TOML, has unknown keys or wrong values, or names models outside of its folder.
Config load_config(const std::string& given);

/// The options of a target: those that its setup would give as flags. The environment has no part in it.
Options options_of(const Config& config, const Target& target);

/// A path of the configuration as this process can open it. Failure(usage) when it leads out of the folder.
std::string confined(const Config& config, const std::string& path, std::int64_t line, std::string_view what);

/// True of the flags that a target may set: those that say what is estimated, not those about looks or the gate.
bool is_setup_flag(const Flag& flag);

}  // namespace memplan::cli
