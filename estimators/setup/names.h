// The words of a setup's choices: what the command line takes and what reports print.
#pragma once

#include "estimators/base/names.h"
#include "estimators/setup/setup.h"

namespace memplan {

inline constexpr std::array mode_names{
    Named<Mode>{"training", Mode::training},
    Named<Mode>{"inference", Mode::inference},
    Named<Mode>{"train", Mode::training, true},
    Named<Mode>{"infer", Mode::inference, true},
};

/// One word says what weights and activations are and whether linears run in 8 bits.
struct PrecisionChoice {
  Precision precision = Precision::fp32;
  Fp8 fp8 = Fp8::none;
  friend constexpr bool operator==(const PrecisionChoice&, const PrecisionChoice&) = default;
};
inline constexpr std::array precision_names{
    Named<PrecisionChoice>{"fp32", {Precision::fp32}},
    Named<PrecisionChoice>{"amp-bf16", {Precision::amp_bf16}},
    Named<PrecisionChoice>{"amp-fp16", {Precision::amp_fp16}},
    Named<PrecisionChoice>{"bf16", {Precision::bf16}},
    Named<PrecisionChoice>{"fp16", {Precision::fp16}},
    Named<PrecisionChoice>{"fp8", {Precision::bf16, Fp8::cached}},
    Named<PrecisionChoice>{"fp8-weights", {Precision::bf16, Fp8::primary}},
};

/// Some words stand for an optimizer with a setting.
struct OptimizerChoice {
  OptimizerKind kind = OptimizerKind::adamw;
  bool momentum = false, amsgrad = false;
  friend constexpr bool operator==(const OptimizerChoice&, const OptimizerChoice&) = default;
};
inline constexpr std::array optimizer_names{
    Named<OptimizerChoice>{"adamw", {OptimizerKind::adamw}},
    Named<OptimizerChoice>{"adamw-amsgrad", {OptimizerKind::adamw, false, true}},
    Named<OptimizerChoice>{"adam", {OptimizerKind::adam}},
    Named<OptimizerChoice>{"sgd", {OptimizerKind::sgd}},
    Named<OptimizerChoice>{"sgd-momentum", {OptimizerKind::sgd, true}},
    Named<OptimizerChoice>{"adagrad", {OptimizerKind::adagrad}},
    Named<OptimizerChoice>{"rmsprop", {OptimizerKind::rmsprop}},
    Named<OptimizerChoice>{"adafactor", {OptimizerKind::adafactor}},
    Named<OptimizerChoice>{"adafactor-hf", {OptimizerKind::adafactor_hf}},
    Named<OptimizerChoice>{"lion", {OptimizerKind::lion}},
    Named<OptimizerChoice>{"adamw8bit", {OptimizerKind::adamw8bit}},
    Named<OptimizerChoice>{"muon", {OptimizerKind::muon}},
    Named<OptimizerChoice>{"none", {OptimizerKind::none}},
};

inline constexpr std::array optimizer_impl_names{
    Named<OptimizerImpl>{"auto", OptimizerImpl::automatic},
    Named<OptimizerImpl>{"foreach", OptimizerImpl::foreach},
    Named<OptimizerImpl>{"fused", OptimizerImpl::fused},
    Named<OptimizerImpl>{"loop", OptimizerImpl::loop},
};

inline constexpr std::array attention_names{
    Named<AttentionBackend>{"auto", AttentionBackend::automatic},
    Named<AttentionBackend>{"math", AttentionBackend::math},
    Named<AttentionBackend>{"flash", AttentionBackend::flash},
    Named<AttentionBackend>{"efficient", AttentionBackend::efficient},
    Named<AttentionBackend>{"cudnn", AttentionBackend::cudnn},
};

inline constexpr std::array loss_names{
    Named<Loss>{"auto", Loss::automatic},
    Named<Loss>{"causal-lm", Loss::causal_lm},
    Named<Loss>{"cross-entropy", Loss::cross_entropy},
    Named<Loss>{"mse", Loss::mse},
    Named<Loss>{"sum", Loss::sum},
};

inline constexpr std::array zero_grad_names{
    Named<ZeroGrad>{"begin", ZeroGrad::begin_set_none},
    Named<ZeroGrad>{"end", ZeroGrad::end_set_none},
    Named<ZeroGrad>{"keep", ZeroGrad::begin_keep},
    Named<ZeroGrad>{"backward", ZeroGrad::before_backward},
};

inline constexpr std::array offload_names{
    Named<bool OffloadSetup::*>{"activations", &OffloadSetup::activations},
    Named<bool OffloadSetup::*>{"optimizer", &OffloadSetup::optimizer},
    Named<bool OffloadSetup::*>{"parameters", &OffloadSetup::parameters},
};

inline constexpr std::array zero_stage_names{
    Named<Sharding>{"1", Sharding::zero1},
    Named<Sharding>{"2", Sharding::zero2},
    Named<Sharding>{"3", Sharding::zero3},
};

inline constexpr std::array pipeline_schedule_names{
    Named<PipelineSchedule>{"gpipe", PipelineSchedule::gpipe},
    Named<PipelineSchedule>{"1f1b", PipelineSchedule::one_f_one_b},
    Named<PipelineSchedule>{"interleaved", PipelineSchedule::interleaved},
    Named<PipelineSchedule>{"zero-bubble", PipelineSchedule::zero_bubble},
    Named<PipelineSchedule>{"zbv", PipelineSchedule::zbv},
};

/// Of --fsdp-dtype and --reduce-dtype.
inline constexpr std::array floating_names{
    Named<DType>{"bf16", DType::bfloat16},
    Named<DType>{"fp16", DType::float16},
    Named<DType>{"fp32", DType::float32},
};

/// What keys and values of a cache may be kept in.
inline constexpr std::array kv_dtype_names{
    Named<DType>{"bf16", DType::bfloat16},
    Named<DType>{"fp16", DType::float16},
    Named<DType>{"fp32", DType::float32},
    Named<DType>{"fp8", DType::float8_e4m3fn},
};

inline constexpr std::array yes_no_names{
    Named<bool>{"yes", true},
    Named<bool>{"no", false},
};

const char* name_of(Mode mode);
const char* name_of(Precision precision);
const char* precision_of(const TrainingSetup& setup);  ///< "fp8" and "fp8-weights" besides
const char* name_of(OptimizerKind kind);
const char* name_of(OptimizerImpl impl);
const char* name_of(AttentionBackend backend);
const char* name_of(Loss loss);
const char* name_of(ZeroGrad zero_grad);

}  // namespace memplan
