// Frames of a node's stack trace beside the modules that it stands in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace memplan::onnx_format {

/// A frame for each entry where there are as many lines: a module that was called, or a method `forward` that a line
/// called without its module. Else they could not be brought together.
struct CallFrames {
  std::vector<std::string> paths, classes, lines;
  /// The line that calls a frame which may be that of an autograd.Function, or nothing: PyTorch calls its forward, and
  /// where a helper method calls `apply`, no line of the trace says so.
  std::string application;
};

/// Brings both lists together. Exporters note frames of functions called `forward`, and modules that were called as
/// such. A class's forward that calls its base class's stands in the trace with two frames and among the modules once:
/// the inner one is left out. A module that the forward pass itself makes is missing among the modules; the line that
/// calls it tells its path, and its class is not known; a function's frame looks the same. `layer.forward(x)` is a
/// frame without a module: it gets an entry with a path that the modules below it suggest.
CallFrames call_frames(std::vector<std::string> paths, std::vector<std::string> classes,
                       std::vector<std::string> lines);

/// The lines with one more for each module of PyTorch's own whose frame they lack, and unchanged where that does not
/// give each module a line: torch.export's strict mode leaves those frames out. `classes`: of the modules around a
/// node, outermost first, of which the first `modules` count.
template <class Text>
std::vector<std::string> with_frames_of_torch(std::size_t modules, const std::vector<Text>& classes,
                                              const std::vector<std::string>& lines);

/// Whether the entry stands for a frame without a module.
bool without_module(std::string_view module_class);

}  // namespace memplan::onnx_format
