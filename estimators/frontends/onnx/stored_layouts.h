// How tensors of the program lie in a file whose exporter or optimizer worked something out of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/frontends/onnx/signature.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// Dims of one that the call's nodes put in, worked out ahead of the run: a group norm's weight lies there as it is
/// multiplied, [channels, 1, 1], and what repeat_interleave repeats as it is expanded, [n, 1, width].
std::vector<std::int64_t> put_in_dims(const FxGroup& group, const std::vector<std::int64_t>& sizes);

/// Matrices lie there as their node reads them: a linear layer's weight as the second factor of a product, a table
/// whose columns are looked up, `biases[:, index]`, with the columns first.
bool is_stored_turned(const FxGroup& group, const GraphNode& node, std::size_t input);

/// Whether a call of the op may be a view of all of its input as it lies, of which an optimizer leaves nothing.
bool may_show_all(std::string_view op);

/// The one line of the signature among `own`, those of the node's module, that the node's line of Python names and that
/// has no tensor in the file (`present`: by line).
std::optional<std::size_t> named_in_line(const GraphNode& node, const Signature& signature,
                                         const std::vector<std::size_t>& own,
                                         const std::unordered_map<std::size_t, GraphValueId>& present);

}  // namespace memplan::onnx_format
