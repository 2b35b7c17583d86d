// The costs of nodes that ONNX Runtime reads (runtime/ort/node_stats.h), of the model that the options name.
#pragma once

#include <string_view>
#include <vector>

#include "cli/flags/options.h"
#include "estimators/runtime/ort/node_stats.h"

namespace memplan::cli {

/// The format that shows them, and nothing else.
inline constexpr std::string_view node_stats_format = "ort-node-stats";

bool node_stats_wanted(const Options& options);

/// Failure(usage) for another runtime, and where the names of nodes are not known: they are those that the nodes have
/// when ONNX Runtime places them.
std::vector<ort::NodeStats> node_stats_of(const Options& options, const Device& device);

}  // namespace memplan::cli
