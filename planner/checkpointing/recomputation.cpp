// What a call of the forward pass costs to run again.
#include <algorithm>
#include <numeric>

#include "estimators/runtime/torch/aten/cost.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/runtime/torch/step/inspect_forward.h"
#include "estimators/tape/uses.h"
#include "planner/checkpointing/plan.h"

namespace memplan {

namespace {

Tensor tensor_of(const Environment& env, ValueId id) {
  const Value& v = env.values[static_cast<std::size_t>(id.index)];
  return v.is_tensor() ? v.tensor() : Tensor();
}

Operand operand_of(const Tensor& t) {
  Operand o{{}, t->dtype};
  for (int d = 0; d < t->rank(); ++d) o.sizes.push_back(t->sizes[d]);
  return o;
}

/// What only arguments that are no tensors tell.
void read_arguments(const Call& call, const Row* row, OpCall& cost) {
  const auto read = [&](std::string_view name, const Arg& a) {
    if (const auto* text = std::get_if<std::string>(&a.value); text && cost.op == "aten::einsum") cost.equation = *text;
    if (const auto* flag = std::get_if<bool>(&a.value); flag && name == "transposed") cost.transposed = *flag;
  };
  for (std::size_t i = 0; i < call.args.size(); ++i)
    read(row && i < row->arguments.size() ? std::string_view(row->arguments[i]) : std::string_view(), call.args[i]);
  for (const auto& [name, a] : call.kwargs) read(name, a);
}

}  // namespace

Result<std::vector<double>> call_seconds(const Tape& tape, const TrainingSetup& setup, const Device& device,
                                         const CallRates& rates) {
  return catching([&] {
    std::vector<double> seconds(tape.calls.size(), 0);
    inspect_forward(tape, setup, device, [&](const Run& run, const Environment& env) {
      for (std::size_t i = 0; i < tape.calls.size(); ++i) {
        const Call& call = tape.calls[i];
        TensorList inputs, outputs;
        for_each_value(call, [&](ValueId id) {
          if (Tensor t = id.valid() ? tensor_of(env, id) : Tensor()) inputs.push_back(t);
        });
        for (ValueId id : call.outputs)
          if (Tensor t = id.valid() ? tensor_of(env, id) : Tensor()) outputs.push_back(t);
        OpCall cost;
        cost.op = call.op;
        read_arguments(call, call.unknown ? nullptr : run.profile.ops->find(call.op), cost);
        for (const Tensor& t : inputs) cost.inputs.push_back(operand_of(t));
        for (const Tensor& t : outputs) cost.outputs.push_back(operand_of(t));
        const bool fresh = std::any_of(outputs.begin(), outputs.end(), [&](const Tensor& t) {
          return std::none_of(inputs.begin(), inputs.end(),
                              [&](const Tensor& x) { return x->storage.get() == t->storage.get(); });
        });
        // A view moves nothing.
        const double bytes = fresh || is_in_place(call.op) ? bytes_touched(cost) : 0;
        const bool half =
            !outputs.empty() && (outputs[0]->dtype == DType::bfloat16 || outputs[0]->dtype == DType::float16);
        seconds[i] = std::max(flops_of(cost).forward / (half ? rates.half : rates.fp32), bytes / rates.memory);
      }
    });
    return seconds;
  });
}

double recompute_seconds(const std::vector<CheckpointRegion>& regions, const std::vector<double>& seconds) {
  double sum = 0;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const CheckpointRegion& r = regions[i];
    // A stretch that ends with another one runs again up to where that one begins.
    std::int32_t end = r.last + 1;
    for (std::size_t k = i + 1; k < regions.size() && regions[k].last <= r.last; ++k)
      if (regions[k].last == r.last) end = std::min(end, regions[k].first), k = regions.size();
    for (std::int32_t c = r.first; c < end; ++c) sum += seconds[static_cast<std::size_t>(c)];
  }
  return sum;
}

}  // namespace memplan
