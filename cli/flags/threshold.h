// A limit as people write it: bytes, a size with its unit, or a share of something that the rule names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "estimators/base/bytes.h"

namespace memplan::cli {

/// "70GiB", or "90%" of something that the rule names (the card, or the baseline).
struct Threshold {
  std::optional<Bytes> bytes;
  double percent = 0;
  std::string text;       ///< as written
  std::int64_t line = 0;  ///< of the configuration
  std::string origin;     ///< the flag or variable that said it; empty of a configuration's
  /// In bytes; `whole` is what a percentage is of.
  Bytes of(Bytes whole) const;
};

/// Failure(usage) where `text` is no size, or a bare number of fewer bytes than anybody means; `or_else` ends the hint.
Bytes parse_size_with_unit(std::string_view text, std::string_view flag, std::string_view or_else = {});

/// Failure(usage) naming `flag` where the text is neither a size nor a percentage.
Threshold parse_threshold(std::string_view text, std::string_view flag);

/// Failure(usage) where it is more than all of what it is a share of, which no peak of a run reaches.
void refuse_more_than_all(const Threshold& share, std::string_view flag);

}  // namespace memplan::cli
