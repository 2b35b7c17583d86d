// The rules of one target: what each compares, and what it found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/gate/config.h"
#include "cli/report/document.h"
#include "cli/report/state.h"

namespace memplan::cli {

struct RuleContext {
  const Config* config = nullptr;
  const Target* target = nullptr;
  std::vector<std::string> fail_on;
  std::string fail_on_origin;
  std::string today;  ///< "2026-11-21", in UTC
};

/// [{rule, code, status, value_bytes, threshold_bytes, threshold, origin, line, message, reason?}]; `base` is the
/// baseline's report or null. Codes are stable (docs/ci.md).
Json rules_of(const RuleContext& context, const Json& report, const Json& base);

/// The least that a peak must come down to so that every rule passes; nothing when all do.
std::optional<Bytes> wanted_peak(const RuleContext& context, const Json& report, const Json& base);

/// The worst of them: failed, warned or passed.
GateState worst_of(const Json& rules);

/// Today, or the day of SOURCE_DATE_EPOCH, which makes old builds repeatable.
std::string today_in_utc();

}  // namespace memplan::cli
