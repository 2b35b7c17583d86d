// What a call of the forward pass costs to run again.
#include <algorithm>
#include <numeric>

#include "estimators/estimate/checkpoint_plan.h"
#include "estimators/runtime/torch/step/probe.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

Tensor tensor_of(const Environment& env, ValueId id) {
  const Value& v = env.values[static_cast<std::size_t>(id.index)];
  return v.is_tensor() ? v.tensor() : Tensor();
}

/// Multiply-adds count twice. Zero for ops that are bound by memory.
double operations(const Call& call, const TensorList& inputs, const TensorList& outputs) {
  const auto named = [&](std::string_view name) { return call.op.starts_with(name); };
  if (outputs.empty() || inputs.empty() || !outputs[0]) return 0;
  const double out = static_cast<double>(outputs[0]->numel());
  if (named("aten::linear") || named("aten::matmul") || named("aten::mm") || named("aten::bmm"))
    return 2 * out * static_cast<double>(inputs[0]->size(-1));
  if ((named("aten::addmm") || named("aten::baddbmm")) && inputs.size() > 1)
    return 2 * out * static_cast<double>(inputs[1]->size(-1));
  if (named("bitsandbytes::linear_4bit")) return 2 * out * static_cast<double>(inputs[0]->size(-1));
  if (named("aten::conv") && inputs.size() > 1) {
    const Tensor& w = inputs[1];
    return 2 * out * static_cast<double>(w->numel()) / static_cast<double>(std::max<std::int64_t>(1, w->size(0)));
  }
  if (named("aten::scaled_dot_product_attention") && inputs.size() > 2)
    return 2 * static_cast<double>(inputs[0]->numel()) * static_cast<double>(inputs[1]->size(-2)) +
           2 * out * static_cast<double>(inputs[1]->size(-2));
  return 0;
}

}  // namespace

Result<std::vector<double>> call_seconds(const Tape& tape, const TrainingSetup& setup, const Device& device) {
  return catching([&] {
    constexpr double fp32 = 67e12, half = 989e12, memory = 3.35e12;
    std::vector<double> seconds(tape.calls.size(), 0);
    probe_forward(tape, setup, device, [&](const Run&, const Environment& env) {
      for (std::size_t i = 0; i < tape.calls.size(); ++i) {
        const Call& call = tape.calls[i];
        TensorList inputs, outputs;
        for_each_value(call, [&](ValueId id) {
          if (Tensor t = id.valid() ? tensor_of(env, id) : Tensor()) inputs.push_back(t);
        });
        for (ValueId id : call.outputs)
          if (Tensor t = id.valid() ? tensor_of(env, id) : Tensor()) outputs.push_back(t);
        double bytes = 0;
        for (const Tensor& t : inputs) bytes += static_cast<double>(t->bytes().count);
        bool fresh = false;
        for (const Tensor& t : outputs) {
          bytes += static_cast<double>(t->bytes().count);
          fresh = fresh || std::none_of(inputs.begin(), inputs.end(),
                                        [&](const Tensor& x) { return x->storage.get() == t->storage.get(); });
        }
        // A view moves nothing.
        const bool in_place = call.op.find("_.") != std::string::npos || call.op.ends_with("_");
        if (!fresh && !in_place) bytes = 0;
        const double peak =
            !outputs.empty() && (outputs[0]->dtype == DType::bfloat16 || outputs[0]->dtype == DType::float16) ? half
                                                                                                              : fp32;
        seconds[i] = std::max(operations(call, inputs, outputs) / peak, bytes / memory);
      }
    });
    return seconds;
  });
}

double recompute_seconds(const Tape& tape, const std::vector<double>& seconds) {
  double sum = 0;
  for (std::size_t i = 0; i < tape.checkpoints.size(); ++i) {
    const CheckpointRegion& r = tape.checkpoints[i];
    // A stretch that ends with another one runs again up to where that one begins.
    std::int32_t end = r.last + 1;
    for (std::size_t k = i + 1; k < tape.checkpoints.size() && tape.checkpoints[k].last <= r.last; ++k)
      if (tape.checkpoints[k].last == r.last)
        end = std::min(end, tape.checkpoints[k].first), k = tape.checkpoints.size();
    for (std::int32_t c = r.first; c < end; ++c) sum += seconds[static_cast<std::size_t>(c)];
  }
  return sum;
}

}  // namespace memplan
