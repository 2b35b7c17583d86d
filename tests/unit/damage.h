// Bytes as a bad disk, a bad line or a bad person leaves them.
#pragma once

#include <random>
#include <string>

namespace memplan {

inline std::string damaged(std::string bytes, std::mt19937_64& random) {
  auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  switch (random() % 5) {
    case 0:
      bytes.resize(below(bytes.size()));
      break;  // cut off
    case 1:
      for (std::size_t k = 1 + below(8); k-- > 0;) bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
      break;  // flipped bits
    case 2:
      for (std::size_t k = 1 + below(4); k-- > 0;) bytes[below(bytes.size())] = static_cast<char>(random());
      break;
    case 3:
      bytes.erase(below(bytes.size()), 1 + below(40));
      break;
    default: {
      const std::size_t from = below(bytes.size());  // a piece twice
      bytes.insert(below(bytes.size()), bytes.substr(from, 1 + below(200)));
    }
  }
  return bytes;
}

}  // namespace memplan
