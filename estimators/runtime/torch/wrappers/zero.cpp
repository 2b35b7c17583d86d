#include "estimators/runtime/torch/wrappers/zero.h"

#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/setup/optimizers.h"
#include "estimators/setup/strategies.h"

namespace memplan {

Zero::Zero(const WrapContext& c)
    : optimizer_on_host_(c.setup.offload.optimizer),
      parameters_on_host_(c.setup.offload.parameters),
      ranks_(c.ranks.data * c.ranks.context),
      stage_(strategy_of(c.ranks).stage),
      overlap_(c.ranks.overlap_communication.value_or(stage_ == 3)),
      bucket_(c.ranks.reduce_bucket) {
  Run& r = c.run;
  if (optimizer_model(c.setup.optimizer.kind).adam && !optimizer_on_host_) {
    r.begin_op("FusedAdam");
    overflow_buffer_ = r.empty({1}, DType::int32, Category::optimizer_state);
    r.label(overflow_buffer_, "FusedAdam._dummy_overflow_buf");
  }
}

Tensor Zero::scaled_loss(Run& r, const Tensor& loss) {
  r.begin_op("DeepSpeedEngine.backward");
  divided_loss_ = op::div_number(r, loss);
  return op::mul_number(r, divided_loss_);
}

void Zero::end_backward(Run&) { divided_loss_.reset(); }

void Zero::norm_of(Run& r, std::int64_t elements) {
  Tensor wide = r.empty({elements}, DType::float64, Category::temporary);
}

void Zero::keep_norm(Run& r, DType dtype) {
  if (!norm_) norm_ = r.empty({}, dtype, Category::temporary);
  r.label(norm_, "norm of all gradients");
}

Tensor Zero::flattened(Run& r, std::int64_t elements, DType dtype, std::size_t pieces) {
  return pieces > 1 ? r.empty({elements}, dtype, Category::temporary) : Tensor();
}

}  // namespace memplan
