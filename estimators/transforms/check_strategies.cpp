#include "estimators/transforms/check_strategies.h"

#include "estimators/base/error.h"
#include "estimators/setup/field.h"
#include "estimators/setup/run_dtype.h"
#include "estimators/transforms/fp8.h"

namespace memplan {

void check_strategies(const TrainingSetup& s) {
  check_fp8(s);
  const bool training = s.mode == Mode::training, fp16_scaler = s.precision == Precision::amp_fp16;
  if (training && s.offload.parameters)
    fail(ErrorKind::usage, "a training step keeps its parameters on the device", setting(Field::offload, "parameters"),
         "offload the optimizer or the activations; for inference add " + setting(Field::mode, "inference"));
  if (s.offload.parameters && is_amp(s.precision))
    fail(ErrorKind::usage, "autocast would keep a copy of every weight that visits the device",
         setting(Field::offload, "parameters"),
         "convert the model with " + setting(Field::precision, "bf16") + " instead");
  if (training && s.offload.optimizer && s.optimizer.kind == OptimizerKind::none)
    fail(ErrorKind::usage, "there is no optimizer to offload", setting(Field::offload, "optimizer"),
         "leave it out or choose another " + setting(Field::optimizer));
  if (training && s.offload.optimizer && fp16_scaler)
    fail(ErrorKind::usage, "GradScaler works on the device's gradients, and they are on the host",
         setting(Field::offload, "optimizer"), "use " + setting(Field::autocast, "bf16") + ", which needs no scaler");
  if (training && s.optimizer.kind == OptimizerKind::muon && fp16_scaler)
    fail(ErrorKind::usage, "GradScaler steps one optimizer, and Muon needs AdamW beside it",
         setting(Field::optimizer, "muon"), "use " + setting(Field::autocast, "bf16") + ", which needs no scaler");
}

}  // namespace memplan
