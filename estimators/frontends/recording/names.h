// The words of a recording's setups: those of memplan.export and of the command line.
#pragma once

#include <array>

#include "estimators/setup/setup.h"

namespace memplan::recording {

inline constexpr std::array all_modes = {Mode::training, Mode::inference};
inline constexpr std::array all_precisions = {Precision::fp32, Precision::amp_bf16, Precision::amp_fp16,
                                              Precision::bf16, Precision::fp16};
inline constexpr std::array all_optimizers = {
    OptimizerKind::none,      OptimizerKind::sgd,     OptimizerKind::adam,      OptimizerKind::adamw,
    OptimizerKind::adagrad,   OptimizerKind::rmsprop, OptimizerKind::adafactor, OptimizerKind::lion,
    OptimizerKind::adamw8bit, OptimizerKind::muon};
inline constexpr std::array all_impls = {OptimizerImpl::automatic, OptimizerImpl::foreach, OptimizerImpl::fused,
                                         OptimizerImpl::loop};
inline constexpr std::array all_zero_grads = {ZeroGrad::begin_set_none, ZeroGrad::end_set_none, ZeroGrad::begin_keep};
inline constexpr std::array all_losses = {Loss::automatic, Loss::cross_entropy, Loss::mse, Loss::sum};

inline const char* word_of(Mode m) { return m == Mode::training ? "training" : "inference"; }
inline const char* word_of(Precision p) {
  return std::array{"fp32", "amp-bf16", "amp-fp16", "bf16", "fp16"}[static_cast<std::size_t>(p)];
}
inline const char* word_of(OptimizerKind k) {
  return std::array{"none", "sgd", "adam", "adamw", "adagrad", "rmsprop", "adafactor", "lion", "adamw8bit", "muon"}
      [static_cast<std::size_t>(k)];
}
inline const char* word_of(OptimizerImpl i) {
  return std::array{"auto", "foreach", "fused", "loop"}[static_cast<std::size_t>(i)];
}
inline const char* word_of(ZeroGrad z) { return std::array{"begin", "end", "keep"}[static_cast<std::size_t>(z)]; }
inline const char* word_of(Loss l) {
  return std::array{"auto", "cross-entropy", "mse", "sum"}[static_cast<std::size_t>(l)];
}

}  // namespace memplan::recording
