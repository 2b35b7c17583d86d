// Numbers of files as whole numbers of 64 bits: a cast of a double beyond them is undefined, and so is a difference.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "estimators/base/error.h"

namespace memplan {

/// -2^63 to 2^63 - 1; false for NaN. Both bounds are doubles, the largest whole number is not.
inline bool fits_whole_number(double number) { return number >= -0x1p63 && number < 0x1p63; }

/// Rounded towards zero. Failure(input) that names `place` ("the op", "the program") where no whole number of 64 bits
/// is meant.
inline std::int64_t whole_number(double number, std::string_view place) {
  if (fits_whole_number(number)) return static_cast<std::int64_t>(number);
  const std::string in = " in " + std::string(place);
  if (std::isnan(number)) fail_input("a whole number is wanted" + in + ", and there is nan");
  fail_input("a number" + in + " is beyond 64 bits", {}, "check the dimensions given, and the file");
}

/// A number of a JSON; what is no number is the reader's to refuse. Failure(input) as above.
template <class Json>
std::int64_t whole_number_of(const Json& j, std::string_view place) {
  if (j.is_number_float()) return whole_number(j.template get<double>(), place);
  const bool beyond =
      j.is_number_unsigned() && j.template get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max();
  if (beyond) fail_input("a number in " + std::string(place) + " is beyond 64 bits");
  return j.template get<std::int64_t>();
}

/// One of 32 bits: an index.
template <class Json>
std::int32_t index_of(const Json& j, std::string_view place) {
  const std::int64_t n = whole_number_of(j, place);
  if (n != static_cast<std::int32_t>(n)) fail_input("an index in " + std::string(place) + " is beyond 32 bits");
  return static_cast<std::int32_t>(n);
}

/// Python's a // b; `b` is not 0. Failure(input) where the result is beyond 64 bits.
inline std::int64_t floored_quotient(std::int64_t a, std::int64_t b, std::string_view place) {
  if (b == -1 && a == std::numeric_limits<std::int64_t>::min())
    fail_input("a number in " + std::string(place) + " is beyond 64 bits");
  const std::int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/// Python's a % b, which has the sign of `b`; `b` is not 0.
inline std::int64_t floored_remainder(std::int64_t a, std::int64_t b) {
  if (b == -1) return 0;  // the lowest number has no quotient
  const std::int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

}  // namespace memplan
