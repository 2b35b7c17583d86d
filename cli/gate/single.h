// The gate of one model on the command line: limits and a baseline as flags instead of a memplan.toml.
#pragma once

#include "cli/report/document.h"

namespace memplan::cli {

/// True where a limit, a baseline or a word of --fail-on that is no verdict was given. Failure(usage) where a flag asks
/// for a baseline that nobody named.
bool is_gated(const Options& options);

/// Adds to a report what its gate found: "gate" gets status, rules, baseline and fix, "diff" the comparison. Returns
/// the exit code. Failure(baseline) where the baseline is missing, damaged, or made for another card or mode.
int add_gate(Json& report, const Options& options);

/// Failure(baseline) unless both reports are of one card and mode: anything else is another question, and its bytes are
/// no baseline for this one.
void require_comparable(const Json& base, const Json& report, const std::string& path);

}  // namespace memplan::cli
