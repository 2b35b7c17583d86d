// What would make a gate green again: the planner's smallest change, put through the very rules that failed.
#pragma once

#include "cli/gate/rules.h"

namespace memplan::cli {

/// {flags, peak_bytes, verdict, headroom_bytes, saves_bytes, cautions, configuration} of the smallest change with which
/// no rule finds anything (or, where none is that good, with which no rule fails); null when no change that was
/// estimated is. `options` are those of the failing report, `base` the baseline's report or null.
Json smallest_fix(const Options& options, const RuleContext& context, const Json& report, const Json& base);

/// "batch = 4" and its like: flags as lines of memplan.toml.
Json configuration_lines(const std::string& flags);

}  // namespace memplan::cli
