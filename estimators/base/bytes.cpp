#include "estimators/base/bytes.h"

#include <fmt/format.h>

#include <cmath>

namespace memplan {

std::string to_human(Bytes size) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(size.count);
  int unit = 0;
  while (std::abs(value) >= 1024.0 && unit < 5) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", size.count);
  const double magnitude = std::abs(value);
  return fmt::format("{:.{}f} {}", value, magnitude < 10 ? 2 : 1, units[unit]);
}

}  // namespace memplan
