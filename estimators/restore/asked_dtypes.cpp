#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/facts/libraries.h"
#include "estimators/restore/casts.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// "x" of "noise = torch.rand(shape, dtype=x.dtype)", where `asks` is "dtype=", and of "y.to(x.dtype)"; empty where the
/// line asks more than once.
std::string named_dtype(std::string_view source, std::string_view asks) {
  constexpr std::string_view end = ".dtype";
  const auto at = source.find(asks);
  if (at == source.npos || source.find(asks, at + 1) != source.npos) return {};
  const std::string_view name = source.substr(at + asks.size());
  const auto stop = std::find_if_not(name.begin(), name.end(), in_name);
  const auto length = static_cast<std::size_t>(stop - name.begin());
  return name.substr(length).starts_with(end) ? std::string(name.substr(0, length)) : std::string();
}

/// softmax(x, dim, dtype=x.dtype), whose dtype the file has as its third argument.
bool has_third_dtype(const Call& call) {
  if (call.op != "aten::softmax.int" && call.op != "aten::log_softmax.int") return false;
  const auto* type = call.args.size() > 2 ? std::get_if<DType>(&call.args[2].value) : nullptr;
  return type && is_floating(*type);
}

/// The name whose dtype a factory, or a conversion to a dtype that the export does not tell, is asked for.
std::string asked_of(const Call& call) {
  if (call.op == "memplan::to_default_dtype") return named_dtype(call.source, ".to(");
  if (has_third_dtype(call)) return named_dtype(call.source, "dtype=");
  for (const auto& [kind, arg] : call.kwargs)
    if (const auto* type = std::get_if<DType>(&arg.value); kind == "dtype" && type && is_floating(*type))
      return named_dtype(call.source, "dtype=");
  return {};
}

/// "result" of `result = result.to(torch_result_dtype)`, where a row says that this name holds the type that the first
/// tensor called "result" has in that class's frame.
std::string named_by_fact(const Tape& tape, const Call& call) {
  if (call.op != "memplan::to_default_dtype" || call.scope < 0) return {};
  const LibraryFact* fact = fact_of_class("dtype_name", tape.scopes[static_cast<std::size_t>(call.scope)].module_class);
  if (!fact) return {};
  const std::size_t space = fact->detail.find(' ');
  return call.source.find(".to(" + fact->detail.substr(0, space) + ")") == std::string::npos
             ? std::string()
             : fact->detail.substr(space + 1);
}

/// "v" of `q = rotate(q, rope).type_as(v)` and of `q = rotate(q).to(v.dtype)`: the whole result is converted. Empty for
/// all other lines.
std::string converted_to(std::string_view source) {
  const Statement statement = parse_statement(source);
  std::string_view value = statement.value;
  if (statement.targets.empty() || statement.augmented != 0 || !value.ends_with(')')) return {};
  int depth = 0;
  std::size_t last = value.npos;  // where the last bracket of the outermost level opens
  for (std::size_t i = 0; i < value.size(); ++i) {
    const char c = value[i];
    if (c == '(' || c == '[' || c == '{') {
      if (depth++ == 0) last = i;
    } else if (c == ')' || c == ']' || c == '}') {
      --depth;
    } else if (depth == 0 && (c == ' ' || c == ',')) {
      return {};  // an operator takes the conversion for itself
    }
  }
  if (depth != 0 || last == value.npos) return {};
  const std::string_view method = value.substr(0, last);
  std::string_view name = value.substr(last + 1, value.size() - last - 2);
  constexpr std::string_view type = ".dtype", keyword = "dtype=";
  if (method.ends_with(".to") && name.ends_with(type)) {
    if (name.starts_with(keyword)) name.remove_prefix(keyword.size());
    name.remove_suffix(type.size());
  } else if (!method.ends_with(".type_as")) {
    return {};
  }
  return std::ranges::all_of(name, in_name) ? std::string(name) : std::string();
}

bool converts(const Call& call) {
  return call.op == "aten::type_as" || call.op == "aten::to.dtype" || call.op == "aten::to.other" ||
         call.op == "memplan::to_default_dtype";
}

/// What the names of frames hold while calls are gone through in their order.
class Names {
 public:
  explicit Names(const Tape& tape) : tape_(tape), maker_(tape.values.size(), -1) {
    for (std::size_t i = 0; i < tape.calls.size(); ++i) {
      const std::string name = asked_of(tape.calls[i]);
      if (!name.empty()) wanted_.emplace(tape.calls[i].scope, name);
      if (std::string first = named_by_fact(tape, tape.calls[i]); !first.empty())
        wanted_.emplace(tape.calls[i].scope, std::move(first));
      if (!tape.exported.keeps_casts)
        if (std::string like = converted_to(tape.calls[i].source); !like.empty())
          wanted_.emplace(tape.calls[i].scope, std::move(like));
      in_scope_[tape.calls[i].scope].push_back(i);
      for (ValueId id : tape.calls[i].outputs)
        if (id.valid()) maker_[static_cast<std::size_t>(id.index)] = static_cast<std::int64_t>(i);
    }
  }

  bool wants_none() const { return wanted_.empty(); }

  /// The call has run: its frame's name holds its first result, and those of its callers what their modules return.
  void ran(const Call& call) {
    if (call.outputs.empty() || !call.outputs[0].valid()) return;
    bind(call.scope, call.binding, call.outputs[0]);
    bind_all(call);
    settle(call);
    for (std::int32_t s = call.scope; s >= 0; s = scope(s).parent)
      bind(scope(s).parent, scope(s).binding, call.outputs[0]);
  }

  void begins(const Call& call) {
    if (call.source.empty()) return;
    auto& [line, bound] = open_[call.scope];
    if (line == call.source) return;
    for (auto& [name, value] : bound) settled_[{call.scope, name}] = value;
    bound.clear();
    line = call.source;
  }

  /// What a name that no line of its frame binds stands for there: the one tensor from outside that lines with this
  /// name read before call `at`.
  ValueId held(std::size_t at, const std::string& name) {
    const std::pair key{tape_.calls[at].scope, name};
    if (const auto it = bound_.find(key); it != bound_.end()) return it->second;
    if (const auto it = guessed_.find(key); it != guessed_.end()) return it->second;
    std::set<std::int32_t> found;
    for (const std::size_t i : in_scope_[key.first]) {
      const Call& call = tape_.calls[i];
      if (call.source.find(name) == std::string::npos) continue;
      for_each_value(call, [&](ValueId id) {
        const std::int64_t made = maker_[static_cast<std::size_t>(id.index)];
        if (made < 0 || made >= static_cast<std::int64_t>(at)) return;
        const Call& maker = tape_.calls[static_cast<std::size_t>(made)];
        if (maker.scope != key.first && maker.op.starts_with("aten::") && !maker.op.starts_with("aten::sym_"))
          found.insert(id.index);
      });
    }
    return guessed_[key] = found.size() == 1 ? ValueId{*found.begin()} : ValueId{};
  }

  /// What the name held first in the frame of call `at`.
  ValueId held_first(std::size_t at, const std::string& name) const { return found_in(first_, at, name); }

  /// What a line of the frame before that of call `at` has bound to the name.
  ValueId held_surely(std::size_t at, const std::string& name) const { return found_in(settled_, at, name); }

 private:
  using Name = std::pair<std::int32_t, std::string>;  ///< of a scope's frame

  ValueId found_in(const std::map<Name, ValueId>& names, std::size_t at, const std::string& name) const {
    const auto it = names.find({tape_.calls[at].scope, name});
    return it == names.end() ? ValueId{} : it->second;
  }

  const Scope& scope(std::int32_t s) const { return tape_.scopes[static_cast<std::size_t>(s)]; }

  void bind(std::int32_t frame, std::int32_t binding, ValueId value) {
    if (binding < 0) return;
    const auto& targets = tape_.bindings[static_cast<std::size_t>(binding)].targets;
    if (targets.size() != 1 || targets[0].size() != 1 || !wanted_.contains({frame, targets[0][0]})) return;
    bound_[{frame, targets[0][0]}] = value;
    first_.emplace(std::pair{frame, targets[0][0]}, value);
  }

  /// values, indices = torch.topk(x, k)
  void bind_all(const Call& call) {
    if (call.binding < 0 || call.outputs.size() < 2) return;
    const auto& targets = tape_.bindings[static_cast<std::size_t>(call.binding)].targets;
    if (targets.size() != 1 || targets[0].size() != call.outputs.size()) return;
    for (std::size_t k = 0; k < call.outputs.size(); ++k)
      if (wanted_.contains({call.scope, targets[0][k]})) bound_[{call.scope, targets[0][k]}] = call.outputs[k];
  }

  /// A statement binds its names when it has ended. Of `q, k, v = qkv.unbind(0)` all have one type.
  void settle(const Call& call) {
    if (call.source.empty() || call.binding < 0) return;
    auto& [line, bound] = open_[call.scope];
    const auto& targets = tape_.bindings[static_cast<std::size_t>(call.binding)].targets;
    if (targets.size() != 1 || (targets[0].size() > 1 && line.find(".unbind(") == line.npos)) return;
    for (const std::string& name : targets[0])
      if (wanted_.contains({call.scope, name})) bound[name] = call.outputs[0];
  }

  const Tape& tape_;
  std::vector<std::int64_t> maker_;
  std::map<std::int32_t, std::vector<std::size_t>> in_scope_;
  std::set<Name> wanted_;
  std::map<Name, ValueId> bound_, first_, guessed_, settled_;
  /// By scope: its frame's last line, and what that will have bound.
  std::map<std::int32_t, std::pair<std::string_view, std::map<std::string, ValueId>>> open_;
};

/// Where call `at` is the last of a line that converts its result, which an export in fp32 leaves out.
ValueId dtype_at_end(const Tape& tape, std::size_t at, Names& names) {
  const Call& call = tape.calls[at];
  if (tape.exported.keeps_casts || call.source.empty() || converts(call) || call.outputs.size() != 1) return {};
  for (std::size_t i = at + 1; i < tape.calls.size(); ++i) {
    const Call& next = tape.calls[i];
    if (next.scope != call.scope || next.source.empty()) continue;  // what the line calls
    if (next.source == call.source) return {};
    break;
  }
  const std::string name = converted_to(call.source);
  return name.empty() ? ValueId{} : names.held_surely(at, name);
}

/// Another call of the last one's line, which takes its place for all that follows.
ValueId append(Tape& tape, std::vector<Call>& calls, const char* op, std::vector<Arg> args) {
  Call c = calls.back();
  c.op = op;
  c.args = std::move(args);
  c.kwargs.clear();
  c.known_shapes.clear();
  TapeValue v;
  v.name = tape.values[static_cast<std::size_t>(c.outputs[0].index)].name + ".to";
  const ValueId made = tape.add_value(std::move(v));
  c.outputs = {made};
  calls.push_back(std::move(c));
  return made;
}

void convert_results(Tape& tape, const std::vector<std::pair<std::size_t, ValueId>>& ends) {
  if (ends.empty()) return;
  std::vector<Call> calls;
  std::map<std::int32_t, ValueId> instead;
  std::size_t next = 0;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    replace_values(tape.calls[i], [&](ValueId id) {
      const auto it = instead.find(id.index);
      return Arg{it == instead.end() ? id : it->second};
    });
    calls.push_back(std::move(tape.calls[i]));
    if (next >= ends.size() || ends[next].first != i) continue;
    const auto like = instead.find(ends[next].second.index);
    const ValueId result = calls.back().outputs[0];
    instead[result.index] =
        append(tape, calls, "aten::type_as", {{result}, {like == instead.end() ? ends[next].second : like->second}});
    // What is joined to nothing, `torch.cat([q[:, :, :0], rotated], dim=2)`, is copied; an optimizer leaves that out.
    if (parse_statement(calls.back().source).value.starts_with("torch.cat(["))
      instead[result.index] =
          append(tape, calls, "aten::cat", {{Arg::List{{instead[result.index]}}}, {std::int64_t{0}}});
    ++next;
  }
  tape.calls = std::move(calls);
  for (ValueId& id : tape.outputs)
    if (const auto it = instead.find(id.index); it != instead.end()) id = it->second;
}

}  // namespace

void follow_asked_dtypes(Tape& tape) {
  std::int64_t count = 0;
  Names names(tape);
  if (names.wants_none()) return;
  std::vector<std::pair<std::size_t, ValueId>> ends;  // the last call of a line, and what it takes its dtype from
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    names.begins(call);
    if (const ValueId like = dtype_at_end(tape, i, names); like.valid()) ends.emplace_back(i, like);
    const std::string name = asked_of(call), first = named_by_fact(tape, call);
    const ValueId like = !first.empty() ? names.held_first(i, first) : !name.empty() ? names.held(i, name) : ValueId{};
    if (like.valid()) {
      for (auto& [kind, arg] : call.kwargs)
        if (kind == "dtype") arg.value = like;
      if (has_third_dtype(call)) call.args[2].value = like;
      if (call.op == "memplan::to_default_dtype") {
        call.op = "aten::type_as";
        call.args.resize(1);
        call.args.push_back({like});
      }
      ++count;
    }
    names.ran(call);
  }
  convert_results(tape, ends);
  count += static_cast<std::int64_t>(ends.size());
  if (count > 0)
    tape.recovered.push_back({"x.dtype",
                              "types of tensors that lines name, which the export wrote as its own precision", count,
                              Evidence::told_by_source_line, About::cast});
}

}  // namespace memplan
