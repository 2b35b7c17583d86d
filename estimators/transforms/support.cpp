#include "estimators/transforms/support.h"

#include "estimators/base/error.h"
#include "estimators/transforms/fp8.h"

namespace memplan {

void check_strategies(const TrainingSetup& s) {
  check_fp8(s);
  const bool training = s.mode == Mode::training, fp16_scaler = s.precision == Precision::amp_fp16;
  if (training && s.offload.parameters)
    fail(ErrorKind::usage, "a training step keeps its parameters on the device", "--offload parameters",
         "offload the optimizer or the activations; for inference add --mode inference");
  if (s.offload.parameters && (s.precision == Precision::amp_bf16 || s.precision == Precision::amp_fp16))
    fail(ErrorKind::usage, "autocast would keep a copy of every weight that visits the device", "--offload parameters",
         "convert the model with --precision bf16 instead");
  if (training && s.offload.optimizer && s.optimizer.kind == OptimizerKind::none)
    fail(ErrorKind::usage, "there is no optimizer to offload", "--offload optimizer",
         "leave it out or choose another --optimizer");
  if (training && s.offload.optimizer && fp16_scaler)
    fail(ErrorKind::usage, "GradScaler works on the device's gradients, and they are on the host",
         "--offload optimizer", "use --amp bf16, which needs no scaler");
  if (training && s.optimizer.kind == OptimizerKind::muon && fp16_scaler)
    fail(ErrorKind::usage, "GradScaler steps one optimizer, and Muon needs AdamW beside it", "--optimizer muon",
         "use --amp bf16, which needs no scaler");
}

}  // namespace memplan
