// Conversions of what a line names: `logits = logits.float() / cap`, `x + self.pos_embed.to(x.dtype)`.
#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/restore/casts.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// What a tensor is asked for that reads no element of it.
constexpr std::string_view questions[] = {".shape", ".size(", ".dtype", ".device", ".dim(", ".ndim", ".numel("};

bool starts_with_any(std::string_view text, std::span<const std::string_view> starts) {
  return std::ranges::any_of(starts, [&](std::string_view s) { return text.starts_with(s); });
}

/// The text reads the name's elements, and only converted ones; attributes of that name do not count.
bool converts_each_read(std::string_view text, std::string_view name) {
  for (auto at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    if (!is_whole_name(text, at, name.size()) || (at > 0 && text[at - 1] == '.')) continue;
    const std::string_view after = text.substr(at + name.size());
    if (!starts_with_any(after, fp32_conversions) && !starts_with_any(after, questions)) return false;
  }
  return true;
}

/// What names of frames hold. A statement binds its names when it has ended.
class Bound {
 public:
  explicit Bound(const Tape& tape) : tape_(tape) {}

  ValueId held(std::int32_t frame, const std::string& name) const {
    const auto it = held_.find({frame, name});
    return it == held_.end() ? ValueId{} : it->second;
  }

  /// A line of the call's frame, and of those around it, whose lines call the modules between.
  void begins(const Call& call) {
    settle(call.scope, call.source);
    for (std::int32_t s = call.scope; s >= 0; s = scope(s).parent)
      if (scope(s).parent >= 0) settle(scope(s).parent, scope(s).source);
  }

  void ran(const Call& call) {
    if (call.outputs.empty() || !call.outputs[0].valid()) return;
    if (const std::string* name = one_name(call.binding)) open_[call.scope].second[*name] = call.outputs[0];
    for (std::int32_t s = call.scope; s >= 0; s = scope(s).parent)
      if (const std::string* name = one_name(scope(s).binding)) held_[{scope(s).parent, *name}] = call.outputs[0];
  }

 private:
  const Scope& scope(std::int32_t s) const { return tape_.scopes[static_cast<std::size_t>(s)]; }

  void settle(std::int32_t frame, std::string_view now) {
    auto& [line, results] = open_[frame];
    if (line == now) return;
    for (auto& [name, value] : results) held_[{frame, name}] = value;
    results.clear();
    line = now;
  }

  const std::string* one_name(std::int32_t binding) const {
    if (binding < 0) return nullptr;
    const auto& targets = tape_.bindings[static_cast<std::size_t>(binding)].targets;
    return targets.size() == 1 && targets[0].size() == 1 ? &targets[0][0] : nullptr;
  }

  const Tape& tape_;
  std::map<std::pair<std::int32_t, std::string>, ValueId> held_;
  std::map<std::int32_t, std::pair<std::string_view, std::map<std::string, ValueId>>> open_;  ///< by frame: its line
};

/// The one tensor from outside that the line of call `at` reads, parameters and buffers aside: what a function's only
/// argument holds there. None where it reads several.
ValueId only_operand(const Tape& tape, std::size_t at) {
  const Call& first = tape.calls[at];
  std::set<std::int32_t> made;
  ValueId found;
  for (std::size_t i = at; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    if (call.scope != first.scope || call.source != first.source) break;
    bool several = false;
    for_each_value(call, [&](ValueId id) {
      const ValueKind kind = tape.values[static_cast<std::size_t>(id.index)].kind;
      if (kind == ValueKind::parameter || kind == ValueKind::buffer || made.contains(id.index)) return;
      several = several || (found.valid() && found != id);
      found = id;
    });
    if (several) return {};
    for (const ValueId id : call.outputs)
      if (id.valid()) made.insert(id.index);
  }
  return found;
}

}  // namespace

std::vector<std::string> widened_names(std::string_view source) {
  std::vector<std::string> names;
  if (source.find("float") == source.npos) return names;  // most lines: no need to take them apart
  const std::string_view value = parse_statement(source).value;
  for (const std::string_view end : fp32_conversions)
    for (auto at = value.find(end); at != value.npos; at = value.find(end, at + 1)) {
      std::size_t first = at;
      while (first > 0 && in_name(value[first - 1])) --first;
      const std::string name(value.substr(first, at - first));
      const bool plain = first < at && (first == 0 || value[first - 1] != '.');
      if (plain && converts_each_read(value, name) && std::ranges::find(names, name) == names.end())
        names.push_back(name);
    }
  return names;
}

Call fp32_copy(Tape& tape, ValueId x, const Call& beside) {
  Call cast;
  cast.op = "aten::to.dtype";
  cast.args = {{x}, {DType::float32}};
  TapeValue v;
  v.name = tape.values[static_cast<std::size_t>(x.index)].name + ".float";
  cast.outputs = {tape.add_value(std::move(v))};
  cast.scope = beside.scope;
  cast.source = beside.source;
  return cast;
}

Call copy_like(Tape& tape, ValueId x, ValueId other, const Call& beside) {
  Call cast = fp32_copy(tape, x, beside);
  cast.op = "aten::type_as";
  cast.args = {{x}, {other}};
  return cast;
}

void insert_calls(std::vector<Call>& calls, CallsBefore before) {
  if (before.empty()) return;
  std::vector<Call> out;
  out.reserve(calls.size() + before.size());
  auto next = before.begin();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (; next != before.end() && next->first == i; ++next) out.push_back(std::move(next->second));
    out.push_back(std::move(calls[i]));
  }
  calls = std::move(out);
}

namespace {

/// "x" of `self.pos_embed.to(x.dtype)`, of which the line has the parameter's last name; empty where it does not.
std::string_view type_of_parameter(std::string_view line, std::string_view parameter) {
  constexpr std::string_view type = ".dtype", keyword = "dtype=";
  for (auto at = line.find(parameter); at != line.npos; at = line.find(parameter, at + 1)) {
    std::string_view after = line.substr(at + parameter.size());
    const bool like = after.starts_with(".type_as(");
    if (!is_whole_name(line, at, parameter.size()) || (!like && !after.starts_with(".to("))) continue;
    after.remove_prefix(after.find('(') + 1);
    if (after.starts_with(keyword)) after.remove_prefix(keyword.size());
    const std::string_view name = leading_name(after);
    if (after.substr(name.size()).starts_with(like ? ")" : type)) return name;
  }
  return {};
}

}  // namespace

void convert_parameters(Tape& tape) {
  if (tape.exported.keeps_casts) return;
  CallsBefore casts;
  Bound bound(tape);
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    bound.begins(call);
    std::vector<std::pair<ValueId, ValueId>> found;  // parameters, and what has the dtype
    if (call.source.find("type") != call.source.npos && !has_restored_casts(tape, call.scope))
      for_each_value(call, [&](ValueId id) {
        const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
        if (v.kind != ValueKind::parameter) return;
        const std::string name(type_of_parameter(call.source, leaf_of(v.name)));
        const ValueId like = name.empty() ? ValueId{} : bound.held(call.scope, name);
        if (like.valid()) found.emplace_back(id, like);
      });
    for (const auto& [parameter, like] : found) {
      Call cast = copy_like(tape, parameter, like, call);
      const ValueId made = cast.outputs[0], from = parameter;
      casts.emplace_back(i, std::move(cast));
      replace_values(call, [&](ValueId id) { return Arg{id == from ? made : id}; });
    }
    bound.ran(call);
  }
  const auto count = static_cast<std::int64_t>(casts.size());
  insert_calls(tape.calls, std::move(casts));
  if (count > 0)
    tape.recovered.push_back({"x.dtype", "types that lines convert parameters to, absent from an fp32 export", count,
                              Evidence::told_by_source_line, About::cast});
}

namespace {

bool reads(const Call& call, ValueId x) {
  bool found = false;
  for_each_value(call, [&](ValueId id) { found = found || (x.valid() && id == x); });
  return found;
}

/// Call `i` reads `x` in fp32: the copy `to`, which the line of that frame makes before it where none is there yet.
void read_widened(Tape& tape, std::size_t i, ValueId x, ValueId& to, std::int32_t frame, const std::string& line,
                  CallsBefore& casts) {
  if (!to.valid()) {
    Call cast = fp32_copy(tape, x, tape.calls[i]);
    cast.scope = frame;
    cast.source = line;
    to = cast.outputs[0];
    casts.emplace_back(i, std::move(cast));
  }
  replace_values(tape.calls[i], [&](ValueId id) { return Arg{id == x ? to : id}; });
}

/// What was converted, by frame or by the call of a module and by value.
using WideCopies = std::map<std::pair<std::int32_t, std::int32_t>, ValueId>;

/// `self.act_fn(gate.float()) * up.float()`: what call `i` of a module reads of names that the line which calls the
/// module converts wherever it reads them.
void widen_arguments(Tape& tape, std::size_t i, const Bound& bound, WideCopies& given, CallsBefore& casts) {
  for (std::int32_t s = tape.calls[i].scope; s >= 0; s = tape.scopes[static_cast<std::size_t>(s)].parent) {
    const Scope& module = tape.scopes[static_cast<std::size_t>(s)];
    const std::vector<std::string> names =
        module.parent < 0 ? std::vector<std::string>() : widened_names(module.source);
    if (names.empty() || has_restored_casts(tape, module.parent)) continue;
    for (const std::string& name : names)
      if (const ValueId x = bound.held(module.parent, name); reads(tape.calls[i], x))
        read_widened(tape, i, x, given[{s, x.index}], module.parent, module.source, casts);
  }
}

}  // namespace

void widen_named(Tape& tape) {
  if (tape.exported.keeps_casts) return;
  CallsBefore casts;
  Bound bound(tape);
  WideCopies wide, given;  // of a line, and of a call of a module
  std::map<std::int32_t, std::string_view> line;
  std::map<std::int32_t, ValueId> argument;  // of a frame's line
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    bound.begins(call);
    const std::vector<std::string> names = widened_names(call.source);
    if (auto& now = line[call.scope]; now != call.source) {
      now = call.source;
      std::erase_if(wide, [&](const auto& w) { return w.first.first == call.scope; });
      argument[call.scope] = names.size() == 1 ? only_operand(tape, i) : ValueId{};
    }
    if (!names.empty() && !has_restored_casts(tape, call.scope) && !call.op.starts_with("aten::to.") &&
        call.op != "aten::_to_copy" && call.op != "aten::type_as")
      for (const std::string& name : names) {
        ValueId x = bound.held(call.scope, name);
        if (!reads(call, x)) x = argument[call.scope];
        if (reads(call, x)) read_widened(tape, i, x, wide[{call.scope, x.index}], call.scope, call.source, casts);
      }
    widen_arguments(tape, i, bound, given, casts);
    bound.ran(call);
  }
  const auto count = static_cast<std::int64_t>(casts.size());
  insert_calls(tape.calls, std::move(casts));
  if (count > 0)
    tape.recovered.push_back({"aten::to.dtype", "what lines convert to fp32, absent from an fp32 export", count,
                              Evidence::told_by_source_line, About::cast});
}

}  // namespace memplan
