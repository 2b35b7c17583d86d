#include "estimators/runtime/torch/step/scaler.h"

#include "estimators/runtime/torch/aten/ops.h"

namespace memplan {

Tensor GradScaler::scale(Run& r, const Tensor& loss) {
  r.begin_op("scaler.scale");
  if (!scale_) {
    growth_ = r.empty({}, DType::int32, Category::optimizer_state);
    scale_ = r.empty({}, DType::float32, Category::optimizer_state);
    r.label(scale_, "GradScaler.scale");
    r.label(growth_, "GradScaler.growth_tracker");
  }
  return op::mul(r, loss, scale_);
}

void GradScaler::unscale(Run& r) {
  r.phase = Phase::optimizer;
  r.begin_op("scaler.unscale_");
  ScopedValue<bool> no_grad(r.grad_mode, false);
  // inv_scale = self._scale.double().reciprocal().float()
  Tensor wide = r.empty({}, DType::float64);
  Tensor reciprocal = r.empty({}, DType::float64);
  wide.reset();
  Tensor inverse = r.empty({}, DType::float32);
  reciprocal.reset();
  // _MultiDeviceReplicator copies the flag and the factor for every device, their own one, too.
  Tensor flag = r.empty({}, DType::float32);
  found_inf_ = r.empty({}, DType::float32);
  Tensor factor = r.empty({}, DType::float32);
}

void GradScaler::update(Run& r) {
  r.begin_op("scaler.update");
  found_inf_.reset();
}

}  // namespace memplan
