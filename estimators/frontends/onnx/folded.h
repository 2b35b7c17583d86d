// Tensors that an exporter's optimizer worked out ahead of the run. The program makes them in every forward pass.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "estimators/graph/graph.h"
#include "estimators/tape/tape.h"

namespace memplan::onnx_format {

/// A parameter may have a gradient and two states beside it.
inline constexpr std::int64_t copies_in_training = 4;

/// Names of what a stored tensor was worked out from, where the optimizer says so (onnxscript does since 0.3).
std::vector<std::string_view> folded_from(const Graph& graph, GraphValueId id);

/// "unsqueeze" of "unsqueeze_18": tensors are called after the call that makes them.
std::string_view op_of_name(std::string_view name);

/// The ATen op of a call with such a name, "aten::add.Tensor" of "add_5", where its result has the elements of its
/// input and its other input, if any, is a number: what changes each of them, and views. Null for all others.
const char* folded_op(std::string_view name);

/// Whether a call of that name changes its argument element by element, "add_18", and is no view.
bool changes_elements(std::string_view name);

/// A call between a parameter and what came of it.
struct Step {
  std::string_view name;
  const char* op = nullptr;
};

/// The one of `from` that changes each element before the call that `result` is named after; none where there are
/// several, whose order is not told.
std::optional<Step> step_before(std::string_view result, const std::vector<std::string_view>& from);

/// Arguments of such an op, whose result has `sizes`.
std::vector<Arg> folded_arguments(std::string_view op, Arg parameter, const std::vector<std::int64_t>& sizes);

/// Of the parameter that such an op takes to one of `sizes`. What is expanded while it is worked out of a parameter
/// alone is expanded to the batch: `self.cls_token.expand(x.shape[0], -1, -1)` of a file whose sizes are fixed. Of the
/// weights that `w[i] * x` takes one of, the file does not say how many there are.
std::vector<std::int64_t> sizes_before(std::string_view op, std::vector<std::int64_t> sizes);

/// Sizes of `count` parameters that were joined to one of `sizes`: of equal parts, or else of one and a rest. Their sum
/// is right in any case.
std::vector<std::vector<std::int64_t>> joined_sizes(const std::vector<std::int64_t>& sizes, std::size_t count);

/// Rows of a table that was looked up once for each pair of positions. Those of a window are numbered by how far apart
/// they are in both directions, those of a line in one; a token before a window has three more rows.
std::int64_t rows_of_pairs(std::int64_t pairs);

}  // namespace memplan::onnx_format
