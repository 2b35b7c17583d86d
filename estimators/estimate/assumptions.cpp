#include "estimators/estimate/assumptions.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/setup/optimizers.h"
#include "estimators/setup/strategies.h"

namespace memplan {

const char* name_of(Mode mode) { return mode == Mode::training ? "training" : "inference"; }

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::amp_bf16:
      return "amp-bf16";
    case Precision::amp_fp16:
      return "amp-fp16";
    case Precision::bf16:
      return "bf16";
    case Precision::fp16:
      return "fp16";
  }
  return "?";
}

const char* precision_of(const TrainingSetup& setup) {
  switch (setup.fp8) {
    case Fp8::none:
      return name_of(setup.precision);
    case Fp8::cached:
      return "fp8";
    case Fp8::primary:
      return "fp8-weights";
  }
  return "?";
}

const char* name_of(OptimizerKind kind) { return optimizer_model(kind).name; }

const char* name_of(OptimizerImpl impl) {
  switch (impl) {
    case OptimizerImpl::automatic:
      return "auto";
    case OptimizerImpl::foreach:
      return "foreach";
    case OptimizerImpl::fused:
      return "fused";
    case OptimizerImpl::loop:
      return "loop";
  }
  return "?";
}

const char* name_of(AttentionBackend backend) {
  switch (backend) {
    case AttentionBackend::automatic:
      return "auto";
    case AttentionBackend::math:
      return "math";
    case AttentionBackend::flash:
      return "flash";
    case AttentionBackend::efficient:
      return "efficient";
    case AttentionBackend::cudnn:
      return "cudnn";
  }
  return "?";
}

const char* name_of(Loss loss) {
  switch (loss) {
    case Loss::automatic:
      return "auto";
    case Loss::cross_entropy:
      return "cross-entropy";
    case Loss::mse:
      return "mse";
    case Loss::sum:
      return "sum";
  }
  return "?";
}

const char* name_of(ZeroGrad zero_grad) {
  switch (zero_grad) {
    case ZeroGrad::begin_set_none:
      return "begin";
    case ZeroGrad::end_set_none:
      return "end";
    case ZeroGrad::begin_keep:
      return "keep";
  }
  return "?";
}

std::vector<std::string> assumptions_of(const TrainingSetup& setup, const Device& device) {
  std::vector<std::string> a;
  a.push_back(fmt::format(
      "PyTorch 2.11 eager on {}, {} steps of the reference program (memplan explain MODEL --program)",
      is_parallel(setup.parallel) ? "one of " + describe(setup.parallel) : std::string("one GPU"), setup.steps));
  a.push_back(fmt::format("CUDA context {}{}; it is outside PyTorch's counters", to_human(device.context),
                          device.context_source.empty() ? std::string() : " (" + device.context_source + ")"));
  if (device.total_is_bound) a.push_back("the device's total is an upper bound, no measured figure is known");
  if (in_megatron(setup.parallel))
    a.push_back(
        "Megatron-LM's buffers, layers and loss as its source documents them, around the model of this file; not "
        "compared with a run of it");
  if (in_deepspeed(setup.parallel)) {
    a.push_back("ZeRO is DeepSpeed 0.19.8 with its defaults; other versions allocate differently");
    if (setup.offload.any())
      a.push_back("DeepSpeed's offload as its source documents it; not compared with a run of it");
  }
  if (setup.fp8 != Fp8::none)
    a.push_back("linears in 8 bits as Transformer Engine's source documents them; not compared with its kernels");
  if (setup.mode == Mode::training) {
    if (setup.loss == Loss::automatic)
      a.push_back("the loss follows from the output: cross entropy for class scores, the output itself when scalar");
    if (setup.inplace_activations)
      a.push_back("activations that the model's modules make in place are taken to be in place");
    if (setup.keep_output) a.push_back("the model's output lives on until the next forward pass has returned");
  }
  if (setup.allocator.expandable_segments) a.push_back("expandable_segments:True");
  return a;
}

}  // namespace memplan
