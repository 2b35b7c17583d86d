// Conversions to fp32 of what a line names: `logits = logits.float() / cap`.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/restore/casts.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// How often the text reads the name; attributes of that name do not count.
std::size_t count_reads_of(std::string_view text, std::string_view name) {
  std::size_t n = 0;
  for (auto at = text.find(name); at != text.npos; at = text.find(name, at + 1))
    n += is_whole_name(text, at, name.size()) && (at == 0 || text[at - 1] != '.');
  return n;
}

/// Names that the line converts wherever it reads them.
std::vector<std::string> widened_names(std::string_view source) {
  std::vector<std::string> names;
  if (source.find("float") == source.npos) return names;  // most lines: no need to take them apart
  const std::string_view value = parse_statement(source).value;
  for (const std::string_view end : {".float()", ".to(torch.float32)"})
    for (auto at = value.find(end); at != value.npos; at = value.find(end, at + 1)) {
      std::size_t first = at;
      while (first > 0 && in_name(value[first - 1])) --first;
      const std::string name(value.substr(first, at - first));
      const bool plain = first < at && (first == 0 || value[first - 1] != '.');
      if (plain && count_reads_of(value, name) == 1) names.push_back(name);
    }
  return names;
}

/// What names of frames hold. A statement binds its names when it has ended.
class Bound {
 public:
  explicit Bound(const Tape& tape) : tape_(tape) {}

  ValueId held(std::int32_t frame, const std::string& name) const {
    const auto it = held_.find({frame, name});
    return it == held_.end() ? ValueId{} : it->second;
  }

  void begins(const Call& call) {
    auto& [line, results] = open_[call.scope];
    if (line == call.source) return;
    for (auto& [name, value] : results) held_[{call.scope, name}] = value;
    results.clear();
    line = call.source;
  }

  void ran(const Call& call) {
    if (call.outputs.empty() || !call.outputs[0].valid()) return;
    if (const std::string* name = one_name(call.binding)) open_[call.scope].second[*name] = call.outputs[0];
    for (std::int32_t s = call.scope; s >= 0; s = scope(s).parent)
      if (const std::string* name = one_name(scope(s).binding)) held_[{scope(s).parent, *name}] = call.outputs[0];
  }

 private:
  const Scope& scope(std::int32_t s) const { return tape_.scopes[static_cast<std::size_t>(s)]; }

  const std::string* one_name(std::int32_t binding) const {
    if (binding < 0) return nullptr;
    const auto& targets = tape_.bindings[static_cast<std::size_t>(binding)].targets;
    return targets.size() == 1 && targets[0].size() == 1 ? &targets[0][0] : nullptr;
  }

  const Tape& tape_;
  std::map<std::pair<std::int32_t, std::string>, ValueId> held_;
  std::map<std::int32_t, std::pair<std::string_view, std::map<std::string, ValueId>>> open_;  ///< by frame: its line
};

}  // namespace

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

void widen_named(Tape& tape) {
  if (tape.exported.keeps_casts) return;
  std::int64_t count = 0;
  CallsBefore casts;
  Bound bound(tape);
  std::map<std::pair<std::int32_t, std::int32_t>, ValueId> wide;  // of a line: by frame and value
  std::map<std::int32_t, std::string_view> line;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    bound.begins(call);
    if (auto& now = line[call.scope]; now != call.source) {
      now = call.source;
      std::erase_if(wide, [&](const auto& w) { return w.first.first == call.scope; });
    }
    const std::vector<std::string> names = widened_names(call.source);
    if (!names.empty() && !has_restored_casts(tape, call.scope) && !call.op.starts_with("aten::to.") &&
        call.op != "aten::type_as")
      for (const std::string& name : names) {
        const ValueId x = bound.held(call.scope, name);
        bool reads = false;
        for_each_value(call, [&](ValueId id) { reads = reads || (x.valid() && id.index == x.index); });
        if (!reads) continue;
        ValueId& to = wide[{call.scope, x.index}];
        if (!to.valid()) {
          casts.emplace_back(i, fp32_copy(tape, x, call));
          to = casts.back().second.outputs[0];
          ++count;
        }
        replace_values(call, [&](ValueId id) { return Arg{id.index == x.index ? to : id}; });
      }
    bound.ran(call);
  }
  insert_calls(tape.calls, std::move(casts));
  if (count > 0)
    tape.recovered.push_back({"aten::to.dtype", "what lines convert to fp32, absent from an fp32 export", count,
                              Evidence::told_by_source_line, About::cast});
}

}  // namespace memplan
