// Keys of what exporters write down beside nodes.
#pragma once

namespace memplan {

/// torch.onnx's dynamo exporter: the line of the exported program that a node was made of.
inline constexpr const char* fx_node_key = "pkg.torch.onnx.fx_node";

}  // namespace memplan
