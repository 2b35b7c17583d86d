// The cuDNN of this machine, which all estimates of a command ask.
#pragma once

#include <memory>
#include <string>

namespace memplan {
class CudnnLibrary;
}

namespace memplan::cli {

/// `word` is "auto", "none", or where a libcudnn lies. The same word gives the same library. Null for "none".
/// Failure(usage) where there is no libcudnn.
std::shared_ptr<CudnnLibrary> cudnn_to_ask(const std::string& word);

/// Says on stderr, in one line, what went wrong while one was asked; nothing where nothing did.
void say_what_cudnn_lacked();

}  // namespace memplan::cli
