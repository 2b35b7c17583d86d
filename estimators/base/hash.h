// A hash that stays the same between runs, machines and versions: for what is told and compared, never trusted.
#pragma once

#include <cstdint>
#include <string_view>

namespace memplan {

/// FNV-1a, 64 bits, over texts one after the other; "ab", "c" is not "a", "bc".
class StableHash {
 public:
  void add(std::string_view text) {
    for (const char c : text) take(static_cast<unsigned char>(c));
    take(0xFF);
  }
  std::uint64_t value() const { return value_; }

 private:
  void take(unsigned char byte) { value_ = (value_ ^ byte) * 1099511628211ULL; }
  std::uint64_t value_ = 14695981039346656037ULL;
};

}  // namespace memplan
