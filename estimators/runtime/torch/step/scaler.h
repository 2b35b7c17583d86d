// torch.amp.GradScaler (torch/amp/grad_scaler.py): scalars on the device and the in-place unscale.
#pragma once

#include "estimators/runtime/torch/aten/run.h"

namespace memplan {

class GradScaler {
 public:
  /// scaler.scale(loss): makes the scale on first use; the product is what backward() starts from.
  Tensor scale(Run& run, const Tensor& loss);
  /// The unscale of scaler.step(): a found_inf flag that lives until update().
  void unscale(Run& run);
  void update(Run& run);

 private:
  Tensor scale_, growth_, found_inf_;
};

}  // namespace memplan
