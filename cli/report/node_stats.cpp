// What session.resource_cuda_partitioning_settings of ONNX Runtime reads (onnxruntime/core/framework/
// resource_accountant.cc): a line for every node. ONNX Runtime adds up the four columns.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/report/formats.h"
#include "estimators/base/error.h"

namespace memplan::cli {

std::string render_ort_node_stats(const Json& document, const View&) {
  const auto rows = document.find("ort_node_stats");
  if (rows == document.end())
    fail_input("the report was made without the costs of nodes", "ort-node-stats",
               "make them from the model: memplan MODEL --runtime ort --export ort-node-stats=FILE");
  std::string out = "#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations\n";
  for (const Json& row : *rows) {
    const auto& name = row.at("name").get_ref<const std::string&>();
    if (name.find_first_of(",\r\n") != std::string::npos)
      fail_input("the name of a node has a comma or ends a line, and ONNX Runtime's file has no way to hold that", name,
                 "rename the node");
    out += fmt::format("{},0,{},{},0\n", name, row.at("weights_bytes").get<std::int64_t>(),
                       row.at("buffers_bytes").get<std::int64_t>());
  }
  return out;
}

}  // namespace memplan::cli
