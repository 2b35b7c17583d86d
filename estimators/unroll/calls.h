// ATen calls of a TorchScript program: each is run on paper, for the sizes of its results, and written down.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "estimators/facts/device.h"
#include "estimators/frontends/torch_export/program.h"
#include "estimators/frontends/torchscript/script.h"
#include "estimators/runtime/torch/aten/run.h"
#include "estimators/runtime/torch/aten/value.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"
#include "estimators/unroll/values.h"

namespace memplan::torchscript {

class Calls {
 public:
  Calls(const Script& script, torch_export::Program& program);

  /// A tensor that is there before the program runs.
  TensorV stored(const std::string& name, DType dtype, const std::vector<std::int64_t>& sizes, bool requires_grad);

  /// What Python asks a tensor without computing: "aten::size", "aten::dim", "prim::dtype" … None for other ops.
  std::optional<V> about_tensor(std::string_view op, const std::vector<V>& args) const;

  /// Results of an ATen op; a list of tensors is one result. Failure(input) where sizes do not fit or a number is one
  /// that only data decide.
  std::vector<V> call(const Node& node, const std::vector<V>& args);

 private:
  Arg argument(const V& v, const SchemaArgument* schema, const Node& node) const;
  Value on_paper(const Arg& arg) const;
  V named(const Value& result, const std::string& op, torch_export::Node& out);
  ValueList run(const torch_export::Node& node, const std::vector<V>& args);
  /// As torch.export writes them down.
  void put_arguments(const Node& node, const std::vector<V>& args, torch_export::Node& out);
  /// Its failures name the op and the module.
  ValueList run_named(const Node& node, const torch_export::Node& out, const std::vector<V>& args);
  std::vector<V> results_of(const Node& node, const std::string& base, ValueList results, const std::vector<V>& args,
                            torch_export::Node& out);
  torch_export::NameId add_name(std::string text, DType dtype, const std::vector<std::int64_t>& sizes,
                                bool requires_grad);

  const Script& script_;
  torch_export::Program& program_;
  TrainingSetup setup_;  ///< plain inference: only sizes are asked for
  Device device_;
  std::unique_ptr<Run> run_;
  std::vector<Tensor> tensors_;  ///< by NameId; a null one is not a tensor
  std::map<std::string, std::int64_t> counts_;
};

}  // namespace memplan::torchscript
