// Modules, tensors and constants of a TorchScript program as JSON.
#pragma once

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/api/module.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <unordered_map>

namespace memplan::torch_side {

class ScriptValues {
 public:
  explicit ScriptValues(const torch::jit::Module& root);

  /// null, booleans, numbers and strings as they are; {"f": "inf"}, {"t": tensor}, {"l": list}, {"u": tuple},
  /// {"d": [[key, value], …]}, {"device": "cpu"}, {"o": class of an object}.
  nlohmann::json json_of(const c10::IValue& value);

  /// Path of a module: "layer1.0"; empty for the root and for objects that are no part of it.
  std::string path_of(const void* object) const;

  /// All tensors of modules, then constants as they were met: [{"name", "kind", "dtype", "sizes", "grad", "number"}].
  const nlohmann::json& tensors() const { return tensors_; }

  /// "torchvision.models.resnet.BasicBlock"
  static std::string class_name(const c10::ClassType& type);

 private:
  using Key = std::tuple<const void*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>>;
  void walk(const c10::IValue& object, const std::string& path, int depth);
  int tensor(const at::Tensor& t, const std::string& name, const char* kind);

  std::map<Key, int> ids_;
  std::map<std::string, int> by_name_;
  std::unordered_map<const void*, std::string> paths_;
  nlohmann::json tensors_ = nlohmann::json::array();
};

}  // namespace memplan::torch_side
