// Padding that an optimizer moved into one of its readers.
#pragma once

#include <optional>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// A graph whose convolutions read what a Pad node makes of their input, where the file has that node for another
/// reader and the optimizer gave the convolution the same padding of its own (FuseConvPad): the program pads once, and
/// both read it. None where no convolution is so.
std::optional<Graph> share_pads(const Graph& graph, const FxProgram& program);

}  // namespace memplan::onnx_format
