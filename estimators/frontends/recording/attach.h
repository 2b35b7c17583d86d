// Writing a recording into the file of its module (attached.h).
#pragma once

#include <string>

namespace memplan::recording {

/// Puts the recording `from` into the ONNX file or .pt2 archive `to`, in the place of one that is there. The file is
/// replaced when the new one is complete; its weights are copied unseen. Failure(input) for other files, and where both
/// are not of one module.
void attach(const std::string& from, const std::string& to);

}  // namespace memplan::recording
