// Reading a .pt2 archive: its graph, never its weights.
#pragma once

#include <string>
#include <string_view>

#include "estimators/frontends/torch_export/archive.h"
#include "estimators/frontends/torch_export/program.h"
#include "estimators/graph/graph.h"

namespace memplan::torch_export {

/// A graph's JSON longer than this is refused: 80 layers take about 15 MB.
constexpr std::int64_t max_json_bytes = std::int64_t{64} << 20;
/// JSON nested deeper than this is refused: a subgraph in a subgraph costs ten levels.
constexpr int max_json_depth = 256;

/// Both layouts: "<root>/models/<name>.json" beside "<root>/archive_format" (torch 2.8 and later), and
/// "serialized_exported_program.json" (before). Graphs of the model hold only the user inputs, for the binding of open
/// dimensions. Failure(input) for archives without a graph, of several models, of another schema, hostile or damaged.
Model read_archive(const Archive& archive, const std::string& path);

/// The JSON of an ExportedProgram. `stored`: contents of "<model>_weights_config.json", or empty.
Program parse_program(std::string json, std::string_view stored, const std::string& where);

}  // namespace memplan::torch_export
