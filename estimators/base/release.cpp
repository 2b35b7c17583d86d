#include "estimators/base/release.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace memplan {

std::optional<Release> release_of(std::string_view text) {
  Release v;
  const char* const end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, v.major);
  if (error != std::errc() || at == end || *at != '.') return {};
  const auto minor = std::from_chars(at + 1, end, v.minor);
  if (minor.ec != std::errc()) return {};
  if (minor.ptr != end && *minor.ptr != '.' && *minor.ptr != '+' && *minor.ptr != 'a' && *minor.ptr != 'b' &&
      *minor.ptr != 'r')
    return {};
  const auto known = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '+'; };
  if (!std::all_of(text.begin(), text.end(), known) || text.back() == '.') return {};
  return v;
}

}  // namespace memplan
