// What higher-order ops pass to their subgraphs, and what those make.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "estimators/frontends/torch_export/program.h"

namespace memplan::torch_export {

/// dtype and sizes of a name, where it is a tensor whose sizes are known.
using ShapeOf = std::function<std::optional<std::pair<DType, std::vector<std::int64_t>>>(NameId)>;

/// Bytes of all tensors that a branch makes.
double made_bytes(const Subgraph& graph, const ShapeOf& shape_of);

/// The arguments, lists taken apart.
std::vector<Arg> flat(const std::vector<Arg>& args);

}  // namespace memplan::torch_export
