// Numbers of releases, of which the first two say what a program does: PyTorch 2.13, ONNX Runtime 1.26.
#pragma once

#include <compare>
#include <optional>
#include <string_view>

namespace memplan {

struct Release {
  int major = 0, minor = 0;
  auto operator<=>(const Release&) const = default;
};

/// Of "2.13", "2.13.1", "2.16.0rc1", "2.15.0+cu132" and "2.16.0.dev20261101"; nothing of other texts.
std::optional<Release> release_of(std::string_view text);

}  // namespace memplan
