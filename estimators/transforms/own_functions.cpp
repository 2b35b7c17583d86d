// Autograd functions of the model's own, of which the export shows the forward pass alone: each application becomes one
// call again.
#include "estimators/transforms/own_functions.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "estimators/tape/own_function.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// Calls [first, end) as one call that saves its arguments.
class Application {
 public:
  Application(const Tape& tape, std::size_t first, std::size_t end) : tape_(tape), first_(first), end_(end) {}

  Call joined(const std::vector<std::int32_t>& last_reader, bool again) {
    function_->again = again;
    for (std::size_t i = first_; i < end_; ++i) add(tape_.calls[i]);
    const Call& begin = tape_.calls[first_];
    Call call;
    call.op = "autograd.Function";
    call.scope = begin.scope;
    call.source = begin.source;
    call.binding = tape_.calls[end_ - 1].binding;
    call.no_autocast = begin.no_autocast;
    for (const auto& [outer, inner] : arguments_) {
      call.args.push_back({outer});
      function_->forward.tape.inputs.push_back(inner);
      function_->saved.push_back(inner);
    }
    const auto leaves = [&](ValueId id) {
      return last_reader[static_cast<std::size_t>(id.index)] >= static_cast<std::int32_t>(end_);
    };
    for (std::size_t i = first_; i < end_; ++i) {
      for (const ValueId made : tape_.calls[i].outputs) {
        if (!made.valid() || !leaves(made)) continue;
        call.outputs.push_back(made);
        function_->forward.results.push_back(renamed(made));
      }
      for (const ValueId id : tape_.calls[i].last_uses)
        if (!made_.contains(id) || leaves(id)) call.last_uses.push_back(id);
    }
    call.own = std::move(function_);
    return call;
  }

 private:
  ValueId renamed(ValueId id) {
    const auto [at, fresh] = names_.try_emplace(id);
    if (!fresh) return at->second;
    at->second = function_->forward.tape.add_value(tape_.values[static_cast<std::size_t>(id.index)]);
    if (!made_.contains(id)) arguments_.emplace_back(id, at->second);
    return at->second;
  }

  void add(const Call& call) {
    Call own = call;
    replace_values(own, [&](ValueId id) { return Arg{renamed(id)}; });
    for (ValueId& id : own.outputs)
      if (id.valid()) made_.insert(id), id = renamed(id);
    own.releases.clear();
    for (const ValueId id : call.last_uses)
      if (made_.contains(id)) own.releases.push_back(renamed(id));
    own.last_uses.clear();
    function_->forward.tape.calls.push_back(std::move(own));
  }

  const Tape& tape_;
  std::size_t first_, end_;
  std::shared_ptr<OwnFunction> function_ = std::make_shared<OwnFunction>();
  std::map<ValueId, ValueId> names_;
  std::vector<std::pair<ValueId, ValueId>> arguments_;  ///< in the tape, in the function
  std::set<ValueId> made_;
};

std::size_t end_of(const Tape& tape, std::size_t first) {
  std::size_t end = first + 1;
  const std::int32_t function = tape.calls[first].function;
  while (function >= 0 && end < tape.calls.size() && tape.calls[end].function == function) ++end;
  return end;
}

/// Whether a checkpointed stretch begins or ends inside of calls [first, end).
bool is_cut(const Tape& tape, std::size_t first, std::size_t end) {
  return std::ranges::any_of(tape.checkpoints, [&](const CheckpointRegion& r) {
    const auto begin = static_cast<std::size_t>(r.first), last = static_cast<std::size_t>(r.last);
    return (begin > first && begin < end) || (last >= first && last + 1 < end);
  });
}

}  // namespace

void join_own_functions(Tape& tape) {
  const FunctionReading reading = tape.reading.functions;
  if (tape.exported.recorded || reading == FunctionReading::pieces || reading == FunctionReading::all ||
      std::ranges::none_of(tape.calls, [](const Call& c) { return c.function >= 0; }))
    return;
  const std::vector<std::int32_t> last = last_readers(tape);
  std::vector<Call> calls;
  std::vector<std::int32_t> place(tape.calls.size());  // of each call among the new ones
  for (std::size_t i = 0; i < tape.calls.size();) {
    const std::size_t end = end_of(tape, i);
    std::fill(place.begin() + static_cast<std::ptrdiff_t>(i), place.begin() + static_cast<std::ptrdiff_t>(end),
              static_cast<std::int32_t>(calls.size()));
    if (tape.calls[i].function < 0 || is_cut(tape, i, end)) {
      calls.push_back(std::move(tape.calls[i++]));
      continue;
    }
    calls.push_back(Application(tape, i, end).joined(last, reading == FunctionReading::ends));
    i = end;
  }
  for (CheckpointRegion& r : tape.checkpoints)
    r.first = place[static_cast<std::size_t>(r.first)], r.last = place[static_cast<std::size_t>(r.last)];
  tape.calls = std::move(calls);
}

}  // namespace memplan
