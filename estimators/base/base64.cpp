#include "estimators/base/base64.h"

#include <array>
#include <cstdint>

namespace memplan {

namespace {

constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> values = [] {
  std::array<std::int8_t, 256> out{};
  out.fill(-1);
  for (std::size_t i = 0; i < letters.size(); ++i)
    out[static_cast<unsigned char>(letters[i])] = static_cast<std::int8_t>(i);
  return out;
}();

std::uint32_t byte_at(std::string_view bytes, std::size_t at) {
  return at < bytes.size() ? static_cast<unsigned char>(bytes[at]) : 0;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::uint32_t group = byte_at(bytes, i) << 16 | byte_at(bytes, i + 1) << 8 | byte_at(bytes, i + 2);
    for (int shift = 18; shift >= 0; shift -= 6) out += letters[(group >> shift) & 63];
  }
  const std::size_t rest = bytes.size() % 3;
  if (rest > 0) out.replace(out.size() - (3 - rest), 3 - rest, 3 - rest, '=');
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    for (std::size_t k = i; k < i + 4; ++k) {
      const bool padded = k >= text.size() - padding;
      const int value = padded ? 0 : values[static_cast<unsigned char>(text[k])];
      if (value < 0) return std::nullopt;
      group = group << 6 | static_cast<std::uint32_t>(value);
    }
    for (int shift = 16; shift >= 0; shift -= 8) out += static_cast<char>((group >> shift) & 255);
  }
  out.resize(out.size() - padding);
  return out;
}

}  // namespace memplan
