// Parameters and buffers that the module has and the file has no tensor for.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/metadata.h"
#include "estimators/frontends/onnx/stage_sizes.h"
#include "estimators/frontends/onnx/unread_sizes.h"
#include "estimators/frontends/onnx/values.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

/// What parameters that the file does not have as they are may change.
void note_parameters(Tape& tape, std::string text, Evidence evidence, Effect off) {
  tape.notes.push_back({"MP004", std::move(text), evidence, About::weights, {}, {}, -1, 1, off});
}

}  // namespace

/// Tensors without sizes are taken to be no larger than the file's largest, or than what an optimizer worked out of
/// them: that one may have a gradient and two states. It is counted itself, and may be larger than what it came of.
Effect Values::bound_of(const std::vector<std::string>& lost) const {
  Bytes largest;
  Effect sum;
  for (const auto& list : {tape_.parameters, tape_.buffers})
    for (const ValueId id : list) {
      const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
      largest = std::max(largest, bytes_of(v.dtype, count_of(v.sizes)));
    }
  for (const std::string& name : lost) {
    Bytes folded;
    for (const auto& [id, t] : graph_.initializers)
      if (const auto from = folded_from(graph_, id);
          !t.sizes.empty() && std::find(from.begin(), from.end(), name) != from.end())
        folded = std::max(folded, bytes_of(t.dtype, count_of(t.sizes)));
    sum.above += folded > Bytes() ? folded * copies_in_training : largest;
    sum.below += folded * copies_in_training;
  }
  return sum;
}

/// transformers' rotary embeddings register inv_freq and original_inv_freq (modeling_rope_utils.py), one number for
/// each two features; an optimizer folds them into the angles of all positions, [1, positions, features] or, before
/// pairs are joined, […, positions, features / 2, 2]. timm's register bands, one for each angle, and may keep the sines
/// and cosines of all positions beside them, two of each for an angle of each of two axes (pos_embed_sincos.py).
std::optional<std::vector<std::int64_t>> Values::sizes_of_frequencies(std::string_view target) const {
  const bool bands = target.ends_with(".bands");
  if (!bands && !target.ends_with("inv_freq")) return std::nullopt;
  if (bands) {
    const auto table = sizes_of_stored(std::string(target.substr(0, target.rfind('.') + 1)) + "pos_embed");
    constexpr std::int64_t numbers_of_angle = 8;
    if (table && table->size() == 2 && table->back() % numbers_of_angle == 0)
      return std::vector{table->back() / numbers_of_angle};
  }
  std::string folded(target);
  constexpr std::string_view original = "original_";
  if (const auto at = folded.rfind(original); at != std::string::npos) {
    folded.erase(at, original.size());
    if (auto stored = sizes_of_stored(folded)) return stored;
  }
  for (const auto& [id, t] : graph_.initializers) {
    if (t.sizes.size() < 3 || !is_floating(t.dtype)) continue;
    const auto from = folded_from(graph_, id);
    if (std::find(from.begin(), from.end(), folded) == from.end()) continue;
    const std::int64_t last = t.sizes.back();
    if (bands) return std::vector{last};
    if (t.sizes.size() > 3 && last == 2) return std::vector{t.sizes[t.sizes.size() - 2]};
    if (last % 2 == 0) return std::vector{last / 2};
  }
  return std::nullopt;
}

/// transformers' embeddings register position_ids and token_type_ids, a number for each position that their table
/// position_embeddings has (models/bert/modeling_bert.py:65; models/clip/modeling_clip.py: position_embedding;
/// models/openai/modeling_openai.py:336: positions_embed).
std::optional<std::vector<std::int64_t>> Values::sizes_of_positions(std::string_view target) const {
  const std::size_t dot = target.rfind('.') + 1;  // 0 where there is none
  const std::string_view leaf = target.substr(dot);
  if (leaf != "position_ids" && leaf != "token_type_ids") return std::nullopt;
  const std::string_view module = target.substr(0, dot);
  for (const char* table : {"position_embeddings.weight", "position_embedding.weight", "positions_embed.weight"})
    if (const auto sizes = sizes_of_stored(std::string(module) + table); sizes && sizes->size() == 2)
      return std::vector<std::int64_t>{1, sizes->front()};
  return std::nullopt;
}

/// Of a parameter or buffer that the file has.
std::optional<std::vector<std::int64_t>> Values::sizes_of_stored(std::string_view name) const {
  if (const TapeValue* v = stored_tensor(tape_, name)) return v->sizes;
  return std::nullopt;
}

/// Whether any node stands in the stage "encoder.layer3.".
bool Values::runs(const std::string& stage) const {
  const std::string inside = "'" + stage, itself = inside.substr(0, inside.size() - 1) + "'";
  return std::ranges::any_of(graph_.nodes, [&](const GraphNode& n) {
    const std::string_view scopes = note_at(n.metadata, scopes_key);
    return scopes.find(inside) != scopes.npos || scopes.find(itself) != scopes.npos;
  });
}

/// Adds what a line of the signature names; its bytes.
Bytes Values::add_unread(std::size_t line, DType dtype, const std::vector<std::int64_t>& sizes) {
  const SignatureLine& of = signature_.inputs[line];
  const ValueKind kind = of.kind == "PARAMETER" ? ValueKind::parameter : ValueKind::buffer;
  position_[add(kind, std::string(of.target), dtype, sizes).index] = line;
  return bytes_of(dtype, sizes);
}

/// Makes parameters that no node reads as large as those with like names are; what has none is `lost`.
void Values::add_like_named(const std::vector<std::size_t>& lines, std::vector<std::string>& lost) {
  if (lines.empty()) return;
  KnownSizes known;
  DType dtype = DType::float32;
  for (const ValueId id : tape_.buffers) {
    const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
    if (is_floating(v.dtype)) known.emplace(v.name, v.sizes);
  }
  for (const ValueId id : tape_.parameters) {
    const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
    known.emplace(v.name, v.sizes);
    dtype = v.dtype;
  }
  NextStages stages(known);
  std::map<std::string, bool, std::less<>> running;  // stages
  std::set<std::string, std::less<>> folded;         // what is counted as the tensor that it went into
  for (const auto& [id, t] : graph_.initializers)
    for (const std::string_view name : folded_from(graph_, id)) folded.emplace(name);
  Bytes made;
  std::int64_t count = 0;
  std::string_view first;
  std::vector<std::size_t> unlike;
  for (const std::size_t i : lines) {
    const SignatureLine& line = signature_.inputs[i];
    if (line.kind == "PARAMETER") tape_.exported.lost_parameters.emplace_back(line.target);
    const bool read = folded.contains(line.target) || folded.contains(line.name);
    auto sizes = read ? std::nullopt : stages.sizes_of(line.target);
    if (sizes) {  // few have any, so that few stages are looked for among the nodes
      const auto [stage, fresh] = running.try_emplace(stage_of(line.target));
      if (fresh) stage->second = runs(stage->first);
      if (stage->second) sizes.reset();
    }
    if (!sizes && !read) sizes = sizes_of_like_names(line.target, known);
    if (!sizes) {
      if (read)
        lost.emplace_back(line.target);
      else
        unlike.push_back(i);
      continue;
    }
    known.emplace(line.target, *sizes);
    made += add_unread(i, dtype, *sizes);
    if (count++ == 0) first = line.target;
  }
  if (count > 0)
    note_parameters(tape_,
                    fmt::format("{} parameters of the module are not in the file, because no node reads them "
                                "('{}'{}); they are taken to be as large as those with like names",
                                count, first, count > 1 ? " …" : ""),
                    Evidence::told_by_name, Effect{made, made});
  add_guessed(unlike, dtype, known, lost);
}

/// Makes those of towers that were not called as large as most parameters of their kind are: nothing would be further
/// off. They may be as small as nothing, or as large as the largest of the file.
void Values::add_guessed(const std::vector<std::size_t>& lines, DType dtype, const KnownSizes& known,
                         std::vector<std::string>& lost) {
  Bytes made;
  std::vector<std::string> unlike, guessed;
  for (const std::size_t i : lines) unlike.emplace_back(signature_.inputs[i].target);
  const std::vector<bool> of_tower = of_towers(unlike, known);
  const UsualSizes usual(known);
  for (std::size_t j = 0; j < lines.size(); ++j) {
    const auto sizes = of_tower[j] ? usual.sizes_of(unlike[j]) : std::nullopt;
    (sizes ? guessed : lost).push_back(unlike[j]);
    if (sizes) made += add_unread(lines[j], dtype, *sizes);
  }
  if (guessed.empty()) return;
  Effect off = bound_of(guessed);
  off.above = off.above - made;
  off.below += made;
  note_parameters(tape_,
                  fmt::format("{} parameters of the module are not in the file, because no node reads them ('{}'{}), "
                              "and none has a like name; they are taken to be as large as most of their kind",
                              guessed.size(), guessed.front(), guessed.size() > 1 ? " …" : ""),
                  Evidence::assumed, off);
}

/// By leaf: the small buffers that have it, where all are of one size and type; else -1. An optimizer keeps one of
/// several that are equal, such as `offsets` of two modules.
std::unordered_map<std::string, std::int32_t> Values::small_buffers() const {
  std::unordered_map<std::string, std::int32_t> found;
  for (const ValueId id : tape_.buffers) {
    const TapeValue& v = tape_.values[static_cast<std::size_t>(id.index)];
    if (v.name.find('.') == std::string::npos) continue;
    const auto [it, first] = found.try_emplace(std::string(leaf_of(v.name)), id.index);
    if (it->second < 0) continue;
    const TapeValue& other = tape_.values[static_cast<std::size_t>(it->second)];
    if (!may_be_merged(v.sizes) || other.sizes != v.sizes || other.dtype != v.dtype) it->second = -1;
  }
  return found;
}

/// `repeat(F.pad(self.weight, …))`, worked out ahead of the run: the parameter is taken to be as large as what came of
/// it, with a gradient and two states, and may be much smaller. Of `w[0] * x + w[1] * y` the weights may be more.
void Values::note_resized() {
  Effect off;
  std::int64_t count = 0;
  std::string_view first;
  for (const auto& [id, name] : folded_parameters_) {
    const auto keeps_size = [&](std::string_view from) {
      return from.starts_with("val_") || line_of_target_.contains(from) || folded_op(from);
    };
    const StoredTensor& t = graph_.initializers.at(id);
    constexpr std::int64_t most = 64,
                           copies = 8;  // weights of a sum; gradient, states, and steps that make one of them
    if (op_of_name(t.name) == "select")
      off.above += bytes_of(t.dtype, most) * copies;
    else if (!std::ranges::all_of(folded_from(graph_, id), keeps_size))
      off.below += bytes_of(t.dtype, t.sizes) * copies_in_training;
    else
      continue;
    if (count++ == 0 || name < first) first = name;
  }
  if (count > 0)
    note_parameters(tape_,
                    fmt::format("{} parameters are in the file only as what the export worked out of them "
                                "('{}'{}); they are taken to be as large",
                                count, first, count > 1 ? " …" : ""),
                    Evidence::assumed, off);
}

void Values::finish() {
  std::vector<std::string> lost;
  std::vector<std::size_t> unread;
  const std::unordered_map<std::string, std::int32_t> small = small_buffers();
  std::unordered_map<std::string, std::int32_t> stored;  // copies: values are added below
  for (const auto& list : {tape_.parameters, tape_.buffers})
    for (const ValueId id : list) stored.emplace(tape_.values[static_cast<std::size_t>(id.index)].name, id.index);
  for (std::size_t i = 0; i < signature_.inputs.size(); ++i) {
    const SignatureLine& line = signature_.inputs[i];
    const auto it = missing_targets_.find(line.target);
    if (it == missing_targets_.end() || it->second != i) continue;
    if (const auto there = stored.find(std::string(line.target)); there != stored.end()) {
      position_.emplace(there->second, i);  // a tensor of its own that no metadata describes
    } else if (line.target.ends_with("num_batches_tracked")) {
      // BatchNorm's step counter: training reads and writes it, but no node of the file does.
      position_[add(ValueKind::buffer, std::string(line.target), DType::int64, {}).index] = i;
    } else if (const auto sizes = sizes_of_frequencies(line.target)) {
      position_[add(ValueKind::buffer, std::string(line.target), DType::float32, *sizes).index] = i;
    } else if (const auto positions = sizes_of_positions(line.target)) {
      position_[add(ValueKind::buffer, std::string(line.target), DType::int64, *positions).index] = i;
    } else if (line.kind == "PARAMETER" || line.target.ends_with("running_mean") ||
               line.target.ends_with("running_var")) {
      unread.push_back(i);
    } else if (const auto equal = small.find(std::string(leaf_of(line.target)));
               equal != small.end() && equal->second >= 0) {
      const TapeValue of = tape_.values[static_cast<std::size_t>(equal->second)];
      position_[add(ValueKind::buffer, std::string(line.target), of.dtype, of.sizes).index] = i;
    } else if (line.kind != "CONSTANT_TENSOR") {
      lost.emplace_back(line.target);  // numbers of the forward pass, `lifted_tensor_0`, are no part of the module
    }
  }
  add_like_named(unread, lost);
  if (!lost.empty())
    note_parameters(tape_,
                    fmt::format("{} parameters or buffers of the module are not in the file, because "
                                "no node reads them ('{}'{}); their bytes are missing here",
                                lost.size(), lost.front(), lost.size() > 1 ? " …" : ""),
                    Evidence::assumed, bound_of(lost));
  note_resized();
  auto order = [&](std::vector<ValueId>& list) {
    std::stable_sort(list.begin(), list.end(), [&](ValueId a, ValueId b) {
      const auto pa = position_.find(a.index), pb = position_.find(b.index);
      const std::size_t none = static_cast<std::size_t>(-1);
      return (pa == position_.end() ? none : pa->second) < (pb == position_.end() ? none : pb->second);
    });
  };
  order(tape_.parameters);
  order(tape_.buffers);
}

}  // namespace memplan::onnx_format
