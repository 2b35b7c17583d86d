// What DeepSpeed's ZeRO stages have in common (DeepSpeed 0.19.8, deepspeed/runtime/zero and runtime/engine.py): names
// in comments are those of its source.
#pragma once

#include "estimators/runtime/torch/wrappers/wrapper.h"

namespace memplan {

/// Sizes and dtypes of one rank's share, and what the engine does around every stage's backward pass and step.
class Zero : public ModelWrapper {
 public:
  explicit Zero(const WrapContext& context);

  /// engine.backward divides the loss by the accumulated micro-batches and multiplies it with the loss scale, whatever
  /// they are.
  Tensor scaled_loss(Run& r, const Tensor& loss) override;
  void end_backward(Run& r) override;

 protected:
  /// _has_inf_or_nan and the norm of one gradient: get_norm_dtype() is float64, so a copy of 8 bytes per element.
  static void norm_of(Run& r, std::int64_t elements);
  /// _global_grad_norm, which the engine keeps until the next step.
  void keep_norm(Run& r, DType dtype = DType::float32);
  /// Flattens by concatenation where there is more than one piece; null otherwise.
  static Tensor flattened(Run& r, std::int64_t elements, DType dtype, std::size_t pieces);

  const bool optimizer_on_host_, parameters_on_host_;
  const std::int64_t ranks_;
  const int stage_;
  const bool overlap_;            ///< overlap_comm
  const std::int64_t bucket_;     ///< reduce_bucket_size, elements
  DType dtype_ = DType::float32;  ///< of the model's parameters

 private:
  Tensor divided_loss_, overflow_buffer_, norm_;
};

}  // namespace memplan
