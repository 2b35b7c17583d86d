// ONNX bytes -> Model, by way of the slim message of wire.h.
#pragma once

#include <string>
#include <string_view>

#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// Reads a serialized ModelProto. Local functions are inlined, nodes are put into an order in which every input is
/// produced before it is read, inputs that are initializers (IR version 3) are removed.
/// Failure(input) for damage, cycles, missing or doubly produced values, impossible sizes, and external data paths
/// that leave the folder of the model. `path` names the file in errors; nothing is opened.
Model read_model(std::string_view bytes, const std::string& path);

}  // namespace memplan::onnx_format
