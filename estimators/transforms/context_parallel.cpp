#include "estimators/transforms/context_parallel.h"

#include "estimators/base/error.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/setup/field.h"

namespace memplan {

namespace {

ValueId gathered(Tape& tape, std::vector<Call>& calls, ValueId id, std::int64_t dim, std::int64_t ranks,
                 std::int32_t scope) {
  TapeValue v = tape.values[static_cast<std::size_t>(id.index)];
  v.name += ".gathered";
  v.kind = ValueKind::computed;
  Call c;
  c.op = "memplan::all_gather";
  c.args = {{id}, {dim}, {ranks}};
  c.outputs = {tape.add_value(std::move(v))};
  c.scope = scope;
  calls.push_back(std::move(c));
  return calls.back().outputs[0];
}

}  // namespace

void gather_keys_and_values(Tape& tape, std::int64_t ranks) {
  std::vector<Call> before = std::move(tape.calls), after;
  std::vector<std::int32_t> begin(before.size()), end(before.size());
  bool any = false;
  for (std::size_t i = 0; i < before.size(); ++i) {
    Call& call = before[i];
    begin[i] = static_cast<std::int32_t>(after.size());
    call.last_uses.clear();
    if (call.op == "aten::scaled_dot_product_attention") {
      any = true;
      for (std::size_t k : {1, 2, 3}) {
        const auto* id = k < call.args.size() ? std::get_if<ValueId>(&call.args[k].value) : nullptr;
        // Keys and values are [batch, heads, sequence, head]; a mask's last dimension is the keys'.
        if (id) call.args[k] = {gathered(tape, after, *id, k == 3 ? -1 : 2, ranks, call.scope)};
      }
    }
    after.push_back(std::move(call));
    end[i] = static_cast<std::int32_t>(after.size()) - 1;
  }
  if (!any)
    fail(ErrorKind::usage,
         "context parallelism gathers the keys and values of attention, and the model has none that memplan recognizes",
         setting(Field::context_parallel), "leave " + setting(Field::context_parallel) + " out");
  for (CheckpointRegion& region : tape.checkpoints) {
    region.first = begin[static_cast<std::size_t>(region.first)];
    region.last = end[static_cast<std::size_t>(region.last)];
  }
  tape.calls = std::move(after);
  mark_last_uses(tape);
}

}  // namespace memplan
