#include "estimators/frontends/onnx/stage_sizes.h"

#include <algorithm>
#include <charconv>

#include "estimators/base/bytes.h"

namespace memplan::onnx_format {

namespace {

using Sizes = std::vector<std::int64_t>;

/// A path cut where a stage's number stands: "encoder.layer", 3, ".0.conv1.weight".
struct Staged {
  std::string_view before, after;
  int number = 0;

  std::string root(int stages_back) const {
    return std::string(before) + std::to_string(number - stages_back) + std::string(after.substr(0, 1));
  }
};

/// By the first part of the path that ends in a number of at least 2.
std::optional<Staged> staged(std::string_view path) {
  for (std::size_t end = path.find('.'); end != path.npos; end = path.find('.', end + 1)) {
    std::size_t digits = end;
    while (digits > 0 && path[digits - 1] >= '0' && path[digits - 1] <= '9') --digits;
    Staged s{path.substr(0, digits), path.substr(end), 0};
    const auto read = std::from_chars(path.data() + digits, path.data() + end, s.number);
    if (read.ec == std::errc() && end - digits <= 3 && s.number >= 2) return s;
  }
  return std::nullopt;
}

constexpr std::size_t channel_dims = 2;  ///< of a weight; others are its kernel's

/// ".0.conv1.weight" -> ".conv1.weight": a stage may have more blocks than the one before it, all but the first alike.
std::string_view in_block(std::string_view after) {
  const auto dot = after.find('.', 1);
  const bool number = dot != after.npos && after.substr(1, dot - 1).find_first_not_of("0123456789") == after.npos;
  return number ? after.substr(dot) : std::string_view();
}

}  // namespace

std::string stage_of(std::string_view path) {
  const std::optional<Staged> stage = staged(path);
  return stage ? stage->root(0) : std::string();
}

/// None where they differ in anything else, or some do not grow.
std::optional<NextStages::Growth> NextStages::growth(const std::string& first, const std::string& second) const {
  Growth g;
  for (auto it = known_.lower_bound(second); it != known_.end() && it->first.starts_with(second); ++it) {
    const auto twin = known_.find(first + it->first.substr(second.size()));
    if (twin == known_.end()) continue;
    const Sizes &a = twin->second, &b = it->second;
    if (a.size() != b.size()) return std::nullopt;
    if (a.size() == 1 && a == b) return std::nullopt;  // a norm or a bias: as wide as before
    for (std::size_t d = 0; d < a.size(); ++d) {
      if (a[d] == b[d]) continue;
      if (d >= channel_dims || a[d] <= 0 || b[d] % a[d] != 0 || (g.factor != 0 && b[d] / a[d] != g.factor))
        return std::nullopt;
      g.factor = b[d] / a[d];
      g.channels.insert({a[d], b[d]});
    }
  }
  return g.factor > 1 ? std::optional(g) : std::nullopt;
}

/// A parameter of the stage: at the same place, or else what all blocks but the first have there.
const NextStages::Sizes* NextStages::twin_of(const std::string& root, std::string_view after) {
  if (const auto same = known_.find(root + std::string(after.substr(1))); same != known_.end()) return &same->second;
  const auto [blocks, fresh] = in_blocks_.try_emplace(root);
  for (auto it = known_.lower_bound(root); fresh && it != known_.end() && it->first.starts_with(root); ++it) {
    const std::string_view path = std::string_view(it->first).substr(root.size() - 1), rest = in_block(path);
    if (rest.empty() || path.starts_with(".0.")) continue;
    const auto [known, first] = blocks->second.try_emplace(std::string(rest), it->second);
    if (!first && known->second != it->second) known->second.clear();  // blocks that differ
  }
  const auto found = blocks->second.find(in_block(after));
  return found == blocks->second.end() || found->second.empty() ? nullptr : &found->second;
}

std::optional<std::vector<std::int64_t>> NextStages::sizes_of(std::string_view path) {
  const std::optional<Staged> stage = staged(path);
  if (!stage) return std::nullopt;
  const auto [g, fresh] = growth_.try_emplace(stage->root(0));
  if (fresh) g->second = growth(stage->root(2), stage->root(1));
  const Sizes* before = g->second ? twin_of(stage->root(1), stage->after) : nullptr;
  if (!before) return std::nullopt;
  Sizes sizes = *before;
  for (std::size_t d = 0; d < std::min(sizes.size(), channel_dims); ++d)
    if (g->second->channels.contains(sizes[d])) sizes[d] = checked_mul(sizes[d], g->second->factor);
  return sizes;
}

}  // namespace memplan::onnx_format
