// Sizes of parameters that no node of a file reads, by those of parameters with like names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace memplan::onnx_format {

using KnownSizes = std::map<std::string, std::vector<std::int64_t>, std::less<>>;  ///< by path

/// "decoder.layers.0.encoder_attn.k_proj.weight" is as "decoder.layers.0.self_attn.k_proj.weight" is:
///   of the same path in a module beside it that agrees in all that both have; of the same path but for numbers; else
///   of a module of the same name next to it; a bias has a number for each row of its weight; a norm is as wide as the
///   norms next to it are; the statistics of a batch norm likewise; a mask token is as wide as the tokens beside it
///   are; a pooler is square (transformers' poolers: Linear(hidden_size, hidden_size)).
/// None where no rule tells, or where parameters with like names differ.
std::optional<std::vector<std::int64_t>> sizes_of_like_names(std::string_view path, const KnownSizes& known);

/// A guess where no rule tells: what most parameters are whose paths end in the same two parts ("q_proj.weight"); else
/// a norm or a bias is as wide as most vectors of the file, and a matrix has as many numbers as its repeated ones in
/// the geometric mean: their scale is what is unknown.
class UsualSizes {
 public:
  explicit UsualSizes(const KnownSizes& known);

  /// None where the file has nothing of the kind.
  std::optional<std::vector<std::int64_t>> sizes_of(std::string_view path) const;

 private:
  using Sizes = std::vector<std::int64_t>;
  std::map<std::string, Sizes, std::less<>> by_end_;  ///< by the last two parts of a path
  std::optional<Sizes> vector_, matrix_;
};

/// Which of these parameters stand in a tower that the export did not call: a module of which none is known and many
/// are lost. Those outside may be other names of a parameter that the file has.
std::vector<bool> of_towers(const std::vector<std::string>& lost, const KnownSizes& known);

}  // namespace memplan::onnx_format
