#include <algorithm>
#include <set>

#include "estimators/facts/libraries.h"
#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// A line of a class that hands on a tensor without its gradient: self.get_weight_norm(weight, update.detach(), …).
bool detaches_argument(const Tape& tape, const Call& c) {
  if (c.scope < 0) return false;
  const LibraryFact* fact = fact_of_class("detaches", tape.scopes[static_cast<std::size_t>(c.scope)].module_class);
  return fact && c.source.find(fact->detail) != c.source.npos;
}

}  // namespace

/// `x.detach()` makes no node of an ONNX graph. Where one tensor that the program made enters such a line, it is the
/// one.
void recover_detached_arguments(Tape& tape) {
  const auto detaches = [&](const Call& c) { return detaches_argument(tape, c); };
  if (std::ranges::none_of(tape.calls, detaches)) return;
  std::vector<Call> calls;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < tape.calls.size();) {
    std::size_t end = i + 1;
    while (end < tape.calls.size() && tape.calls[end].scope == tape.calls[i].scope &&
           tape.calls[end].source == tape.calls[i].source)
      ++end;
    std::set<std::int32_t> made, entering;
    for (std::size_t k = i; k < end && detaches(tape.calls[i]); ++k) {
      for_each_value(tape.calls[k], [&](ValueId id) {
        const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
        if (v.kind == ValueKind::computed && !made.contains(id.index)) entering.insert(id.index);
      });
      for (ValueId id : tape.calls[k].outputs) made.insert(id.index);
    }
    ValueId detached;
    if (entering.size() == 1) {
      Call c = tape.calls[i];
      c.op = "aten::detach";
      c.args = {{ValueId{*entering.begin()}}};
      c.kwargs.clear();
      c.known_shapes.clear();
      c.binding = -1;
      TapeValue v;
      v.name = "detach";
      detached = tape.add_value(std::move(v));
      c.outputs = {detached};
      calls.push_back(std::move(c));
      ++count;
    }
    for (; i < end; ++i) {
      if (detached.valid())
        replace_values(tape.calls[i], [&](ValueId id) { return Arg{id.index == *entering.begin() ? detached : id}; });
      calls.push_back(std::move(tape.calls[i]));
    }
  }
  tape.calls = std::move(calls);
  if (count > 0)
    tape.recovered.push_back({"aten::detach", "lines of classes that hand on a tensor without its gradient", count,
                              Evidence::told_by_name, About::op});
}

}  // namespace memplan
