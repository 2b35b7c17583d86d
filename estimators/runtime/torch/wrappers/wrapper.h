// What stands around the model in the program of a data-parallel rank (DDP, FSDP).
#pragma once

#include <functional>
#include <memory>

#include "estimators/runtime/torch/autograd/interpreter.h"
#include "estimators/setup/parallel.h"
#include "estimators/setup/setup.h"

namespace memplan {

class ModelWrapper : public BackwardHooks, public CallHooks {
 public:
  /// Before and after the model's forward; `sync` is false within no_sync().
  virtual void begin_forward(Run&, Environment&, bool /*sync*/) {}
  virtual void end_forward(Run&, Environment&) {}
  virtual void begin_backward(Run&) {}
  /// What backward() is called on instead of the loss, and what follows when it has returned.
  virtual Tensor scaled_loss(Run&, const Tensor& loss) { return loss; }
  virtual void end_backward(Run&) {}
  virtual void begin_optimizer(Run&) {}
  /// True where the optimizer steps again, on the next of several groups.
  virtual bool end_optimizer(Run&) { return false; }
  /// Pipelines: whether the next backward pass reduces gradients, and the reduction that stands for those that did not.
  virtual void set_sync(bool) {}
  virtual void reduce_gradients(Run&) {}
  void before(Run&, Environment&, std::int32_t, Lasting) override {}
  void after(Run&, Environment&, std::int32_t) override {}
};

/// Moves one parameter or buffer of the tape to the device, as model.to does: the tensor with its name, dtype and
/// category; not yet a leaf.
using PlaceValue = std::function<Tensor(const TapeValue&)>;

/// What a wrapper is made from: the model of one rank, and the setup of its run.
struct WrapContext {
  Run& run;
  const Tape& tape;
  const TrainingSetup& setup;
  const Ranks& ranks;
  Environment& env;
  const PlaceValue& place;
  /// What the optimizer updates, in registration order. A wrapper that shares out puts its own tensors there.
  TensorList& trainable;
};

/// A function of the wrapper's own file; the table declares it.
using MakeWrapper = std::unique_ptr<ModelWrapper>(const WrapContext& context);

/// The program of a DataStrategy (setup/strategies.h).
struct WrapperRow {
  Sharding kind;
  MakeWrapper* make;
  bool in_inference = false;     ///< else the bare model runs there
  bool from_host = false;        ///< takes a model that is on the host, and moves it itself
  bool divides_at_once = false;  ///< what was built is divided before the next is: deepspeed.zero.Init
  bool casts_buffers = true;     ///< model.bfloat16() does; DeepSpeed's engine (_cast_module_mixed_precision) does not
  bool plain_parameters = true;  ///< those that tensor parallelism leaves whole are no DTensors
  bool clips = false;            ///< clips gradients by itself
  bool loss_in_model = false;    ///< the model returns the loss
  bool fused_adam = false;       ///< its Adam is a fused one
  bool deepspeed_adam = false;   ///< its Adam is DeepSpeed's
  LinearFunction linear = nullptr;  ///< in the place of torch.nn.functional.linear
};
const WrapperRow& wrapper_of(Sharding kind);

}  // namespace memplan
