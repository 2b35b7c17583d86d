// The names of the formats of a report, as flags need them. The table in report/formats.cpp has the formats and defines
// these functions.
#pragma once

#include <string_view>

namespace memplan::cli {

/// "text|json|md|…"
std::string_view format_choices();

/// The name as it stands in the table. Failure(usage) with the known names when there is none of this name; `flag` is
/// named in it.
std::string_view known_format(std::string_view name, std::string_view flag);

}  // namespace memplan::cli
