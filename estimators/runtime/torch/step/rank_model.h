// The model of one rank on its device, with what data parallelism puts around it, and its forward pass.
#pragma once

#include <memory>

#include "estimators/runtime/torch/autograd/interpreter.h"
#include "estimators/runtime/torch/compiled/module.h"
#include "estimators/runtime/torch/wrappers/wrapper.h"
#include "estimators/setup/setup.h"
#include "estimators/transforms/module_order.h"

namespace memplan {

/// model.bfloat16() or model.half(): the dtype of a floating parameter, buffer or input of dtype `d` in the run.
DType converted(DType d, Precision precision);

/// The optimizer as the rank's program makes it: torch.optim's foreach takes no mixture of DTensors (layers cut by
/// tensor parallelism) and plain parameters (norms), so that program asks for foreach=False; under FSDP and with
/// sequence parallelism all are DTensors.
OptimizerSetup optimizer_of_rank(const TrainingSetup& setup);

class RankModel {
 public:
  RankModel(Run& run, const Tape& tape, const TrainingSetup& setup, const Ranks& ranks);

  /// model.to("cuda"), then what its strategy wraps around it; without `wrapped` the bare model.
  void to_device(bool wrapped);

  /// The calls of the tape with the inputs that are in `env`; the names of its values are dropped. `sync`: the
  /// backward pass that follows reduces gradients.
  std::vector<Value> forward(bool sync = true);
  void begin_autocast();
  void end_autocast();
  /// With model.to(memory_format=torch.channels_last) tensors of four dimensions lie in that order, batches too.
  Tensor formatted(const Dims& sizes, DType dtype, Category category);
  void begin_backward();
  /// What backward() is called on: DeepSpeed's engine scales the loss.
  Tensor scaled(const Tensor& loss);
  void end_backward();
  void begin_optimizer();
  bool end_optimizer();  ///< true: begin_optimizer and another step follow
  /// The next backward pass is this model's; without `sync` its gradients are not reduced yet.
  void expect_backward(bool sync);
  /// Reduces what backward passes without `sync` left (torch.distributed.pipelining's post_backward).
  void reduce_gradients();
  void drop_names();

  Environment env;
  TensorList trainable;  ///< what the optimizer updates, in registration order

 private:
  Tensor place(const TapeValue& value);
  void move();
  void flatten(const FlatWeights& group);

  Run& r_;
  const Tape& tape_;
  const TrainingSetup& setup_;
  const Ranks ranks_;
  const WrapperRow& framework_;
  std::unique_ptr<ModelWrapper> wrapper_;
  std::unique_ptr<compiled::CompiledModule> compiled_;  ///< with torch.compile(model), from the first call on
};

}  // namespace memplan
