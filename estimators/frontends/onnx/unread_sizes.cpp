#include "estimators/frontends/onnx/unread_sizes.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace memplan::onnx_format {

namespace {

using Sizes = std::vector<std::int64_t>;

/// "layers.#.attn.weight"
std::string without_numbers(std::string_view path) {
  std::string out;
  for (std::size_t i = 0; i <= path.size();) {
    const std::size_t end = std::min(path.find('.', i), path.size());
    const std::string_view part = path.substr(i, end - i);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    out += number ? std::string_view("#") : part;
    if (end < path.size()) out += '.';
    i = end + 1;
  }
  return out;
}

/// The last `parts` parts of a path; empty where it has not more than these.
std::string_view tail(std::string_view path, int parts) {
  std::size_t at = path.size();
  for (int i = 0; i < parts; ++i) {
    at = at == 0 ? path.npos : path.rfind('.', at - 1);
    if (at == path.npos) return {};
  }
  return path.substr(at + 1);
}

/// The path without them.
std::string_view head(std::string_view path, int parts) {
  const std::string_view end = tail(path, parts);
  return end.empty() ? std::string_view{} : path.substr(0, path.size() - end.size());
}

/// What all parameters that `accept` takes have in common.
template <class Accept>
std::optional<Sizes> common(const KnownSizes& known, Accept&& accept) {
  const Sizes* found = nullptr;
  for (const auto& [path, sizes] : known) {
    if (!accept(std::string_view(path))) continue;
    if (found && *found != sizes) return std::nullopt;
    found = &sizes;
  }
  return found ? std::optional(*found) : std::nullopt;
}

using Counts = std::map<Sizes, std::int64_t>;

/// Of several that occur as often the first in order.
std::optional<Sizes> most_frequent(const Counts& counts) {
  const auto most = std::ranges::max_element(counts, {}, &Counts::value_type::second);
  return most == counts.end() ? std::nullopt : std::optional(most->first);
}

/// `width` wide, with the geometric mean of the numbers of those that occur more than once: the others are embeddings
/// and heads.
std::optional<Sizes> repeated_matrix(const Counts& matrices, std::int64_t width) {
  double sum = 0, count = 0;
  for (const auto& [s, times] : matrices) {
    if (times < 2) continue;
    const double numbers = static_cast<double>(s[0]) * static_cast<double>(s[1]);
    sum += std::log(std::max(numbers, 1.)) * static_cast<double>(times);
    count += static_cast<double>(times);
  }
  if (count == 0) return std::nullopt;
  const double rows = std::exp(sum / count) / static_cast<double>(width);
  return Sizes{std::max<std::int64_t>(std::llround(rows), 1), width};
}

bool is_norm(std::string_view path) {
  std::string module(head(path, 1));
  std::ranges::transform(module, module.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string_view last = tail(std::string_view(module).substr(0, module.empty() ? 0 : module.size() - 1), 1);
  return last.find("norm") != last.npos || last.starts_with("ln");
}

/// transformers' mask_token stands for a patch: as wide as the tokens beside it are, or as what a patch becomes
/// (models/dinov2/modeling_dinov2.py:40). masked_spec_embed stands for a frame of a speech encoder, which is as wide as
/// its norms are (models/wav2vec2/modeling_wav2vec2.py:1275).
std::optional<std::int64_t> width_of_token(std::string_view path, const KnownSizes& known) {
  const std::string_view leaf = path.substr(path.rfind('.') + 1);
  const std::string module(path.substr(0, path.size() - leaf.size()));
  if (leaf == "masked_spec_embed") {
    const std::string encoder = module + "encoder.";
    const auto width = common(known, [&](std::string_view p) { return p.starts_with(encoder) && is_norm(p); });
    return width && width->size() == 1 ? std::optional(width->front()) : std::nullopt;
  }
  if (leaf != "mask_token") return std::nullopt;
  if (const auto token = known.find(module + "cls_token"); token != known.end() && !token->second.empty())
    return token->second.back();
  for (const auto& [p, sizes] : known)
    if (p.starts_with(module) && p.ends_with("projection.weight") && !sizes.empty()) return sizes.front();
  return std::nullopt;
}

/// PEFT trains a copy of a head, `modules_to_save.default`, and keeps `original_module` beside it
/// (peft/utils/other.py: ModulesToSaveWrapper).
std::optional<Sizes> sizes_of_copy(std::string_view path, const KnownSizes& known) {
  constexpr std::string_view original = ".original_module.";
  const auto at = path.find(original);
  if (at == path.npos) return std::nullopt;
  const std::string saved = std::string(path.substr(0, at)) + ".modules_to_save.";
  const std::string_view rest = path.substr(at + original.size());
  return common(known, [&](std::string_view p) {
    if (!p.starts_with(saved)) return false;
    const std::string_view copy = p.substr(saved.size());  // "default.weight"
    const auto dot = copy.find('.');
    return dot != copy.npos && copy.substr(dot + 1) == rest;
  });
}

/// Whether the parameters below two modules agree as far as both are known, and some are.
bool are_alike(const std::string& a, const std::string& b, const KnownSizes& known) {
  bool any = false;
  for (auto it = known.lower_bound(a); it != known.end() && it->first.starts_with(a); ++it) {
    const auto other = known.find(b + it->first.substr(a.size()));
    if (other == known.end()) continue;
    if (other->second != it->second) return false;
    any = true;
  }
  return any;
}

/// A target network, a teacher or an average of weights: "critic_target.trunk.1.weight" beside "critic.trunk.1.weight".
std::optional<Sizes> sizes_of_twin(std::string_view path, const KnownSizes& known) {
  for (std::size_t begin = 0, end = path.find('.'); end != path.npos; begin = end + 1, end = path.find('.', begin)) {
    const std::string outside(path.substr(0, begin)), itself(path.substr(0, end + 1));
    const std::string_view rest = path.substr(end);
    const auto twin = common(known, [&](std::string_view p) {
      if (!p.starts_with(outside) || !p.ends_with(rest) || p.size() <= outside.size() + rest.size()) return false;
      const std::string_view name = p.substr(outside.size(), p.size() - outside.size() - rest.size());
      return name.find('.') == name.npos && are_alike(itself, outside + std::string(name) + ".", known);
    });
    if (twin) return twin;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Sizes> sizes_of_like_names(std::string_view path, const KnownSizes& known) {
  if (auto s = sizes_of_copy(path, known)) return s;
  if (auto s = sizes_of_twin(path, known)) return s;
  const std::string pattern = without_numbers(path);
  if (auto s = common(known, [&](std::string_view p) { return without_numbers(p) == pattern; })) return s;
  const std::string_view end = tail(path, 2), beside = head(path, 3);
  if (!end.empty() && !beside.empty())
    if (auto s = common(known, [&](std::string_view p) { return p.starts_with(beside) && tail(p, 2) == end; }))
      return s;
  const std::string_view leaf = tail(path, 1);
  if (leaf == "bias" || leaf == "running_mean" || leaf == "running_var")
    if (const auto w = known.find(std::string(head(path, 1)) + "weight"); w != known.end() && !w->second.empty())
      return Sizes{w->second[0]};
  if (const auto width = width_of_token(path, known)) return Sizes{*width};
  if (is_norm(path)) {
    const auto norms = [&](std::string_view root) {
      return common(known, [&](std::string_view p) { return p.starts_with(root) && is_norm(p); });
    };
    if (auto s = norms(head(path, 2))) return s;
    return norms(head(path, 3));
  }
  if (const std::string_view module = head(path, 1); module.ends_with("pooler.") || module.ends_with("pooler.dense.")) {
    const std::string_view root = path.substr(0, path.find('.') + 1);
    const auto width = common(known, [&](std::string_view p) { return p.starts_with(root) && is_norm(p); });
    if (width && width->size() == 1)
      return path.ends_with("bias") ? Sizes{width->front()} : Sizes{width->front(), width->front()};
  }
  return std::nullopt;
}

UsualSizes::UsualSizes(const KnownSizes& known) {
  std::map<std::string_view, Counts> ends;
  Counts vectors, matrices;
  for (const auto& [path, sizes] : known) {
    if (const std::string_view end = tail(path, 2); !end.empty()) ++ends[end][sizes];
    if (sizes.size() == 1) ++vectors[sizes];
    if (sizes.size() == 2 && path.ends_with(".weight")) ++matrices[sizes];
  }
  for (const auto& [end, counts] : ends) by_end_.emplace(end, *most_frequent(counts));
  vector_ = most_frequent(vectors);
  if (vector_ && vector_->front() < 1) vector_.reset();
  if (vector_) matrix_ = repeated_matrix(matrices, vector_->front());
}

std::optional<Sizes> UsualSizes::sizes_of(std::string_view path) const {
  if (const auto like = by_end_.find(tail(path, 2)); like != by_end_.end()) return like->second;
  const std::string_view leaf = tail(path, 1);
  if (is_norm(path) || leaf == "bias") return vector_;
  return leaf == "weight" ? matrix_ : std::nullopt;
}

std::vector<bool> of_towers(const std::vector<std::string>& lost, const KnownSizes& known) {
  constexpr std::int64_t fewest = 8;
  std::map<std::string, std::int64_t, std::less<>> counts;
  std::vector<std::string> roots;
  for (const std::string& path : lost) {
    std::string root;
    for (std::size_t end = path.find('.'); end != path.npos; end = path.find('.', end + 1)) {
      root = path.substr(0, end + 1);
      const auto inside = known.lower_bound(root);
      if (inside == known.end() || !inside->first.starts_with(root)) break;
      root.clear();
    }
    ++counts[roots.emplace_back(root)];
  }
  std::vector<bool> out;
  for (const std::string& root : roots) out.push_back(!root.empty() && counts[root] >= fewest);
  return out;
}

}  // namespace memplan::onnx_format
