// What a dimension is under three assignments at once: the file's own size, a probe that no other dimension has by
// chance, and the size that is wanted. Where the file's and the probe's differ, the dimension depends on the size that
// is being followed; what it is for the wanted size needs no algebra then, it is the third number.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace memplan::resizing {

struct Size {
  std::int64_t file = 1, probe = 1, wanted = 1;
  bool follows() const { return file != probe || file != wanted; }
  friend bool operator==(const Size&, const Size&) = default;
};

constexpr Size fixed(std::int64_t n) { return {n, n, n}; }
Size operator*(const Size& a, const Size& b);

/// A dimension as a product in the order of memory, outermost first: 64 windows of each sample are {batch, 64}, and the
/// other way round they are another dimension.
using Factors = std::vector<Size>;

Size product(const Factors& factors);

/// The factors of each dimension of a view: `from` in the order of memory, divided among dimensions that have the sizes
/// `to` in the file. None where a part that follows would have to be cut. A part of one element may end a dimension as
/// well as begin the next one: it does so in the dimensions that `ends` lists.
std::optional<std::vector<Factors>> divide(const Factors& from, std::span<const std::int64_t> to,
                                           const std::set<int>& ends = {});

}  // namespace memplan::resizing
