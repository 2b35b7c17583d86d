// Modules that the program calls from two lines, D(fake.detach()) and D(fake): what was merged of the second call.
#pragma once

#include <cstddef>
#include <string_view>

#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// The outermost module that both nodes stand in and that different lines call.
struct SecondCall {
  std::string_view module;  ///< its path; empty where one line calls whatever both nodes stand in, or nothing tells
  std::size_t frames = 0;   ///< of a trace, those that lead to the module
  std::string_view lines;   ///< these frames of the reader's trace
};

/// What `reader` stands in and `maker` stood in when that ran. Both need the frame of each module around them.
SecondCall second_call(const GraphNode& maker, const GraphNode& reader);

}  // namespace memplan::onnx_format
