// Where a node of a TorchScript graph comes from, in the lines of the Python program.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace memplan::torch_side {

class ScriptLines {
 public:
  /// "torchvision/models/resnet.py:92 out = self.conv1(x)" of a scripted node; empty where the file does not tell.
  std::string line(const torch::jit::Node& node);

  /// Of a traced node: the lines of all forward() frames, outermost first, each as above; empty for scripted ones. A
  /// trace notes files and numbers only, so the text comes from the Python file where this machine has it.
  std::vector<std::string> frames(const torch::jit::Node& node);

 private:
  const std::string& python_line(const std::string& path, std::size_t number);
  std::unordered_map<std::string, std::vector<std::string>> files_;
  std::unordered_map<std::string, std::vector<std::string>> traces_;
};

}  // namespace memplan::torch_side
