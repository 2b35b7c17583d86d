// The mean of attention weights that nobody reads.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

using Sizes = std::vector<std::int64_t>;

const Sizes* sizes_of(const Call& call) {
  return call.outputs.size() == 1 && call.known_shapes.size() == 1 ? &call.known_shapes[0].second : nullptr;
}

/// The steps of F.multi_head_attention_forward with weights (torch/nn/functional.py): softmax, perhaps a dropout, a
/// product with the values, the projection and its reshape.
struct WeightedSteps {
  ValueId weights;         ///< [batch * heads, target, source]
  Sizes weights_sizes;     ///< theirs
  std::size_t end = 0;     ///< the reshape
  std::int64_t batch = 0;  ///< of its result, [target, batch, features]
  bool averaged = false;
};

WeightedSteps steps_of(const Tape& tape, const std::vector<std::size_t>& calls) {
  WeightedSteps s;
  std::map<ValueId, const Call*> made;
  for (const std::size_t i : calls) {
    const Call& call = tape.calls[i];
    s.averaged = s.averaged || call.op == "aten::mean.dim";
    for (const ValueId id : call.outputs) made[id] = &call;
    const auto by = made.find(value_at(call, 0));
    if (by == made.end()) continue;
    const Sizes* sizes = sizes_of(*by->second);
    const std::string& before = by->second->op;
    if (call.op == "aten::bmm" && (before.starts_with("aten::softmax") || before == "aten::dropout") && sizes)
      s.weights = by->first, s.weights_sizes = *sizes;
    const Sizes* result = sizes_of(call);
    if (call.op == "aten::reshape" && before == "aten::linear" && s.weights.valid() && result && result->size() == 3)
      s.end = i, s.batch = (*result)[1];
  }
  return s;
}

Call like(const Call& call, std::string op, std::vector<Arg> args, ValueId out, Sizes sizes) {
  Call made;
  made.op = std::move(op);
  made.args = std::move(args);
  made.scope = call.scope;
  made.source = call.source;
  made.function = call.function;
  made.no_autocast = call.no_autocast;
  made.outputs = {out};
  made.known_shapes = {{call.known_shapes[0].first, std::move(sizes)}};
  return made;
}

}  // namespace

void average_weights(Tape& tape) {
  std::map<std::int32_t, std::vector<std::size_t>> layers;  // calls by scope
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    if (const std::int32_t s = tape.calls[i].scope; s >= 0 && tape.scopes[static_cast<std::size_t>(s)].module_class ==
                                                                  "torch.nn.modules.activation.MultiheadAttention")
      layers[s].push_back(i);
  std::map<std::size_t, std::vector<Call>> after;
  for (const auto& [scope, calls] : layers) {
    const WeightedSteps s = steps_of(tape, calls);
    if (s.averaged || s.batch <= 0 || s.weights_sizes.size() != 3 || s.weights_sizes[0] % s.batch != 0) continue;
    const std::int64_t heads = s.weights_sizes[0] / s.batch, to = s.weights_sizes[1], from = s.weights_sizes[2];
    const ValueId view = tape.add_value({}), mean = tape.add_value({});
    Arg::List sizes{{std::int64_t{-1}}, {heads}, {to}, {from}};
    const Call& end = tape.calls[s.end];
    after[s.end].push_back(
        like(end, "aten::reshape", {{s.weights}, {std::move(sizes)}}, view, {s.batch, heads, to, from}));
    after[s.end].push_back(
        like(end, "aten::mean.dim", {{view}, {Arg::List{{std::int64_t{1}}}}}, mean, {s.batch, to, from}));
  }
  if (after.empty()) return;
  std::vector<Call> calls;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    calls.push_back(std::move(tape.calls[i]));
    if (const auto it = after.find(i); it != after.end()) std::ranges::move(it->second, std::back_inserter(calls));
  }
  tape.calls = std::move(calls);
  tape.recovered.push_back({"aten::mean", "nn.MultiheadAttention that computes its weights", std::ssize(after),
                            Evidence::told_by_name, About::op});
}

}  // namespace memplan
