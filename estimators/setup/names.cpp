#include "estimators/setup/names.h"

namespace memplan {

const char* name_of(Mode mode) { return name_in(mode_names, mode); }
const char* name_of(Precision precision) { return name_in(precision_names, {precision, Fp8::none}); }
const char* name_of(OptimizerKind kind) { return name_in(optimizer_names, {kind, false, false}); }
const char* name_of(OptimizerImpl impl) { return name_in(optimizer_impl_names, impl); }
const char* name_of(AttentionBackend backend) { return name_in(attention_names, backend); }
const char* name_of(Loss loss) { return name_in(loss_names, loss); }
const char* name_of(ZeroGrad zero_grad) { return name_in(zero_grad_names, zero_grad); }
const char* name_of(Sharding sharding) { return strategy_of(sharding).name; }
const char* name_of(PipelineSchedule schedule) { return name_in(pipeline_schedule_names, schedule); }

const char* precision_of(const TrainingSetup& setup) {
  return setup.fp8 == Fp8::none ? name_of(setup.precision) : name_in(precision_names, {Precision::bf16, setup.fp8});
}

}  // namespace memplan
