// The names of the formats of a report; report/formats.h has what each does.
#pragma once

#include <array>
#include <string_view>

namespace memplan::cli {

inline constexpr std::array<std::string_view, 11> format_names{
    "text", "json", "md", "csv", "sarif", "junit", "github", "gitlab", "html", "perfetto", "snapshot"};

/// "text|json|md|…"
std::string_view format_choices();

/// The name as it stands in the table. Failure(usage) with the known names when there is none of this name; `flag` is
/// named in it.
std::string_view known_format(std::string_view name, std::string_view flag);

}  // namespace memplan::cli
