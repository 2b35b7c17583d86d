// What must stay free of a card.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "estimators/base/bytes.h"

namespace memplan {

struct Margin {
  std::optional<Bytes> bytes;
  double percent = 0;  ///< of the card, without `bytes`

  Bytes of(Bytes total) const {
    if (bytes) return *bytes;
    return Bytes(static_cast<std::int64_t>(std::llround(static_cast<double>(total.count) * percent / 100.0)));
  }
};

}  // namespace memplan
