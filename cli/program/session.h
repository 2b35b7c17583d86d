// A session of ONNX Runtime with a setup's options, as lines to paste.
#pragma once

#include <string>

#include "estimators/setup/onnxruntime.h"

namespace memplan::cli {

/// Python, then the same options for C++ and for a model of Triton Inference Server as comments.
std::string session_program(const std::string& model, const OrtSetup& setup);

}  // namespace memplan::cli
