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

}  // namespace memplan::onnx_format
