#include "cli/format_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "estimators/base/error.h"

namespace memplan::cli {

std::string_view format_choices() {
  static const std::string choices = fmt::format("{}", fmt::join(format_names, "|"));
  return choices;
}

std::string_view known_format(std::string_view name, std::string_view flag) {
  const auto known = std::find(format_names.begin(), format_names.end(), name);
  if (known == format_names.end())
    fail(ErrorKind::usage, fmt::format("'{}' is not a value for {}", name, flag), std::string(flag),
         fmt::format("use one of {}", fmt::join(format_names, ", ")));
  return *known;
}

}  // namespace memplan::cli
