#include <algorithm>
#include <unordered_map>

#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

const ValueId* value_in(const Call& call, std::size_t i) {
  return i < call.args.size() ? std::get_if<ValueId>(&call.args[i].value) : nullptr;
}

/// x[:] = y, from the start to the end in steps of one: the result is y.
bool is_whole(const Call& call) {
  const auto number = [&](std::size_t i, std::int64_t fallback) {
    if (i >= call.args.size() || call.args[i].is_none()) return fallback;
    const auto* n = std::get_if<std::int64_t>(&call.args[i].value);
    return n ? *n : std::int64_t{-1};
  };
  constexpr std::int64_t far = std::int64_t{1} << 62;
  return call.op == "aten::slice_scatter" && value_in(call, 1) && number(3, 0) == 0 && number(4, far) >= far &&
         number(5, 1) == 1;
}

/// What becomes of `x[a:b] = y` and `x[i] = y` where a program is made functional.
bool writes_part(const Call& call) { return call.op == "aten::slice_scatter" || call.op == "aten::select_scatter"; }

/// Rewrites calls one by one: `rewrite(call, index)` returns what takes the place of the call's result, or an invalid
/// value where the call stays.
template <class F>
void rewrite_calls(Tape& tape, F&& rewrite) {
  std::unordered_map<std::int32_t, ValueId> instead;
  const auto now = [&](ValueId id) {
    const auto it = instead.find(id.index);
    return it == instead.end() ? id : it->second;
  };
  std::vector<Call> calls = std::move(tape.calls);
  tape.calls.clear();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    replace_values(calls[i], [&](ValueId id) { return Arg{now(id)}; });
    const ValueId value = rewrite(calls[i], i);
    if (value.valid())
      instead[calls[i].outputs[0].index] = value;
    else
      tape.calls.push_back(std::move(calls[i]));
  }
  for (ValueId& id : tape.outputs)
    if (id.valid()) id = now(id);
}

}  // namespace

void recover_slice_writes(Tape& tape) {
  if (std::ranges::none_of(tape.calls, writes_part)) return;
  rewrite_calls(tape, [&](const Call& call, std::size_t) {
    return is_whole(call) && call.outputs.size() == 1 ? *value_in(call, 1) : ValueId{};
  });
  std::vector<std::int32_t> last = last_readers(tape);
  std::int64_t count = 0;
  rewrite_calls(tape, [&](const Call& call, std::size_t i) {
    const ValueId *base = value_in(call, 0), *part = value_in(call, 1);
    if (!writes_part(call) || call.outputs.size() != 1 || !base || !part || call.args.size() < 3) return ValueId{};
    std::int32_t& last_of_base = last[static_cast<std::size_t>(base->index)];
    // Who reads the base later wants it as it was.
    if (tape.values[static_cast<std::size_t>(base->index)].kind != ValueKind::computed ||
        last_of_base > static_cast<std::int32_t>(i))
      return ValueId{};
    last_of_base = last[static_cast<std::size_t>(call.outputs[0].index)];
    Call view = call, write = call;
    view.op = call.op == "aten::slice_scatter" ? "memplan::index_slice" : "aten::select.int";
    view.args.erase(view.args.begin() + 1);
    TapeValue v;
    v.name = tape.values[static_cast<std::size_t>(call.outputs[0].index)].name + ".view";
    view.outputs = {tape.add_value(std::move(v))};
    view.known_shapes.clear();
    write.op = "aten::copy_";
    write.args = {{view.outputs[0]}, {*part}};
    write.known_shapes.clear();
    const ValueId result = *base;
    tape.calls.push_back(std::move(view));
    tape.calls.push_back(std::move(write));
    ++count;
    return result;
  });
  if (count > 0)
    tape.recovered.push_back({"in-place ops", "copies of tensors with a part of them written", count,
                              Evidence::told_by_pattern, About::in_place});
}

}  // namespace memplan
