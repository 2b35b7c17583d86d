// Sizes in bytes, with checked arithmetic: a size that overflows is an input error, never a wrap-around.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "estimators/base/error.h"

namespace memplan {

/// Checked 64-bit product, sum and difference; shapes come from files, so their products are not to be trusted.
inline std::int64_t checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) fail_input("a size overflows 64 bits", {}, "check the dimensions given");
  return r;
}
inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  if (__builtin_add_overflow(a, b, &r)) fail_input("a size overflows 64 bits", {}, "check the dimensions given");
  return r;
}
inline std::int64_t checked_sub(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  if (__builtin_sub_overflow(a, b, &r)) fail_input("a size overflows 64 bits", {}, "check the dimensions given");
  return r;
}

struct Bytes {
  std::int64_t count = 0;

  constexpr Bytes() = default;
  explicit constexpr Bytes(std::int64_t n) : count(n) {}
  static constexpr Bytes kib(std::int64_t n) { return Bytes(n << 10); }
  static constexpr Bytes mib(std::int64_t n) { return Bytes(n << 20); }
  static constexpr Bytes gib(std::int64_t n) { return Bytes(n << 30); }

  friend Bytes operator+(Bytes a, Bytes b) { return Bytes(checked_add(a.count, b.count)); }
  friend Bytes operator-(Bytes a, Bytes b) { return Bytes(checked_add(a.count, -b.count)); }
  friend Bytes operator*(Bytes a, std::int64_t n) { return Bytes(checked_mul(a.count, n)); }
  Bytes& operator+=(Bytes b) { return *this = *this + b; }
  Bytes& operator-=(Bytes b) { return *this = *this - b; }
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
};

/// "1.50 GiB", "97.7 MiB", "512 B": binary units, three significant figures, for people.
std::string to_human(Bytes size);

}  // namespace memplan
