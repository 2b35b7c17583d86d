// The runtimes by their words, and which takes what of a file.
#pragma once

#include "estimators/base/names.h"
#include "estimators/setup/setup.h"

namespace memplan {

/// Of runtimes() (runtime/runtime.h).
inline constexpr std::array runtime_names{
    Named<std::string_view>{"torch", "torch"},
    Named<std::string_view>{"ort", "ort"},
    Named<std::string_view>{"onnxruntime", "ort", true},
};

/// It runs the nodes of an ONNX file as they are (Tape::graph), instead of ATen calls.
inline bool runs_nodes(const RuntimeSetup& runtime) { return runtime.name == "ort"; }

}  // namespace memplan
