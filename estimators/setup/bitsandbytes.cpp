#include "estimators/setup/bitsandbytes.h"

#include <array>
#include <charconv>
#include <cstddef>

namespace memplan {

std::optional<bool> bitsandbytes_keeps_inputs(std::string_view version) {
  std::array<int, 3> parts{};
  const char *at = version.data(), *const end = at + version.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, parts[i]);
    if (error != std::errc() || parts[i] < 0) return std::nullopt;
    if (next == end) return parts < std::array{0, 43, 2};
    if (*next != '.') return std::nullopt;
    at = next + 1;
  }
  return std::nullopt;
}

}  // namespace memplan
