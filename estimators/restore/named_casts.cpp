// `out.type_as(x)` in a function of the model: an fp32 export drops the op, and keeps the name of its result.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "estimators/restore/casts.h"
#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

bool is_named_type_as(std::string_view name) {
  constexpr std::string_view op = "type_as";
  if (!name.starts_with(op)) return false;
  name.remove_prefix(op.size());
  return name.empty() || (name.size() > 1 && name[0] == '_' && name.find_first_not_of("0123456789", 1) == name.npos);
}

bool is_conversion(std::string_view op) { return op == "aten::type_as" || op.starts_with("aten::to."); }

/// Gives another shape to one tensor.
bool only_turns(std::string_view op) {
  for (const std::string_view o :
       {"aten::view", "aten::reshape", "aten::transpose.int", "aten::permute", "aten::unsqueeze", "aten::squeeze.dim",
        "aten::flatten.using_ints", "aten::unflatten.int", "aten::contiguous"})
    if (op == o) return true;
  return false;
}

/// Gives parts of one tensor, or another shape to it.
bool passes_on(std::string_view op) {
  for (const std::string_view o : {"aten::unbind.int", "aten::split.Tensor", "aten::split_with_sizes", "aten::chunk",
                                   "aten::select.int", "aten::slice.Tensor", "aten::expand"})
    if (op == o) return true;
  return only_turns(op);
}

/// Autocast runs it in half precision: what it makes may be what the line's function was given.
bool makes_half(std::string_view op) {
  for (const std::string_view o : {"aten::linear", "aten::matmul", "aten::bmm", "aten::addmm", "aten::mm",
                                   "aten::scaled_dot_product_attention", "aten::einsum"})
    if (op == o) return true;
  return op.starts_with("aten::conv");
}

/// Where a function converts what it was given, and what it gives back.
struct Converted {
  ValueId given, result;
  std::size_t from = 0, at = 0;     ///< calls: the first that reads what was converted, the one that makes the result
  std::vector<std::size_t> inside;  ///< those between, and these
};

/// Of a function's line; one that takes more calls is read as it is.
constexpr std::size_t most_calls = 256;

class NamedCasts {
 public:
  explicit NamedCasts(const Tape& tape) : tape_(tape), maker_(tape.values.size(), none) {
    for (std::size_t i = 0; i < tape.calls.size(); ++i)
      for (const ValueId id : tape.calls[i].outputs)
        if (id.valid()) maker_[index(id)] = i;
  }

  std::vector<Converted> all() const {
    std::set<std::int32_t> converted;
    for (const Call& call : tape_.calls)
      if (is_conversion(call.op)) for_each_value(call, [&](ValueId id) { converted.insert(id.index); });
    std::vector<Converted> found;
    for (std::size_t i = 0; i < tape_.calls.size(); ++i) {
      const Call& call = tape_.calls[i];
      if (call.outputs.size() != 1 || !call.outputs[0].valid() || is_conversion(call.op) || call.source.empty() ||
          !is_named_type_as(tape_.values[index(call.outputs[0])].name) || converted.contains(call.outputs[0].index) ||
          has_restored_casts(tape_, call.scope))
        continue;
      if (const Converted c = behind(i); c.given.valid() && c.from <= c.at) found.push_back(c);
    }
    return found;
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  static std::size_t index(ValueId id) { return static_cast<std::size_t>(id.index); }

  /// Goes back from the result over calls of its line to what these were given: one tensor in half precision.
  Converted behind(std::size_t at) const {
    const Call& last = tape_.calls[at];
    std::vector<std::size_t> open{at};
    std::set<std::size_t> inside{at};
    std::set<std::int32_t> given;
    while (!open.empty()) {
      const std::size_t i = open.back();
      open.pop_back();
      bool converts = inside.size() > most_calls;
      for_each_value(tape_.calls[i], [&](ValueId id) {
        const std::size_t by = maker_[index(id)];
        if (by == none) return;
        const Call& maker = tape_.calls[by];
        converts = converts || is_conversion(maker.op) || is_named_type_as(tape_.values[index(id)].name);
        if (maker.scope == last.scope && maker.source == last.source && !makes_half(maker.op)) {
          if (inside.insert(by).second) open.push_back(by);
        } else if (is_half(by)) {
          given.insert(id.index);
        }
      });
      if (converts) return {};
    }
    if (given.size() != 1) return {};
    return after_turns({ValueId{*given.begin()}, last.outputs[0], at, at, {inside.begin(), inside.end()}});
  }

  /// What call `by` makes comes from an op in half precision, as a part of it or turned at most.
  bool is_half(std::size_t by) const {
    while (passes_on(tape_.calls[by].op)) {
      const ValueId x = value_at(tape_.calls[by], 0);
      if (!x.valid() || maker_[index(x)] == none) return false;
      by = maker_[index(x)];
    }
    return makes_half(tape_.calls[by].op);
  }

  /// Views at the beginning may be the caller's, whose names hold the half tensor; those of the converted one are as
  /// large. The conversion stands behind the last of them.
  Converted after_turns(Converted c) const {
    while (true) {
      std::size_t first = none, readers = 0;
      for (const std::size_t i : c.inside) {
        if (!reads_value(tape_.calls[i], c.given)) continue;
        first = std::min(first, i);
        ++readers;
      }
      c.from = first;
      if (readers != 1 || first == c.at || !only_turns(tape_.calls[first].op)) return c;
      c.given = tape_.calls[first].outputs[0];
    }
  }

  const Tape& tape_;
  std::vector<std::size_t> maker_;
};

}  // namespace

void convert_named(Tape& tape) {
  if (tape.exported.keeps_casts ||
      std::ranges::none_of(tape.values, [](const TapeValue& v) { return is_named_type_as(v.name); }))
    return;
  const std::vector<Converted> found = NamedCasts(tape).all();
  if (found.empty()) return;
  CallsBefore casts;
  std::unordered_map<std::int32_t, ValueId> narrowed;
  for (const Converted& c : found) {
    Call wide = fp32_copy(tape, c.given, tape.calls[c.from]);
    for (const std::size_t i : c.inside)
      if (i >= c.from)
        replace_values(tape.calls[i], [&](ValueId id) { return Arg{id == c.given ? wide.outputs[0] : id}; });
    casts.emplace_back(c.from, std::move(wide));
    Call narrow = fp32_copy(tape, c.result, tape.calls[c.at]);
    narrow.op = "aten::type_as";
    narrow.args = {{c.result}, {c.given}};
    narrow.binding = tape.calls[c.at].binding;
    narrowed.emplace(c.result.index, narrow.outputs[0]);
    casts.emplace_back(c.at + 1, std::move(narrow));
  }
  const auto now = [&](ValueId id) {
    const auto it = narrowed.find(id.index);
    return it == narrowed.end() ? id : it->second;
  };
  for (Call& call : tape.calls) replace_values(call, [&](ValueId id) { return Arg{now(id)}; });
  for (ValueId& out : tape.outputs) out = now(out);
  std::ranges::stable_sort(casts, {}, [](const auto& c) { return c.first; });
  insert_calls(tape.calls, std::move(casts));
  tape.recovered.push_back({"aten::type_as", "conversions whose results the file names, absent from an fp32 export",
                            static_cast<std::int64_t>(found.size()), Evidence::told_by_name, About::cast});
}

void leave_unseen_casts(Tape& tape) {
  std::unordered_set<std::int32_t> results;
  for (const ValueId id : tape.exported.unseen_casts) results.insert(id.index);
  for (Call& call : tape.calls)
    if (call.op == "aten::to.dtype" && call.outputs.size() == 1 && results.contains(call.outputs[0].index)) {
      call.op = "aten::type_as";
      call.args = {call.args.at(0), call.args.at(0)};
      call.kwargs.clear();
    }
}

}  // namespace memplan
