#include "estimators/frontends/torch_export/archive_casts.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan::torch_export {

namespace {

/// A chain from a cast back to the one before it is this long at most: a norm or an embedding takes a handful.
constexpr std::size_t longest_chain = 64;

/// A name was bound this many calls ago at most.
constexpr std::size_t longest_look_back = 1000;

/// What is made of constants before it is moved takes fewer calls: tables of positions, windows, anchors.
constexpr std::size_t most_constant_steps = 1000;

bool says_type(std::string_view text) {
  for (std::string_view t : {"float32", "float64", "float16"})  // bfloat16 is one of them
    if (text.find(t) != std::string_view::npos) return true;
  return false;
}

/// The line of Python asks for this precision whatever the model's own is.
bool says_precision(std::string_view source) {
  if (says_type(source)) return true;
  for (std::string_view t : {".float()", ".double()", ".half()", ".bfloat16()"})
    if (source.find(t) != std::string_view::npos) return true;
  return false;
}

/// `x.to(dtype)` and `x.type(dtype)`.
bool is_given_type(std::string_view function) { return function == "to" || function == "type"; }

/// What stands between the brackets of every `.to(` of a line, or of whatever function.
std::string arguments_of(std::string_view function, std::string_view line) {
  std::string out;
  const std::string open = fmt::format(".{}(", function);
  for (auto at = line.find(open); at != std::string_view::npos; at = line.find(open, at + 1)) {
    const std::size_t first = at + open.size(), close = closing_bracket(line, first - 1);
    out.append(line.substr(first, close == line.npos ? close : close - first)).push_back('\n');
  }
  return out;
}

/// `variance = x.to(torch.float32).pow(2).mean(-1)`, whose one conversion something else of the line takes. One back,
/// `.to(x.dtype)`, does not count.
bool uses_up_cast(std::string_view source) {
  const std::string_view value = parse_statement(source).value;
  std::size_t at = value.npos, count = 0;
  for (const std::string_view method : {".float()", ".to("})
    for (auto found = value.find(method); found != value.npos; found = value.find(method, found + 1)) {
      const std::size_t open = value.find('(', found), close = closing_bracket(value, open);
      if (value.substr(open, close - open).ends_with(".dtype")) continue;
      at = found, ++count;
    }
  if (count != 1) return false;
  const auto close = closing_bracket(value, value.find('(', at));
  return close != value.npos && value.substr(close + 1).starts_with('.');
}

/// How the line of a conversion says to which type.
struct Asked {
  Asked(std::string_view function, const std::string& line)
      : text(is_given_type(function) ? arguments_of(function, line) : line),
        fixed(is_given_type(function) ? says_type(text) : says_precision(text)),
        follows(text.find("type") != std::string::npos && text.find("type(") == std::string::npos) {}
  std::string text;  ///< what stands between the brackets of every `.to(`, or the whole line
  bool fixed;        ///< whatever the model's own precision is
  bool follows;      ///< by a name: that of another tensor, "x.dtype"
};

/// "h" of "h.dtype", the whole of what stands between the brackets; else empty.
std::string_view owner_of_type(std::string_view asked) {
  constexpr std::string_view end = ".dtype\n";
  if (!asked.ends_with(end)) return {};
  const std::string_view name = asked.substr(0, asked.size() - end.size());
  return std::ranges::all_of(name, in_name) ? name : std::string_view();
}

bool is_conversion(std::string_view function) {
  return function == "float" || function == "double" || function == "half" || function == "bfloat16";
}

ValueId value_of_argument(const Call& call, std::size_t i) {
  const auto* id = i < call.args.size() ? std::get_if<ValueId>(&call.args[i].value) : nullptr;
  return id ? *id : ValueId{};
}

/// softmax(x, dim, dtype=torch.float32) and the like convert before they compute.
bool asks_for_type(const Call& call) {
  for (const Arg& a : call.args)
    if (std::holds_alternative<DType>(a.value)) return true;
  for (const auto& [name, a] : call.kwargs)
    if (name == "dtype" && std::holds_alternative<DType>(a.value)) return true;
  return false;
}

}  // namespace

const ArchiveCasts::Cast* ArchiveCasts::cast_at(ValueId value) const {
  const auto it = casts_.find(value.index);
  return it == casts_.end() ? nullptr : &it->second;
}

bool ArchiveCasts::is_inside(std::int32_t scope, std::int32_t outer) const {
  while (scope >= 0 && scope != outer) scope = tape_.scopes[static_cast<std::size_t>(scope)].parent;
  return scope == outer;
}

/// Nobody casts twice in the same direction: what looks like it is another cast of the same tensor.
ValueId ArchiveCasts::source_of(ValueId value, bool widens) const {
  const Cast* c = cast_at(value);
  return c && c->widens == widens ? source_of(c->from, widens) : value;
}

/// The tensor whose widening in the same module `value` was computed from, nearest first.
ValueId ArchiveCasts::before_widening(ValueId value, std::int32_t scope) const {
  std::deque<ValueId> open{value};
  for (std::size_t steps = 0; !open.empty() && steps < longest_chain; ++steps) {
    const ValueId v = open.front();
    open.pop_front();
    if (const Cast* c = cast_at(v); c && c->widens && c->scope == scope) return c->from;
    const auto it = makers_.find(v.index);
    if (it == makers_.end()) continue;
    const Call& call = tape_.calls[it->second];
    if (!is_inside(call.scope, scope)) continue;
    if (call.scope == scope && asks_for_type(call) && value_of_argument(call, 0).valid() &&
        call.op.find("softmax") != std::string::npos)
      return value_of_argument(call, 0);
    for_each_value(call, [&](ValueId id) { open.push_back(id); });
  }
  return {};
}

/// The tensor from before the nearest cast that the same line made on the way to `value`, whichever way that one went:
/// a helper that casts what it gets, `x.to(weight.dtype)`, casts back what it returns.
ValueId ArchiveCasts::before_cast_of_line(ValueId value, const Call& asking) const {
  std::deque<ValueId> open{value};
  for (std::size_t steps = 0; !open.empty() && steps < longest_chain; ++steps) {
    const ValueId v = open.front();
    open.pop_front();
    const auto it = makers_.find(v.index);
    if (it == makers_.end()) continue;
    const Call& call = tape_.calls[it->second];
    if (call.scope == asking.scope && !call.source.empty() && call.source != asking.source) continue;
    if (!is_inside(call.scope, asking.scope)) continue;
    if (const Cast* c = cast_at(v)) return c->from;
    for_each_value(call, [&](ValueId id) { open.push_back(id); });
  }
  return {};
}

/// What the frame was given, of which `value` is what the calls of the frame made, each of the first that it reads.
ValueId ArchiveCasts::argument_of_frame(ValueId value, std::int32_t scope) const {
  for (std::size_t steps = 0; value.valid() && steps < longest_chain; ++steps) {
    const auto it = makers_.find(value.index);
    if (it == makers_.end()) break;
    const Call& call = tape_.calls[it->second];
    if (!is_inside(call.scope, scope)) {
      const bool floating = !call.known_shapes.empty() && is_floating(call.known_shapes[0].first);
      return steps > 0 && floating ? value : ValueId{};
    }
    value = value_of_argument(call, 0);
  }
  return {};
}

/// What the last line of the frame that has bound the name gave it: `h = self.in_layers(x)` before `.type(h.dtype)`.
/// The line that asks binds nothing yet.
ValueId ArchiveCasts::last_named(std::string_view name, const Call& asking) const {
  const std::int32_t scope = asking.scope;
  const std::size_t end = tape_.calls.size(), begin = end - std::min(end, longest_look_back);
  for (std::size_t i = end; i-- > begin;) {
    const Call& call = tape_.calls[i];
    if (!is_inside(call.scope, scope)) return {};  // before the frame
    std::int32_t child = call.scope, in = -1;
    for (; child != scope; child = tape_.scopes[static_cast<std::size_t>(child)].parent) in = child;
    const std::string& line = in < 0 ? call.source : tape_.scopes[static_cast<std::size_t>(in)].source;
    if (line == asking.source || !has_name(line, name)) continue;
    const auto targets = parse_statement(line).targets;
    if (targets.size() != 1 || std::ranges::find(targets[0], name) == targets[0].end()) continue;
    return targets[0].size() == 1 && call.outputs.size() == 1 ? call.outputs[0] : ValueId{};
  }
  return {};
}

/// What `value` was made of by calls of these ops, each of the first that it reads.
ValueId ArchiveCasts::before(const std::set<std::string_view>& ops, ValueId value) const {
  for (std::size_t steps = 0; value.valid() && steps < longest_chain; ++steps) {
    const auto it = makers_.find(value.index);
    if (it == makers_.end() || !ops.contains(tape_.calls[it->second].op)) break;
    value = value_of_argument(tape_.calls[it->second], 0);
  }
  return value;
}

/// A parameter or a view of one: `self.class_embedding.view(1, 1, -1).expand(n, -1, -1)`.
bool ArchiveCasts::is_of_parameter(ValueId value) const {
  static const std::set<std::string_view> views{"aten::view", "aten::reshape", "aten::expand", "aten::unsqueeze"};
  const ValueId whole = before(views, value);
  return whole.valid() && tape_.values[static_cast<std::size_t>(whole.index)].kind == ValueKind::parameter;
}

/// Of what attention gave, after views: attention's query, whose dtype libraries ask for after it
/// (`hidden_states.to(query.dtype)`, diffusers/models/attention_processor.py).
ValueId ArchiveCasts::query_of(ValueId value) const {
  static const std::set<std::string_view> views{"aten::transpose.int", "aten::reshape",    "aten::view",
                                                "aten::permute",       "aten::contiguous", "aten::flatten.using_ints"};
  const ValueId whole = before(views, value);
  const auto it = whole.valid() ? makers_.find(whole.index) : makers_.end();
  if (it == makers_.end()) return {};
  const Call& call = tape_.calls[it->second];
  return call.op == "aten::scaled_dot_product_attention" ? value_of_argument(call, 0) : ValueId{};
}

Fate ArchiveCasts::rewrite(Call& call, DType type, std::string_view function) {
  unseen_ = of_parameter_ = false;
  const ValueId given = value_of_argument(call, 0);
  auto become = [&](const char* op, bool widens, std::optional<Arg> argument) {
    const ValueId x = source_of(given, widens);
    call.op = op;
    call.args = {Arg{x}};
    call.kwargs.clear();
    if (argument) call.args.push_back(std::move(*argument));
    return Fate::keep;
  };
  if (call.op == "aten::type_as") {
    // The tensor whose type is asked for is the one from before its own cast.
    const ValueId other = source_of(value_of_argument(call, 1), true);
    return become("aten::type_as", false, Arg{other});
  }
  if (is_conversion(function)) return become("aten::to.dtype", true, Arg{type});
  const bool given_type = is_given_type(function);
  const auto [asked, fixed, follows] = Asked(function, call.source);
  // The line may be that of a caller, which says nothing: the exporter notes frames of forward() alone.
  const bool hidden = given_type && !fixed && !follows && call.op == "aten::to.dtype";
  const bool of_weight = asked.find("weight.dtype") != std::string::npos;
  if (hidden)
    if (const ValueId given_to_line = before_cast_of_line(given, call); given_to_line.valid())
      return become("aten::type_as", false, Arg{given_to_line});
  if (hidden)
    if (const ValueId query = query_of(given); query.valid()) return become("aten::type_as", false, Arg{query});
  if (const std::string_view name = owner_of_type(asked); given_type && follows && !fixed && !name.empty())
    if (const ValueId x = last_named(name, call); x.valid() && makers_.contains(x.index))
      return become("aten::type_as", false, Arg{x});
  if (follows && !of_weight)
    if (const ValueId narrow = before_widening(given, call.scope); narrow.valid())
      return become("aten::type_as", false, Arg{narrow});
  // `orig_type = x.dtype` at the start of the frame.
  if (given_type && follows && !fixed && asked.find('.') == std::string::npos)
    if (const ValueId x = argument_of_frame(given, call.scope); x.valid())
      return become("aten::type_as", false, Arg{x});
  of_parameter_ = hidden && is_of_parameter(given);
  unseen_ = hidden;
  if (fixed || hidden) return become("aten::to.dtype", true, Arg{type});
  if (follows) return become("memplan::to_default_dtype", false, {});
  return Fate::pass_input;  // x.to(device)
}

bool ArchiveCasts::follows_named(const Call& call, std::string_view function) {
  const Asked asked(function, call.source);
  return is_given_type(function) && asked.follows && !asked.fixed;
}

bool ArchiveCasts::moves_constant(const Call& call, const Node& node) const {
  if (std::ranges::none_of(node.inputs, [](const NodeInput& in) { return in.name == "device"; })) return false;
  std::vector<ValueId> open{value_of_argument(call, 0)};
  std::set<std::int32_t> seen;
  bool any = false;
  while (!open.empty()) {
    if (seen.size() > most_constant_steps) return false;
    const ValueId v = open.back();
    open.pop_back();
    if (!v.valid() || !seen.insert(v.index).second) continue;
    if (const auto it = makers_.find(v.index); it != makers_.end()) {
      for_each_value(tape_.calls[it->second], [&](ValueId id) { open.push_back(id); });
      continue;
    }
    const TapeValue& from = tape_.values[static_cast<std::size_t>(v.index)];
    if (from.kind != ValueKind::constant || from.on_host) return false;
    any = true;
  }
  return any;
}

void ArchiveCasts::made(const Call& call) {
  const ValueId from = value_of_argument(call, 0);
  if (call.outputs.size() != 1 || !from.valid()) return;
  casts_[call.outputs[0].index] = {from,
                                   call.scope,
                                   call.op == "aten::to.dtype",
                                   false,
                                   uses_up_cast(call.source) ? call.source : std::string(),
                                   is_made_in_line(from, call)};
  if (unseen_) tape_.exported.unseen_casts.push_back(call.outputs[0]);
  if (of_parameter_) waiting_[call.outputs[0].index] = tape_.calls.size();
}

/// Parameters are in the precision of the model, so nobody asks for it: `x + self.pos_embed.to(x.dtype)` asks for that
/// of what the parameter meets, as `torch.cat([self.token.to(x.dtype), x], dim=1)` does.
void ArchiveCasts::take_type_of_operand(const Call& call) {
  std::vector<ValueId> operands;
  for_each_value(call, [&](ValueId id) { operands.push_back(id); });
  if (operands.size() != 2) return;
  for (const std::size_t i : {0u, 1u}) {
    const ValueId cast = operands[i], other = operands[1 - i];
    const auto it = cast.valid() && other.valid() ? waiting_.find(cast.index) : waiting_.end();
    if (it == waiting_.end()) continue;
    const auto maker = makers_.find(other.index);
    if (maker != makers_.end() && maker->second < it->second) {
      Call& asked = tape_.calls[it->second];
      asked.op = "aten::type_as";
      asked.args.resize(1);
      asked.args.push_back(Arg{other});
      casts_[cast.index].widens = false;
    }
    waiting_.erase(it);
  }
}

ValueId ArchiveCasts::meant(ValueId value, std::int32_t scope, std::string_view source) {
  const auto it = casts_.find(value.index);
  if (it == casts_.end()) return value;
  const std::string& unnamed = it->second.unnamed_in;
  if (scope == it->second.scope && !unnamed.empty() && !source.empty()) {
    const std::size_t reader = tape_.calls.size();
    if (source != unnamed || it->second.read_by.value_or(reader) != reader)
      return meant(it->second.from, scope, source);
    it->second.read_by = reader;
  }
  if (is_inside(scope, it->second.scope)) {
    it->second.used_here = true;
    return value;
  }
  return it->second.used_here ? meant(it->second.from, scope, source) : value;
}

ValueId ArchiveCasts::returned(ValueId value) const {
  const Cast* c = cast_at(value);
  return c && c->used_here && !(c->of_temporary && c->unnamed_in.empty()) ? returned(c->from) : value;
}

/// `x` of `logits = self.head(h).float()`: the line of the cast makes it, and gives it no name.
bool ArchiveCasts::is_made_in_line(ValueId x, const Call& cast) const {
  const auto maker = makers_.find(x.index);
  if (maker == makers_.end() || cast.scope < 0 || cast.source.empty()) return false;
  const Call& call = tape_.calls[maker->second];
  std::int32_t child = call.scope;
  if (child == cast.scope) return call.source == cast.source;
  const auto parent = [&](std::int32_t s) { return tape_.scopes[static_cast<std::size_t>(s)].parent; };
  while (child >= 0 && parent(child) != cast.scope) child = parent(child);
  return child >= 0 && tape_.scopes[static_cast<std::size_t>(child)].source == cast.source;
}

/// softmax(scores.float(), dim=-1, dtype=dtype), and no type by its name: that of the scores before they were widened.
void ArchiveCasts::narrow_type(Call& call) const {
  constexpr std::string_view named = "dtype=";
  const bool of_softmax = call.op == "aten::softmax.int" || call.op == "aten::log_softmax.int";
  const auto at = call.source.find(named);
  if (!of_softmax || at == std::string::npos || says_type(std::string_view(call.source).substr(at)) ||
      call.args.size() < 3 || !std::holds_alternative<DType>(call.args[2].value))
    return;
  if (const ValueId narrow = before_widening(value_of_argument(call, 0), call.scope); narrow.valid())
    call.args[2].value = narrow;
}

void ArchiveCasts::follow(const Call& call) {
  for (const std::string_view op : {"aten::add.Tensor", "aten::sub.Tensor", "aten::mul.Tensor", "aten::cat"})
    if (call.op == op) take_type_of_operand(call);
  for (ValueId id : call.outputs) makers_[id.index] = tape_.calls.size();
}

}  // namespace memplan::torch_export
