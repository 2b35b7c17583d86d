// nn.LSTM, nn.GRU and nn.RNN of files whose text is not complete.
#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/patterns.h"

namespace memplan::onnx_format {

/// Whether a node is one layer of such a module.
bool is_recurrent(const GraphNode& node);

/// Whether the text of a group is one call of a recurrent layer.
bool is_recurrent(const FxGroup& group);

/// By place in `program.groups`: the one call of all layers that a group's text names, instead of a node per layer and
/// of what arranges their weights. None where a name is unknown, or where another node reads in the middle of it; what
/// calls of one module share is no such node if all of them are told so. `names`: what FX names stand for.
std::vector<std::pair<std::size_t, Found>> match_recurrent(
    const View& view, const FxProgram& program, const std::unordered_map<std::string_view, GraphValueId>& names);

/// Sizes of weight_ih (0), weight_hh (1), bias_ih (2) and bias_hh (3); none where the node does not tell them.
std::vector<std::int64_t> recurrent_sizes(const Graph& graph, const GraphNode& node, std::size_t which);

/// The same of an LSTM with projections (`proj_size`), which ONNX has not: the exporter takes the projected size for
/// the hidden one, and weight_hr, the last of `each` parameters, is gone. `rows`: of weight_ih.
std::vector<std::int64_t> projected_sizes(const GraphNode& node, std::int64_t rows, std::size_t which,
                                          std::size_t each);

}  // namespace memplan::onnx_format
