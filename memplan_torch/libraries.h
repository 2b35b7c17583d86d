// The shared libraries of the torch wheel that this process runs with.
#pragma once

#include <string>

namespace memplan::torch_side {

/// Version of the libraries that were found at run time ("2.11.0"); the headers' is TORCH_VERSION.
std::string library_version();

/// Opens libtorch_cuda, once. Must come before anything asks at::hasCUDA(): the answer is kept for the whole process.
/// Returns an empty string, or why it cannot be opened.
std::string open_cuda();

}  // namespace memplan::torch_side
