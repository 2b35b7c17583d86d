#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/facts/libraries.h"
#include "estimators/restore/casts.h"
#include "estimators/restore/converted_lines.h"
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
  const std::string_view asked = source.substr(at + asks.size()), name = leading_name(asked);
  return asked.substr(name.size()).starts_with(end) ? std::string(name) : std::string();
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

/// "score" of `torch.softmax(score, dim=-1, dtype=dtype)`: the frame has noted a dtype in a line without an op, and
/// asks for it since the score was converted in between. It is the score's own, as it was made. Empty where the line
/// asks for another one.
std::string named_by_argument(const Call& call) {
  if (!has_third_dtype(call)) return {};
  const std::string_view line = call.source;
  constexpr std::string_view asks = "dtype=", op = "softmax(";
  const auto at = line.find(asks), open = line.find(op);
  if (at == line.npos || open == line.npos || open > at) return {};
  const std::string_view type = line.substr(at + asks.size()), argument = line.substr(open + op.size());
  const std::string_view noted = leading_name(type), name = leading_name(argument);
  return !noted.empty() && type.substr(noted.size()).starts_with(')') && argument.substr(name.size()).starts_with(',')
             ? std::string(name)
             : std::string();
}

/// The name whose first tensor in its frame has the dtype that the call asks for.
std::string named_first(const Tape& tape, const Call& call) {
  std::string by_fact = named_by_fact(tape, call);
  return by_fact.empty() ? named_by_argument(call) : by_fact;
}

bool converts(const Call& call) {
  return call.op == "aten::type_as" || call.op == "aten::to.dtype" || call.op == "aten::to.other" ||
         call.op == "memplan::to_default_dtype";
}

/// What the names of frames hold while calls are gone through in their order.
class Names {
 public:
  explicit Names(const Tape& tape) : tape_(tape), maker_(makers_of(tape)) {
    const auto want = [&](std::int32_t frame, std::string_view line) {
      if (tape.exported.keeps_casts) return;
      ConvertedTo to = converted_to(line);
      converts_ = converts_ || to;
      if (!to.name.empty()) wanted_.emplace(frame, std::move(to.name));
    };
    for (const Scope& s : tape.scopes) want(s.parent, s.source);
    for (std::size_t i = 0; i < tape.calls.size(); ++i) {
      const std::string name = asked_of(tape.calls[i]);
      if (!name.empty()) wanted_.emplace(tape.calls[i].scope, name);
      if (std::string first = named_first(tape, tape.calls[i]); !first.empty())
        wanted_.emplace(tape.calls[i].scope, std::move(first));
      want(tape.calls[i].scope, tape.calls[i].source);
      in_scope_[tape.calls[i].scope].push_back(i);
    }
  }

  bool wants_none() const { return wanted_.empty() && !converts_; }

  /// The call has run: its frame's name holds its first result, and those of its callers what their modules return.
  void ran(const Call& call) {
    if (call.outputs.empty() || !call.outputs[0].valid()) return;
    bind(call.scope, call.binding, call.outputs[0]);
    bind_all(call);
    widen(call);
    settle(call);
    for (std::int32_t s = call.scope; s >= 0; s = scope(s).parent) {
      bind(scope(s).parent, scope(s).binding, call.outputs[0]);
      bind_part(scope(s), call.outputs[0]);
    }
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
        const std::int32_t made = maker_[static_cast<std::size_t>(id.index)];
        if (made < 0 || made >= static_cast<std::int32_t>(at)) return;
        const Call& maker = tape_.calls[static_cast<std::size_t>(made)];
        if (maker.scope != key.first && maker.op.starts_with("aten::") && !maker.op.starts_with("aten::sym_"))
          found.insert(id.index);
      });
    }
    return guessed_[key] = found.size() == 1 ? ValueId{*found.begin()} : ValueId{};
  }

  /// What the name held first in the frame of call `at`.
  ValueId held_first(std::size_t at, const std::string& name) const {
    const auto it = first_.find({tape_.calls[at].scope, name});
    return it == first_.end() ? ValueId{} : it->second;
  }

  /// What a line of the frame before this one has bound to the name.
  ValueId held_surely(std::int32_t frame, const std::string& name, std::string_view line) const {
    if (const auto open = open_.find(frame); open != open_.end() && open->second.first != line)
      if (const auto it = open->second.second.find(name); it != open->second.second.end()) return it->second;
    const auto it = settled_.find({frame, name});
    return it == settled_.end() ? ValueId{} : it->second;
  }

 private:
  using Name = std::pair<std::int32_t, std::string>;  ///< of a scope's frame

  const Scope& scope(std::int32_t s) const { return tape_.scopes[static_cast<std::size_t>(s)]; }

  void bind(std::int32_t frame, std::int32_t binding, ValueId value) {
    if (binding < 0) return;
    const auto& targets = tape_.bindings[static_cast<std::size_t>(binding)].targets;
    if (targets.size() != 1 || targets[0].size() != 1 || !wanted_.contains({frame, targets[0][0]})) return;
    bound_[{frame, targets[0][0]}] = value;
    first_.emplace(std::pair{frame, targets[0][0]}, value);
  }

  /// k, v, r = self.key(xk), self.value(xv), self.receptance(xr)
  void bind_part(const Scope& module, ValueId value) {
    if (module.binding < 0) return;
    const auto& targets = tape_.bindings[static_cast<std::size_t>(module.binding)].targets;
    if (targets.size() != 1 || targets[0].size() < 2) return;
    const std::vector<std::string_view> parts = arguments_at(parse_statement(module.source).value, 0);
    if (parts.size() != targets[0].size()) return;
    const std::string call = fmt::format("self.{}(", leaf_of(module.path));
    for (std::size_t k = 0; k < parts.size(); ++k)
      if (parts[k].starts_with(call) && closing_bracket(parts[k], call.size() - 1) + 1 == parts[k].size() &&
          wanted_.contains({module.parent, targets[0][k]}))
        bound_[{module.parent, targets[0][k]}] = value;
  }

  /// values, indices = torch.topk(x, k)
  void bind_all(const Call& call) {
    if (call.binding < 0 || call.outputs.size() < 2) return;
    const auto& targets = tape_.bindings[static_cast<std::size_t>(call.binding)].targets;
    if (targets.size() != 1 || targets[0].size() != call.outputs.size()) return;
    for (std::size_t k = 0; k < call.outputs.size(); ++k)
      if (wanted_.contains({call.scope, targets[0][k]})) bound_[{call.scope, targets[0][k]}] = call.outputs[k];
  }

  /// The conversion that was put back for `x.float()` tells what the name holds there.
  void widen(const Call& call) {
    if (tape_.exported.keeps_casts || call.op != "aten::to.dtype" || call.args.empty()) return;
    const auto* x = std::get_if<ValueId>(&call.args[0].value);
    const std::vector<std::string> names = widened_names(call.source);
    if (x && names.size() == 1 && wanted_.contains({call.scope, names[0]})) settled_[{call.scope, names[0]}] = *x;
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
  std::vector<std::int32_t> maker_;
  std::map<std::int32_t, std::vector<std::size_t>> in_scope_;
  std::set<Name> wanted_;
  bool converts_ = false;  ///< some line converts its result
  std::map<Name, ValueId> bound_, first_, guessed_, settled_;
  /// By scope: its frame's last line, and what that will have bound.
  std::map<std::int32_t, std::pair<std::string_view, std::map<std::string, ValueId>>> open_;
};

/// The line of `frame` at which the call runs, there or in what the line calls; empty where the file does not say,
/// nothing where it runs elsewhere.
std::optional<std::string_view> line_in(const Tape& tape, const Call& call, std::int32_t frame) {
  std::string_view line = call.source;
  for (std::int32_t s = call.scope; s != frame; s = tape.scopes[static_cast<std::size_t>(s)].parent) {
    if (s < 0) return std::nullopt;
    line = tape.scopes[static_cast<std::size_t>(s)].source;
  }
  return line;
}

/// The next line of `frame` that a call after `at` runs at; nothing where the frame ends.
std::optional<std::string_view> next_line(const Tape& tape, std::size_t at, std::int32_t frame) {
  for (std::size_t i = at + 1; i < tape.calls.size(); ++i)
    if (const auto line = line_in(tape, tape.calls[i], frame); !line || !line->empty()) return line;
  return std::nullopt;
}

/// The end of a line that converts its result, which an export in fp32 leaves out.
struct LineEnd {
  std::size_t at = 0;  ///< the line's last call, or the last of the module that the line calls last
  ValueId like;        ///< whose dtype the result takes; none: fp32
  std::int32_t frame = -1, module = -1;
  std::string line;
};

/// Whether call `at` is the last of such a line.
std::optional<LineEnd> line_end(const Tape& tape, std::size_t at, const Names& names) {
  const Call& call = tape.calls[at];
  if (tape.exported.keeps_casts || converts(call) || call.outputs.size() != 1 || !call.outputs[0].valid()) return {};
  std::int32_t module = -1;
  std::string_view line = call.source;
  for (std::int32_t frame = call.scope; frame >= 0; frame = tape.scopes[static_cast<std::size_t>(frame)].parent) {
    const bool goes_on = at + 1 < tape.calls.size() && line_in(tape, tape.calls[at + 1], frame).has_value();
    if (const ConvertedTo to = converted_to(line);
        to && !has_restored_casts(tape, frame) && (!to.norm || (!goes_on && frame == call.scope && is_norm(call.op)))) {
      const ValueId like = to.fp32 ? ValueId{} : names.held_surely(frame, to.name, line);
      if ((to.fp32 || like.valid()) && (!goes_on || next_line(tape, at, frame) != line))
        return LineEnd{at, like, frame, module, std::string(line)};
    }
    if (goes_on) return {};
    line = tape.scopes[static_cast<std::size_t>(frame)].source;
    module = frame;
  }
  return {};
}

/// A call at the end of the line, which takes the place of the line's result for all that follows.
ValueId append(Tape& tape, std::vector<Call>& calls, const LineEnd& end, const char* op, std::vector<Arg> args) {
  Call c;
  c.op = op;
  c.args = std::move(args);
  c.scope = end.frame;
  c.source = end.line;
  c.binding = end.module < 0 ? calls.back().binding : tape.scopes[static_cast<std::size_t>(end.module)].binding;
  TapeValue v;
  v.name = tape.values[static_cast<std::size_t>(calls.back().outputs[0].index)].name + ".to";
  const ValueId made = tape.add_value(std::move(v));
  c.outputs = {made};
  calls.push_back(std::move(c));
  return made;
}

void convert_results(Tape& tape, const std::vector<LineEnd>& ends) {
  if (ends.empty()) return;
  std::vector<Call> calls;
  std::map<std::int32_t, ValueId> instead;
  const auto now = [&](ValueId id) {
    const auto it = instead.find(id.index);
    return it == instead.end() ? id : it->second;
  };
  std::size_t next = 0;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    replace_values(tape.calls[i], [&](ValueId id) { return Arg{now(id)}; });
    calls.push_back(std::move(tape.calls[i]));
    if (next >= ends.size() || ends[next].at != i) continue;
    const LineEnd& end = ends[next++];
    const ValueId result = calls.back().outputs[0];
    instead[result.index] = end.like.valid() ? append(tape, calls, end, "aten::type_as", {{result}, {now(end.like)}})
                                             : append(tape, calls, end, "aten::to.dtype", {{result}, {DType::float32}});
    // What is joined to nothing, `torch.cat([q[:, :, :0], rotated], dim=2)`, is copied; an optimizer leaves that out.
    if (parse_statement(end.line).value.starts_with("torch.cat(["))
      instead[result.index] =
          append(tape, calls, end, "aten::cat", {{Arg::List{{instead[result.index]}}}, {std::int64_t{0}}});
    if (end.module >= 0)  // no name holds what the module returned
      tape.scopes[static_cast<std::size_t>(end.module)].binding = tape.add_binding({});
  }
  tape.calls = std::move(calls);
  for (ValueId& id : tape.outputs) id = now(id);
}

}  // namespace

void follow_asked_dtypes(Tape& tape) {
  std::int64_t count = 0;
  Names names(tape);
  if (names.wants_none()) return;
  std::vector<LineEnd> ends;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    names.begins(call);
    if (const auto end = line_end(tape, i, names)) ends.push_back(*end);
    const std::string name = asked_of(call), first = named_first(tape, call);
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
