#include "estimators/restore/hidden_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// "self.attn" of "x = self.attn(y)" and "rotate" of "rotate(q)": what a line of Python calls.
std::vector<std::string_view> called_in(std::string_view text) {
  std::vector<std::string_view> out;
  for (auto open = text.find('('); open != std::string_view::npos; open = text.find('(', open + 1)) {
    std::size_t first = open;
    while (first > 0 && in_path(text[first - 1])) --first;
    if (first < open && text[first] != '.') out.push_back(text.substr(first, open - first));
  }
  return out;
}

/// What names that the file does not show could hold: NameReading::held. Exporters record the lines of functions called
/// `forward` only. A line that calls a helper may hold each different kind of result inside of it until it has made the
/// next one of that kind; a list that `cat` joins may hold its members until the frame returns; and attention that
/// returns its weights holds them until its caller's frame returns.
class HiddenNames {
 public:
  HiddenNames(const Tape& tape, const Frames& frames, const std::vector<Statement>& lines)
      : tape_(tape), frames_(frames), lines_(lines) {
    for (const Call& c : tape.calls)
      if (makes_weights(c))
        for (ValueId id : c.outputs) weights_.insert(id.index);
    for (std::size_t i = 0; i < tape.calls.size(); ++i)
      if (tape.calls[i].function >= 0) function_ends_[tape.calls[i].function] = static_cast<std::int32_t>(i);
  }

  /// Values have to come in falling order.
  std::int32_t hold(std::int32_t top, std::size_t line, std::int32_t born, std::int32_t born_scope) {
    const std::int32_t child = frames_.child_towards(top, born_scope);
    const Call& call = tape_.calls[static_cast<std::size_t>(born)];
    std::int32_t until = -1;
    if (opaque(top, line)) {
      const std::string_view kind =
          child < 0 ? std::string_view(call.op) : std::string_view(tape_.scopes[static_cast<std::size_t>(child)].path);
      auto& later = next_[{top, line, kind}];
      const auto names = static_cast<std::size_t>(names_of_kind(top, line));
      until = later.size() < names ? frames_.line(top, line).last : later[later.size() - names];
      later.push_back(frames_.settled(top, born_scope, born));
    }
    if (top >= 0 && is_weights(call)) until = std::max(until, held_by_caller(frames_.parent(top), born));
    // The forward of an autograd.Function is a frame of its own.
    if (call.function >= 0) until = std::max(until, function_ends_.at(call.function));
    return until;
  }

  /// A tuple with the weights in it, which each caller may hand on: a name holds it where the line does nothing but
  /// call.
  std::int32_t held_by_caller(std::int32_t frame, std::int32_t born) const {
    std::int32_t until = frames_.end(frame);
    for (; frame >= 0; frame = frames_.parent(frame)) {
      const std::int32_t above = frames_.parent(frame);
      const std::int32_t named = frames_.rebound(above, frames_.line_of(above, born), 0);
      if (named < 0) break;
      until = std::max(until, named);
    }
    return until;
  }

  /// Joins a list that a name holds, as in `torch.stack(outputs)`, and not one that is written there.
  static bool joins_named_list(const Call& call) {
    if (call.op != "aten::cat" && call.op != "aten::stack") return false;
    for (const std::string_view f : {"cat(", "stack(", "concat("})
      if (const auto open = call.source.find(f); open != std::string::npos) {
        const auto next = call.source.find_first_not_of(' ', open + f.size());
        return next != std::string::npos && call.source[next] != '[' && call.source[next] != '(';
      }
    return true;
  }

 private:
  bool is_weights(const Call& call) const {
    return std::ranges::any_of(call.outputs, [&](ValueId id) { return weights_.contains(id.index); });
  }

  /// softmax over scores, and what only drops or converts its results.
  bool makes_weights(const Call& call) const {
    if (call.op.starts_with("aten::softmax")) return true;
    const auto* from = call.args.empty() ? nullptr : std::get_if<ValueId>(&call.args[0].value);
    const bool same = call.op == "aten::dropout" || call.op == "aten::type_as" || call.op == "aten::to.dtype";
    return same && from && weights_.contains(from->index);
  }

  bool opaque(std::int32_t scope, std::size_t line) {
    const auto [at, fresh] = opaque_.try_emplace({scope, line}, false);
    if (fresh) at->second = calls_helper(scope, frames_.line(scope, line));
    return at->second;
  }

  /// How many results of a kind the helper's names may hold at once. A scan over chunks has more statements than a
  /// rotation of heads.
  std::int64_t names_of_kind(std::int32_t scope, std::size_t line) const {
    constexpr std::int64_t many_calls = 32, names_of_many = 8;
    const Line& l = frames_.line(scope, line);
    return l.last - l.first >= many_calls ? names_of_many : 2;
  }

  bool calls_helper(std::int32_t scope, const Line& line) const {
    if (line.binding < 0) return false;
    std::set<std::string_view> children;
    std::int64_t own = 0;
    for (std::int32_t i = line.first; i <= line.last; ++i) {
      const std::int32_t child = frames_.child_towards(scope, tape_.calls[static_cast<std::size_t>(i)].scope);
      if (child < 0)
        ++own;
      else
        children.insert(tape_.scopes[static_cast<std::size_t>(child)].path);
    }
    for (const std::string_view callee : called_in(lines_[static_cast<std::size_t>(line.binding)].value)) {
      const auto dot = callee.rfind('.');
      const std::string_view last = dot == std::string_view::npos ? callee : callee.substr(dot + 1);
      if (dot == std::string_view::npos) {
        static const std::set<std::string_view> plain{
            "len", "range", "int", "float", "bool",      "getattr",  "isinstance", "list", "tuple", "zip",
            "max", "min",   "sum", "super", "enumerate", "reversed", "str",        "abs",  "slice"};
        if (!plain.contains(callee) &&
            (own > 0 ? own + static_cast<std::int64_t>(children.size()) > 1 : children.size() > 1))
          return true;
      } else if (callee.starts_with("self.")) {
        const bool module = std::any_of(children.begin(), children.end(), [&](std::string_view path) {
          return path == last || path.ends_with("." + std::string(last));
        });
        if (!module && own + static_cast<std::int64_t>(children.size()) > 1) return true;
      }
    }
    return false;
  }

  const Tape& tape_;
  const Frames& frames_;
  const std::vector<Statement>& lines_;                 ///< by binding
  std::set<std::int32_t> weights_;                      ///< values: of attention
  std::map<std::int32_t, std::int32_t> function_ends_;  ///< the last call of each application
  std::map<std::pair<std::int32_t, std::size_t>, bool> opaque_;
  std::map<std::tuple<std::int32_t, std::size_t, std::string_view>, std::vector<std::int32_t>> next_;
};

/// A name that a line reads and that no line of its frame binds got its value where nothing was computed, as in
/// "residual = x": the frame holds what the line reads until it returns.
void hold_under_unseen_names(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives,
                             std::vector<std::int32_t>& until) {
  std::map<std::int32_t, std::set<std::string_view>> bound;  // by scope
  const auto binds = [&](std::int32_t scope, std::int32_t binding) {
    if (binding < 0) return;
    for (const auto& names : tape.bindings[static_cast<std::size_t>(binding)].targets)
      bound[scope].insert(names.begin(), names.end());
  };
  for (const Call& call : tape.calls) binds(call.scope, call.binding);
  for (const Scope& scope : tape.scopes) binds(scope.parent, scope.binding);
  const auto name_of = [&](std::int32_t scope, std::int32_t at) -> std::string_view {
    const auto& targets = frames.binding_at(scope, at).targets;
    return targets.size() == 1 && targets[0].size() == 1 ? std::string_view(targets[0][0]) : std::string_view();
  };
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    const Statement statement = parse_statement(call.source);
    std::vector<std::string_view> names = names_read(statement.value);
    const auto& seen = bound[call.scope];
    if (std::ranges::all_of(names, [&](std::string_view n) { return seen.contains(n); })) continue;
    if (statement.augmented && !statement.targets.empty())
      names.insert(names.end(), statement.targets[0].begin(), statement.targets[0].end());
    // The line's own temporaries need no name, and of values that were called alike the name has the last.
    const std::size_t line = frames.line_of(call.scope, static_cast<std::int32_t>(i));
    std::map<std::string_view, std::int32_t> named;
    const auto local = [&](ValueId id) {
      const ValueLife& l = lives[static_cast<std::size_t>(id.index)];
      return l.born >= 0 && l.top == call.scope && frames.line_of(call.scope, l.born) != line;
    };
    for_each_value(call, [&](ValueId id) {
      if (!local(id)) return;
      std::int32_t& last = named[name_of(call.scope, lives[static_cast<std::size_t>(id.index)].born)];
      last = std::max(last, lives[static_cast<std::size_t>(id.index)].born);
    });
    for_each_value(call, [&](ValueId id) {
      if (!local(id)) return;
      const std::int32_t born = lives[static_cast<std::size_t>(id.index)].born;
      const std::string_view name = name_of(call.scope, born);
      if (named[name] == born && std::ranges::find(names, name) != names.end()) return;
      auto& u = until[static_cast<std::size_t>(id.index)];
      u = std::max(u, frames.end(call.scope));
    });
  }
}

/// A list that `cat` joins by a name may have come to the frame as an argument: then its caller's frame holds it.
void hold_in_lists_of_callers(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives,
                              std::vector<std::int32_t>& until) {
  for (const Call& call : tape.calls)
    if (HiddenNames::joins_named_list(call)) {
      const std::int32_t above = call.scope < 0 ? -1 : frames.end(frames.parent(call.scope));
      const std::int32_t end = std::max(above, frames.end(call.scope));
      for_each_value(call, [&](ValueId id) {
        auto& u = until[static_cast<std::size_t>(id.index)];
        if (lives[static_cast<std::size_t>(id.index)].born >= 0) u = std::max(u, end);
      });
    }
}

/// The line calls a method of the module's own: it may be one that looks into a cache first.
bool calls_own_method(const Call& call) {
  const std::string_view text = parse_statement(call.source).value;
  return std::ranges::any_of(called_in(text), [](std::string_view name) { return name.starts_with("self."); });
}

/// Calls that compute from weights alone what a method of the module gives.
std::vector<bool> cached_calls(const Tape& tape) {
  std::vector<bool> fixed(tape.values.size(), false), cached(tape.calls.size(), false);
  const auto is_fixed = [&](ValueId id) {
    const ValueKind kind = tape.values[static_cast<std::size_t>(id.index)].kind;
    return kind == ValueKind::computed ? static_cast<bool>(fixed[static_cast<std::size_t>(id.index)])
                                       : kind != ValueKind::user_input;
  };
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    bool reads = false, all = true;
    for_each_value(call, [&](ValueId id) { reads = true, all = all && is_fixed(id); });
    if (!reads || !all || !calls_own_method(call)) continue;
    cached[i] = true;
    for (ValueId id : call.outputs)
      if (id.valid()) fixed[static_cast<std::size_t>(id.index)] = true;
  }
  return cached;
}

/// What a module computes from its weights alone it may keep, as `self.cache[device] = …` does: until the program ends.
void hold_in_caches(const Tape& tape, const std::vector<ValueLife>& lives, std::vector<std::int32_t>& until) {
  const std::vector<bool> cached = cached_calls(tape);
  const auto end = static_cast<std::int32_t>(tape.calls.size()) - 1;
  for (std::size_t v = 0; v < lives.size(); ++v)
    if (lives[v].born >= 0 && cached[static_cast<std::size_t>(lives[v].born)]) until[v] = end;
}

/// Libraries whose modules return nothing unread but attention weights.
bool returns_known_tuples(std::string_view module_class) {
  constexpr std::array<std::string_view, 5> known{"torch.", "torchvision.", "timm.", "transformers.", "diffusers."};
  return std::ranges::any_of(known, [&](std::string_view library) { return module_class.starts_with(library); });
}

/// What modules hand to their callers beside what the program reads of it.
class UnreadResults {
 public:
  UnreadResults(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives)
      : tape_(tape), frames_(frames), read_(tape.scopes.size(), 0) {
    for (const ValueLife& l : lives) {
      if (l.born < 0) continue;
      std::int32_t s = tape.calls[static_cast<std::size_t>(l.born)].scope;
      for (; s >= 0 && s != l.top; s = frames.parent(s)) ++read_[static_cast<std::size_t>(s)];
    }
  }

  /// `out, inter = block(x)`, of which one result is read: what the other name stands for may hold anything, and lists
  /// may collect it until the caller returns, or the caller's caller where that hands on a tuple of the same kind.
  std::int32_t end_of_objects(std::int32_t s) const {
    std::int32_t end = -1;
    for (std::int32_t at = s; at >= 0 && has_unread_name(at); at = frames_.parent(at))
      end = frames_.end(frames_.parent(at));
    return end;
  }

  /// `features = encoder(x)`, of which several results are read: there may be more in the list, of those that had
  /// names.
  std::int32_t end_of_list(std::int32_t s) const {
    const auto* names = names_of(s);
    return names && names->size() == 1 && read_[static_cast<std::size_t>(s)] > 1 ? frames_.end(frames_.parent(s)) : -1;
  }

  /// `return list(self._collect(x).values())` of a module whose caller hands the list on: what had no names as well.
  std::int32_t end_of_handed_list(std::int32_t s) const {
    return frames_.parent(s) >= 0 && read_[static_cast<std::size_t>(s)] > 1 ? end_of_list(frames_.parent(s)) : -1;
  }

 private:
  const std::vector<std::string>* names_of(std::int32_t s) const {
    const Scope& scope = tape_.scopes[static_cast<std::size_t>(s)];
    if (scope.binding < 0 || returns_known_tuples(scope.module_class)) return nullptr;
    const auto& targets = tape_.bindings[static_cast<std::size_t>(scope.binding)].targets;
    return targets.size() == 1 ? targets.data() : nullptr;
  }

  bool has_unread_name(std::int32_t s) const {
    const auto* names = names_of(s);
    return names && names->size() > std::max<std::size_t>(1, read_[static_cast<std::size_t>(s)]);
  }

  const Tape& tape_;
  const Frames& frames_;
  std::vector<std::size_t> read_;  ///< by module: how many of its results its callers read
};

/// `features[i] = norm(features[i])`: a list or a dict of the frame's holds it until the frame returns.
bool fills_container(std::string_view source) {
  const std::string_view text = source.substr(std::min(source.size(), source.find(' ') + 1));
  std::size_t at = 0;
  while (at < text.size() && in_name(text[at])) ++at;
  if (at == 0 || at == text.size() || text[at] != '[') return false;
  const auto close = text.find(']', at);
  return close != text.npos && text.substr(close + 1).starts_with(" = ");
}

void hold_in_containers(const Frames& frames, const std::vector<ValueLife>& lives, std::vector<std::int32_t>& until) {
  for (std::size_t v = 0; v < lives.size(); ++v) {
    const ValueLife& l = lives[v];
    if (l.born >= 0 && fills_container(frames.source_at(l.top, l.born)))
      until[v] = std::max(until[v], frames.end(l.top));
  }
}

void hold_in_unread_results(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives,
                            std::vector<std::int32_t>& until) {
  const UnreadResults results(tape, frames, lives);
  std::vector<std::array<std::int32_t, 3>> ends;
  for (std::int32_t s = 0; s < static_cast<std::int32_t>(tape.scopes.size()); ++s)
    ends.push_back({results.end_of_objects(s), results.end_of_list(s), results.end_of_handed_list(s)});
  for (std::size_t v = 0; v < lives.size(); ++v) {
    const ValueLife& l = lives[v];
    if (l.born < 0 || l.top < 0) continue;
    const auto [objects, list, handed] = ends[static_cast<std::size_t>(l.top)];
    until[v] = std::max(until[v], objects);
    if (std::max(list, handed) < 0) continue;
    const Line& line = frames.line(l.top, frames.line_of(l.top, l.born));
    if (list >= 0 && !frames.binding(line).targets.empty()) until[v] = std::max(until[v], list);
    if (handed >= 0 && frames.text(l.top, line).starts_with("return ")) until[v] = std::max(until[v], handed);
  }
}

/// Regions without gradients or autocast come without the program's lines. Where `out = norm(conv(out))` or `relu(norm(
/// conv(x)))` may stand, a name holds what is read until two calls later; that of the outermost frame, as in `x =
/// layer2(layer1(x))`, holds the first value that is read twice until the region ends.
void hold_without_lines(const Tape& tape, const std::vector<ValueLife>& lives, std::vector<std::int32_t>& until) {
  constexpr std::int32_t calls = 2;
  const auto in_run = [&](std::int32_t i) {
    return i < static_cast<std::int32_t>(tape.calls.size()) && tape.calls[static_cast<std::size_t>(i)].source.empty();
  };
  const std::vector<int> reads = count_reads(tape);
  std::int32_t end_of_run = -1;
  for (std::size_t v = 0; v < lives.size(); ++v) {
    std::int32_t end = lives[v].last;
    if (lives[v].born < 0 || end < 0 || !in_run(lives[v].born)) continue;
    for (std::int32_t i = 0; i < calls && in_run(end) && in_run(end + 1); ++i) ++end;
    if (reads[v] > 1 && lives[v].born > end_of_run) {
      for (end_of_run = lives[v].born; in_run(end_of_run + 1);) ++end_of_run;
      end = std::max(end, end_of_run);
    }
    until[v] = std::max(until[v], end);
  }
}

}  // namespace

std::vector<std::int32_t> held_by_hidden_names(const Tape& tape, const Frames& frames,
                                               const std::vector<Statement>& lines,
                                               const std::vector<ValueLife>& lives) {
  std::vector<std::int32_t> until(lives.size(), -1);
  HiddenNames names(tape, frames, lines);
  for (std::size_t v = lives.size(); v-- > 0;) {
    const ValueLife& l = lives[v];
    if (l.born < 0) continue;
    until[v] =
        names.hold(l.top, frames.line_of(l.top, l.born), l.born, tape.calls[static_cast<std::size_t>(l.born)].scope);
  }
  hold_under_unseen_names(tape, frames, lives, until);
  hold_in_lists_of_callers(tape, frames, lives, until);
  hold_in_containers(frames, lives, until);
  hold_in_unread_results(tape, frames, lives, until);
  hold_in_caches(tape, lives, until);
  hold_without_lines(tape, lives, until);
  return until;
}

void fill_caches_first(Tape& tape) {
  const std::vector<bool> cached = cached_calls(tape);
  std::vector<Call> first, others;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    if (cached[i]) call.scope = call.binding = -1;
    (cached[i] ? first : others).push_back(std::move(call));
  }
  tape.calls = std::move(first);
  tape.calls.insert(tape.calls.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
}

}  // namespace memplan
