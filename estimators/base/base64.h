// Bytes as text (RFC 4648, with padding): what a format keeps that only knows texts.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace memplan {

std::string to_base64(std::string_view bytes);

/// None for anything but whole groups of four letters, padded at the end alone.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace memplan
