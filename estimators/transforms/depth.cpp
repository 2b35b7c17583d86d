#include "estimators/transforms/depth.h"

#include <algorithm>
#include <map>

#include "estimators/restore/lifetimes.h"
#include "estimators/tape/uses.h"
#include "estimators/transforms/blocks.h"

namespace memplan {

namespace {

struct Span {
  std::size_t first = 0, end = 0;  ///< calls
};

struct Repeat {
  std::vector<Span> spans;  ///< of the longest run of equal blocks
  std::int64_t blocks = 0;  ///< of the whole model
};

const TapeValue& value(const Tape& tape, ValueId id) { return tape.values[static_cast<std::size_t>(id.index)]; }

bool same_argument(const Tape& tape, const Arg& a, const Arg& b) {
  if (a.value.index() != b.value.index()) return false;
  if (const auto* x = std::get_if<ValueId>(&a.value)) {
    const auto& y = std::get<ValueId>(b.value);
    if (x->valid() != y.valid()) return false;
    if (!x->valid()) return true;
    const TapeValue &v = value(tape, *x), &w = value(tape, y);
    return v.kind == w.kind && v.dtype == w.dtype && v.sizes == w.sizes && v.requires_grad == w.requires_grad &&
           v.number == w.number;
  }
  if (const auto* x = std::get_if<Arg::List>(&a.value)) {
    const auto& y = std::get<Arg::List>(b.value);
    return x->size() == y.size() && std::equal(x->begin(), x->end(), y.begin(),
                                               [&](const Arg& p, const Arg& q) { return same_argument(tape, p, q); });
  }
  const auto equal = [&]<class T>(T*) {
    const T* x = std::get_if<T>(&a.value);
    return x && *x == std::get<T>(b.value);
  };
  return a.is_none() || equal(static_cast<std::int64_t*>(nullptr)) || equal(static_cast<double*>(nullptr)) ||
         equal(static_cast<bool*>(nullptr)) || equal(static_cast<std::string*>(nullptr)) ||
         equal(static_cast<DType*>(nullptr));
}

bool same_call(const Tape& tape, const Call& a, const Call& b) {
  if (a.op != b.op || a.outputs.size() != b.outputs.size() || a.args.size() != b.args.size() ||
      a.kwargs.size() != b.kwargs.size())
    return false;
  for (std::size_t i = 0; i < a.args.size(); ++i)
    if (!same_argument(tape, a.args[i], b.args[i])) return false;
  for (std::size_t i = 0; i < a.kwargs.size(); ++i)
    if (a.kwargs[i].first != b.kwargs[i].first || !same_argument(tape, a.kwargs[i].second, b.kwargs[i].second))
      return false;
  return true;
}

bool same_block(const Tape& tape, const Span& a, const Span& b) {
  if (a.end - a.first != b.end - b.first) return false;
  for (std::size_t i = 0; i < a.end - a.first; ++i)
    if (!same_call(tape, tape.calls[a.first + i], tape.calls[b.first + i])) return false;
  return true;
}

Repeat longest_run(const Tape& tape) {
  const ScopeSpans spans(tape);
  std::vector<Span> all;
  for (std::int32_t s : outermost(tape, repeated_modules(tape))) {
    const auto first = spans.first[static_cast<std::size_t>(s)], last = spans.last[static_cast<std::size_t>(s)];
    if (first >= 0) all.push_back({static_cast<std::size_t>(first), static_cast<std::size_t>(last) + 1});
  }
  std::sort(all.begin(), all.end(), [](const Span& a, const Span& b) { return a.first < b.first; });
  Repeat best;
  std::vector<Span> now;
  for (const Span& s : all) {
    const bool goes_on = !now.empty() && now.back().end == s.first && same_block(tape, now.back(), s);
    if (!goes_on) now.clear();
    now.push_back(s);
    if (now.size() > best.spans.size()) best.spans = now;
  }
  if (best.spans.size() < 2) best.spans.clear();
  best.blocks = best.spans.empty() ? 0 : static_cast<std::int64_t>(all.size());
  return best;
}

/// Leaves out what nothing uses any more and numbers the rest anew.
class Compactor {
 public:
  explicit Compactor(Tape& tape) : tape_(tape), value_(tape.values.size(), -1), scope_(tape.scopes.size(), -1) {}

  void run() {
    std::vector<bool> used(tape_.values.size(), false);
    const auto use = [&](ValueId id) {
      if (id.valid()) used[static_cast<std::size_t>(id.index)] = true;
    };
    for (const Call& c : tape_.calls) {
      for_each_value(c, use);
      for (ValueId id : c.outputs) use(id);
    }
    for (ValueId id : tape_.outputs) use(id);
    for (std::size_t i = 0; i < used.size(); ++i)
      if (used[i]) use(tape_.values[i].same_storage_as);
    for (auto* list : {&tape_.inputs, &tape_.parameters, &tape_.buffers})
      std::erase_if(*list, [&](ValueId id) { return !used[static_cast<std::size_t>(id.index)]; });
    std::vector<TapeValue> values;
    for (std::size_t i = 0; i < used.size(); ++i)
      if (used[i]) value_[i] = static_cast<std::int32_t>(values.size()), values.push_back(std::move(tape_.values[i]));
    tape_.values = std::move(values);
    for (TapeValue& v : tape_.values) renumber(v.same_storage_as);
    for (Call& c : tape_.calls) {
      replace_values(c, [&](ValueId id) {
        renumber(id);
        return Arg{id};
      });
      for (ValueId& id : c.outputs) renumber(id);
    }
    for (auto* list : {&tape_.inputs, &tape_.parameters, &tape_.buffers, &tape_.outputs})
      for (ValueId& id : *list) renumber(id);
    keep_scopes();
  }

 private:
  void renumber(ValueId& id) const {
    if (id.valid()) id.index = value_[static_cast<std::size_t>(id.index)];
  }

  void keep_scopes() {
    std::vector<bool> used(tape_.scopes.size(), false);
    for (const Call& c : tape_.calls)
      for (std::int32_t s = c.scope; s >= 0 && !used[static_cast<std::size_t>(s)];
           s = tape_.scopes[static_cast<std::size_t>(s)].parent)
        used[static_cast<std::size_t>(s)] = true;
    std::vector<Scope> scopes;
    for (std::size_t i = 0; i < used.size(); ++i)
      if (used[i]) scope_[i] = static_cast<std::int32_t>(scopes.size()), scopes.push_back(std::move(tape_.scopes[i]));
    tape_.scopes = std::move(scopes);
    const auto renumbered = [&](std::int32_t s) { return s < 0 ? s : scope_[static_cast<std::size_t>(s)]; };
    for (Scope& s : tape_.scopes) s.parent = renumbered(s.parent);
    for (Call& c : tape_.calls) c.scope = renumbered(c.scope);
  }

  Tape& tape_;
  std::vector<std::int32_t> value_, scope_;
};

}  // namespace

Depth depth_of(const Tape& tape) {
  const Repeat run = longest_run(tape);
  return {run.blocks, static_cast<std::int64_t>(run.spans.size())};
}

std::optional<Tape> with_blocks(const Tape& tape, std::int64_t blocks) {
  const Repeat run = longest_run(tape);
  const std::int64_t away = run.blocks - blocks, kept = static_cast<std::int64_t>(run.spans.size()) - away;
  if (run.spans.empty() || away < 0 || kept < 1) return std::nullopt;
  if (away == 0) return tape;
  const Span &last_kept = run.spans[static_cast<std::size_t>(kept - 1)], &last = run.spans.back();
  const std::size_t first_gone = last_kept.end;
  // Where the results of a block that goes are made: the last block's have a counterpart, the others must not be
  // missed.
  std::map<ValueId, ValueId> instead;
  for (std::size_t i = first_gone; i < last.end; ++i)
    for (std::size_t o = 0; o < tape.calls[i].outputs.size(); ++o) {
      const ValueId id = tape.calls[i].outputs[o];
      if (id.valid())
        instead[id] = i >= last.first ? tape.calls[last_kept.first + (i - last.first)].outputs[o] : ValueId{};
    }
  Tape out;
  out.values = tape.values;
  out.scopes = tape.scopes;
  out.bindings = tape.bindings;
  out.dims = tape.dims;
  out.exported = tape.exported;
  out.inputs = tape.inputs, out.parameters = tape.parameters, out.buffers = tape.buffers;
  out.recovered = tape.recovered, out.notes = tape.notes;
  bool missed = false;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    if (i >= first_gone && i < last.end) continue;
    Call call = tape.calls[i];
    call.last_uses.clear();
    if (i >= last.end)
      replace_values(call, [&](ValueId id) {
        const auto it = instead.find(id);
        if (it == instead.end()) return Arg{id};
        missed = missed || !it->second.valid();
        return Arg{it->second};
      });
    out.calls.push_back(std::move(call));
  }
  if (missed) return std::nullopt;
  for (ValueId id : tape.outputs) {
    // What each block hands out (keys and values) goes with it.
    const auto it = instead.find(id);
    const ValueId now = it == instead.end() ? id : it->second;
    if (now.valid() && std::find(out.outputs.begin(), out.outputs.end(), now) == out.outputs.end())
      out.outputs.push_back(now);
  }
  Compactor(out).run();
  mark_last_uses(out);
  return out;
}

}  // namespace memplan
