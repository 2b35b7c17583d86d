#include "estimators/runtime/torch/autograd/interpreter.h"

#include <fmt/format.h>

#include <utility>

#include "estimators/runtime/torch/aten/arguments.h"
#include "estimators/runtime/torch/autograd/call_failure.h"
#include "estimators/runtime/torch/autograd/checkpoint.h"
#include "estimators/runtime/torch/autograd/without_row.h"
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

namespace {

Value resolve(const Environment& env, const Arg& arg) {
  return value_of(arg, [&](ValueId id) { return env.values[id.index]; });
}

std::int32_t name_id(Run& r, std::vector<std::int32_t>& known, std::size_t index, const std::string& name) {
  if (known[index] < 0) known[index] = r.intern(name);
  return known[index];
}

/// ctx.save_for_backward() of all that a call reads and makes.
void keep_for_backward(Run& r, const std::vector<Value>& args, const ValueList& results) {
  for (const Value& result : results) {
    if (!result.is_tensor() || !result.tensor() || !result.tensor()->grad_fn) continue;
    Node* node = result.tensor()->grad_fn.get();
    r.save_output(node, result.tensor());
    for (const Value& a : args)
      if (a.is_tensor() && a.tensor()) r.save(node, a.tensor());
  }
}

/// Calls [first, last], with names of calls and values looked up in `names`. `entered`: the hook before the first one
/// has run.
void run_calls(Run& r, const Tape& tape, Environment& env, Environment& names, std::int32_t first, std::int32_t last,
               bool entered = false) {
  const OpTable& table = *r.profile.ops;
  std::vector<Value> args;
  std::vector<std::pair<std::string, Value>> kwargs;
  // A model may have no calls at all: its last one is -1 then.
  for (auto i = static_cast<std::size_t>(first); static_cast<std::ptrdiff_t>(i) <= last; ++i) {
    const Call& call = tape.calls[i];
    if (env.hooks && !std::exchange(entered, false)) env.hooks->before(r, env, static_cast<std::int32_t>(i));
    r.scope = call.scope;
    r.call = static_cast<std::int32_t>(i);
    r.begin_op(name_id(r, names.call_names, i, call.op));
    args.clear();
    kwargs.clear();
    for (const Arg& a : call.args) args.push_back(resolve(env, a));
    for (const auto& [name, a] : call.kwargs) kwargs.emplace_back(name, resolve(env, a));
    if (names.observer) names.observer->before(r, i, args, kwargs);
    const Row* row = call.unknown || call.own ? nullptr : table.find(call.op);
    if (row && row->fidelity != Fidelity::exact)
      r.note(call.op, About::op, Evidence::assumed,
             "outputs and saved tensors are right, temporaries of the kernel may be missing");
    ValueList results;
    const bool keeps_all = call.function >= 0 && tape.reading.functions == FunctionReading::all;
    std::vector<Value> kept = keeps_all ? args : std::vector<Value>();
    ScopedValue<bool> autocast(r.autocast, r.autocast && !call.no_autocast);
    try {
      results = row        ? call_op(r, *row, std::move(args), kwargs)
                : call.own ? run_own_function(r, call.own, args)
                           : run_unknown(r, call, args, kwargs, tape.exported.recorded);
    } catch (const Failure& failure) {
      Error e = failure.error();
      const std::string at = tape.scopes.empty() || call.scope < 0 ? std::string() : tape.scopes[call.scope].path;
      e.where = fmt::format("call {} of the tape, {}{}{}", i, call.op, at.empty() ? "" : " in ", at);
      throw CallFailure(std::move(e), static_cast<std::size_t>(i));
    }
    if (keeps_all) keep_for_backward(r, kept, results);
    args.clear();
    kept.clear();
    kwargs.clear();
    if (names.observer) names.observer->after(r, i, results);
    // An op that returns one list (split, unbind, chunk) may be bound to several names.
    if (results.size() == 1 && results[0].is_list() && call.outputs.size() != 1) {
      ValueList inner = results[0].list();
      results = std::move(inner);
    }
    for (std::size_t o = 0; o < call.outputs.size(); ++o) {
      if (!call.outputs[o].valid()) continue;
      Value& slot = env.values[call.outputs[o].index];
      slot = o < results.size() ? std::move(results[o]) : Value();
      if (slot.is_tensor() && slot.tensor() && slot.tensor()->name < 0) {
        const auto value = static_cast<std::size_t>(call.outputs[o].index);
        r.label(slot.tensor(), name_id(r, names.value_names, value, tape.values[value].name));
      }
    }
    results.clear();
    if (!env.keeps_values)
      for (ValueId id : call.last_uses) env.values[id.index] = Value();
    if (env.hooks) env.hooks->after(r, env, static_cast<std::int32_t>(i));
  }
}

/// Calls [first, last] with the checkpointed stretches among them: those of Tape::checkpoints from `region` on.
void run_range(Run& r, const Tape& tape, Environment& env, Environment& names, std::int32_t first, std::int32_t last,
               std::size_t region, bool entered = false) {
  std::int32_t at = first;
  while (region < tape.checkpoints.size() && tape.checkpoints[region].last <= last) {
    const CheckpointRegion& calls = tape.checkpoints[region];
    if (calls.first < first) {
      ++region;
      continue;
    }
    if (calls.first > at) run_calls(r, tape, env, names, at, calls.first - 1, std::exchange(entered, false));
    // Hooks of the module stand around its forward, which is what torch.utils.checkpoint wraps: inputs that they cast
    // are its inputs.
    if (env.hooks && !entered) env.hooks->before(r, env, calls.first);
    const auto frame = std::make_shared<CheckpointFrame>(
        r, tape, region, env,
        [&tape, &names, region](Run& run, Environment& own, std::int32_t from, std::int32_t to) {
          run_range(run, tape, own, names, from, to, region + 1);
        },
        names.kept_ops);
    ScopedValue<SaveHook*> hook(r.save_hook, frame.get());
    ScopedValue<OpCache*> cache(r.op_cache, frame->cache());
    run_range(r, tape, env, names, calls.first, calls.last, region + 1, true);
    frame->returned();
    entered = false;
    at = calls.last + 1;
    while (region < tape.checkpoints.size() && tape.checkpoints[region].first < at) ++region;  // those inside of it
  }
  if (at <= last) run_calls(r, tape, env, names, at, last, entered);
}

}  // namespace

void run_forward(Run& r, const Tape& tape, Environment& env) {
  env.call_names.resize(tape.calls.size(), -1);
  env.value_names.resize(tape.values.size(), -1);
  const auto last = static_cast<std::int32_t>(tape.calls.size()) - 1;
  if (!r.grad_mode || tape.checkpoints.empty() || env.keeps_values) return run_calls(r, tape, env, env, 0, last);
  run_range(r, tape, env, env, 0, last, 0);
}

}  // namespace memplan
