#include "estimators/restore/lifetimes.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "estimators/facts/libraries.h"
#include "estimators/restore/frames.h"
#include "estimators/restore/function_names.h"
#include "estimators/restore/hidden_names.h"
#include "estimators/restore/joined_lists.h"
#include "estimators/restore/kept_keys.h"
#include "estimators/restore/loop_names.h"
#include "estimators/restore/method_states.h"
#include "estimators/restore/names.h"
#include "estimators/restore/other_names.h"
#include "estimators/restore/popped_values.h"
#include "estimators/restore/returned_lists.h"
#include "estimators/restore/returned_weights.h"
#include "estimators/restore/statement.h"
#include "estimators/restore/tuple_names.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

bool is_recurrent(std::string_view op) {
  return op == "aten::lstm.input" || op == "aten::gru.input" || op == "aten::rnn_tanh.input" ||
         op == "aten::rnn_relu.input";
}

/// The module `owner` returns what the module `child` in it has made; of an encoder, where it has a decoder as well.
bool returned_by_owner(const Tape& tape, std::int32_t owner, std::int32_t child) {
  const LibraryFact* fact =
      fact_of_child("returned_by_owner", tape.scopes[static_cast<std::size_t>(owner)].module_class,
                    tape.scopes[static_cast<std::size_t>(child)].path);
  return fact && (fact->detail.empty() || std::ranges::any_of(tape.scopes, [&](const Scope& s) {
                    return s.parent == owner && s.path.substr(s.path.rfind('.') + 1) == fact->detail;
                  }));
}

/// What the frame's last line returns, "return self.out(mean @ v), mean", if the file has that line: a line without an
/// op is not there.
std::vector<std::string_view> returned(const Frames& frames, std::int32_t scope) {
  if (frames.lines(scope) == 0) return {};
  const std::string_view value = parse_statement(frames.source_at(scope, frames.end(scope))).value;
  constexpr std::string_view keyword = "return ";
  if (!value.starts_with(keyword)) return {};
  return arguments_at(value, keyword.size());
}

/// Where the caller lets go of a value that a module returns beside its result and that nothing reads any more:
/// "x, weights = self.attn(x)" where the module's frame calls the value `weights` to its end, and returns it by that
/// name if the file says what it returns. -1: none of this.
std::int32_t returned_by_name(const Tape& tape, const Frames& frames, const ValueLife& l) {
  if (l.born < 0 || l.top < 0) return -1;
  const Scope& module = tape.scopes[static_cast<std::size_t>(l.top)];
  if (module.binding < 0 || module.parent < 0) return -1;
  const auto& caller = tape.bindings[static_cast<std::size_t>(module.binding)].targets;
  if (std::ranges::none_of(caller, [](const auto& names) { return names.size() > 1; })) return -1;
  const std::size_t line = frames.line_of(l.top, l.born);
  const Line& made = frames.line(l.top, line);
  const auto& targets = frames.binding(made).targets;
  if (targets.size() != 1 || targets[0].size() != 1 ||
      frames.settled(l.top, tape.calls[static_cast<std::size_t>(l.born)].scope, l.born) != made.last ||
      frames.binds_later(l.top, line, targets[0][0]) || !names_itself(module))
    return -1;
  const std::vector<std::string_view> values = returned(frames, l.top);
  for (const auto& names : caller)
    for (std::size_t k = 0; names.size() > 1 && k < names.size(); ++k)
      if (values.size() == names.size() ? values[k] == targets[0][0] : names[k] == targets[0][0])
        return frames.rebound(module.parent, frames.line_of(module.parent, l.born), k);
  return -1;
}

/// The same of what classes are known to return as the first of several: "_, weights, experts = self.router(x)".
std::int32_t returned_by_class(const Tape& tape, const Frames& frames, const ValueLife& l) {
  if (l.born < 0 || l.top < 0) return -1;
  const Call& made = tape.calls[static_cast<std::size_t>(l.born)];
  const Scope& module = tape.scopes[static_cast<std::size_t>(l.top)];
  if (made.scope != l.top || module.binding < 0 || module.parent < 0) return -1;
  const auto& caller = tape.bindings[static_cast<std::size_t>(module.binding)].targets;
  if (caller.empty() || caller[0].size() < 2) return -1;
  const LibraryFact* fact = fact_of_class("returns_result", module.module_class);
  if (!fact || fact->detail != made.op) return -1;
  for (std::int32_t i = frames.begin(l.top); i < l.born; ++i)
    if (tape.calls[static_cast<std::size_t>(i)].op == made.op) return -1;
  return frames.rebound(module.parent, frames.line_of(module.parent, l.born), 0);
}

std::size_t index(ValueId id) { return static_cast<std::size_t>(id.index); }
const Call& maker(const Tape& tape, const ValueLife& l) { return tape.calls[static_cast<std::size_t>(l.born)]; }

/// By value: the call with which it goes; -1: not known, or no value of a call.
using Until = std::vector<std::int32_t>;

}  // namespace

std::vector<ValueLife> lives_of(const Tape& tape, const Frames& frames) {
  std::vector<ValueLife> lives(tape.values.size());
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    for_each_value(call, [&](ValueId id) {
      ValueLife& l = lives[index(id)];
      if (l.born < 0) return;
      l.top = frames.common(l.top, call.scope);
      l.last = static_cast<std::int32_t>(i);
    });
    // What an nn.LSTM returns besides its output is often not used, but the caller's names hold it.
    const bool recurrent = call.scope >= 0 && is_recurrent(call.op);
    for (ValueId id : call.outputs)
      if (id.valid())
        lives[index(id)] = {static_cast<std::int32_t>(i), static_cast<std::int32_t>(i),
                            recurrent ? frames.parent(call.scope) : call.scope, false, false};
  }
  for (const Call& call : tape.calls)
    for (ValueId id : call.releases) lives[index(id)].released = true;
  for (ValueId id : tape.outputs)
    if (id.valid()) lives[index(id)].kept = true;
  return lives;
}

namespace {

/// Some modules return a result of a module inside of them that nothing of the graph reads any more: it lives in their
/// caller's frame. How many values that moves.
std::int64_t follow_returns(const Tape& tape, const Frames& frames, std::vector<ValueLife>& lives) {
  std::int64_t moved = 0;
  for (ValueLife& l : lives) {
    if (l.born < 0 || l.top < 0) continue;
    if (l.last == l.born)
      // Nothing reads it at all: what a module of the owner's ends with.
      for (std::int32_t s = l.top; s >= 0 && frames.parent(s) >= 0 && frames.end(s) == l.born; s = frames.parent(s))
        if (returned_by_owner(tape, frames.parent(s), s)) l.top = frames.parent(s);
    const Scope& owner = tape.scopes[static_cast<std::size_t>(l.top)];
    if (owner.parent < 0) continue;
    std::int32_t child = maker(tape, l).scope;
    while (child != l.top && frames.parent(child) != l.top) child = frames.parent(child);
    if (child != l.top && returned_by_owner(tape, l.top, child)) {
      l.top = owner.parent;
      ++moved;
    }
  }
  return moved;
}

/// `1 / x` is torch.Tensor.__rtruediv__ (torch/_tensor.py), `self.reciprocal() * other`: its frame holds x until the
/// product is made. -1 for all other calls.
std::int32_t product_of_reciprocal(const Tape& tape, std::size_t i) {
  const Call& call = tape.calls[i];
  if (call.op != "aten::reciprocal" || call.outputs.size() != 1 || call.source.find('/') == std::string::npos ||
      call.source.find("reciprocal") != std::string::npos)
    return -1;
  const bool multiplied = i + 1 < tape.calls.size() && tape.calls[i + 1].op == "aten::mul.Tensor" &&
                          tape.calls[i + 1].source == call.source && value_at(tape.calls[i + 1], 0) == call.outputs[0];
  return multiplied ? static_cast<std::int32_t>(i) + 1 : -1;
}

/// Where the last use of each value settles, without names.
Until settled_uses(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives, const Until& popped) {
  Until until(lives.size(), -1);
  for (std::size_t v = 0; v < lives.size(); ++v)
    if (lives[v].born >= 0) until[v] = frames.settled(lives[v].top, maker(tape, lives[v]).scope, lives[v].born);
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    const std::int32_t product = product_of_reciprocal(tape, i);
    const auto at = product < 0 ? static_cast<std::int32_t>(i) : product;
    for_each_value(call, [&](ValueId id) {
      const ValueLife& l = lives[index(id)];
      if (l.born < 0 || l.born == static_cast<std::int32_t>(i)) return;
      until[index(id)] = std::max(until[index(id)], frames.settled(l.top, call.scope, at));
    });
  }
  for (std::size_t v = 0; v < until.size(); ++v)
    if (popped[v] >= 0) until[v] = popped[v];
  return until;
}

/// Modules of some classes put what one of their own makes, and others than the next one read, into a list that lives
/// as long as the helper runs which calls them all.
Until held_in_lists_of_class(const Tape& tape, const Frames& frames, const std::vector<ValueLife>& lives) {
  Until until(tape.values.size(), -1);
  std::vector<bool> lists(tape.scopes.size(), false);
  for (std::size_t s = 0; s < lists.size(); ++s)
    lists[s] = fact_of_class("lists_results", tape.scopes[s].module_class) != nullptr;
  if (std::ranges::find(lists, true) == lists.end()) return until;
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    for_each_value(tape.calls[i], [&](ValueId id) {
      const ValueLife& l = lives[index(id)];
      if (l.born < 0 || l.top < 0 || !lists[static_cast<std::size_t>(l.top)]) return;
      const std::int32_t from = frames.child_towards(l.top, maker(tape, l).scope);
      const std::int32_t to = frames.child_towards(l.top, tape.calls[i].scope);
      if (from >= 0 && to >= 0 && frames.begin(to) > frames.end(from) + 1)
        until[index(id)] = frames.line(l.top, frames.line_of(l.top, l.born)).last;
    });
  return until;
}

/// `x[i] = y` of a tensor writes to it, by a call of the frame's own
/// (torch/csrc/autograd/python_variable_indexing.cpp).
bool writes_to_tensor(const Tape& tape, std::int32_t scope, const Line& line) {
  return std::any_of(tape.calls.begin() + line.first, tape.calls.begin() + line.last + 1, [&](const Call& c) {
    const std::string_view op = std::string_view(c.op).substr(0, c.op.find('.'));
    return c.scope == scope &&
           (op == "aten::copy_" || op == "aten::fill_" || op.starts_with("aten::index_put") || op.ends_with("scatter"));
  });
}

/// Names inside of the function that the line calls hold what `what` says of its first calls of an op: of as many as
/// there are rows of it. Whether call `at` is one of these.
bool is_held_by_function(const Tape& tape, const Frames& frames, const Line& line, std::int32_t at,
                         std::string_view what) {
  const auto& held = frames.binding(line).held;
  auto names = std::count(held.begin(), held.end(), what);
  const std::string& op = tape.calls[static_cast<std::size_t>(at)].op;
  for (std::int32_t i = line.first; names > 0 && i < at; ++i)
    if (tape.calls[static_cast<std::size_t>(i)].op == op) --names;
  return names > 0;
}

/// What such an op reads, "aten::mul.Tensor(0)", stays as well where it was a name's.
Until read_by_functions(const Tape& tape, const Frames& frames) {
  Until until(tape.values.size(), -1);
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    if (call.scope < 0 || call.binding < 0 || tape.bindings[static_cast<std::size_t>(call.binding)].held.empty())
      continue;
    const auto at = static_cast<std::int32_t>(i);
    const Line& line = frames.line(call.scope, frames.line_of(call.scope, at));
    for (std::size_t a = 0; a < call.args.size(); ++a)
      if (const ValueId id = value_at(call, a);
          id.valid() && is_held_by_function(tape, frames, line, at, call.op + "(" + std::to_string(a) + ")"))
        until[index(id)] = line.last;
  }
  return until;
}

/// The line that made it gives a name to a list whose elements are taken out later.
bool is_of_emptied_list(const Frames& frames, const ValueLife& l) {
  return std::ranges::any_of(frames.binding_at(l.top, l.born).targets, [&](const auto& names) {
    return std::ranges::any_of(names, [&](const std::string& name) { return frames.is_emptied(l.top, name); });
  });
}

/// How many there are.
std::int64_t keep_states(Tape& tape, const std::vector<bool>& states) {
  for (std::size_t v = 0; v < states.size(); ++v)
    if (states[v]) tape.values[v].in_attribute = true;
  return std::ranges::count(states, true);
}

void tell_counts(Tape& tape, std::int64_t by_line, std::int64_t by_function, std::int64_t by_tuple,
                 std::int64_t by_class, std::int64_t by_method) {
  // The pass runs again after every change of the tape: only its last word counts.
  std::erase_if(tape.notes, [](const Fact& f) { return f.about == About::lifetime; });
  const auto tell = [&](std::int64_t count, Evidence evidence, const char* text) {
    if (count > 0) tape.notes.push_back({{}, text, evidence, About::lifetime, {}, {}, -1, count, {}});
  };
  tell(by_line, Evidence::told_by_source_line, "values that a name of the forward pass keeps beyond their last use");
  tell(by_function, Evidence::told_by_name, "values that a name inside of a known function keeps");
  tell(by_tuple, Evidence::told_by_name, "attention weights that modules hand on");
  tell(by_class, Evidence::told_by_name, "results of an encoder that the model's class returns");
  tell(by_method, Evidence::told_by_source_line, "state that a method of the model's puts into attributes");
}

}  // namespace

void settle_releases(Tape& tape) {
  constexpr std::int32_t never = -1;
  std::vector<std::int32_t> made(tape.values.size(), never), last(tape.values.size(), never);
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const auto at = static_cast<std::int32_t>(i);
    for_each_value(tape.calls[i], [&](ValueId id) { last[static_cast<std::size_t>(id.index)] = at; });
    for (ValueId id : tape.calls[i].outputs)
      if (id.valid()) made[static_cast<std::size_t>(id.index)] = last[static_cast<std::size_t>(id.index)] = at;
  }
  for (ValueId id : tape.outputs)
    if (id.valid()) made[static_cast<std::size_t>(id.index)] = never;
  std::vector<std::pair<std::int32_t, ValueId>> later;
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    std::erase_if(tape.calls[i].releases, [&](ValueId id) {
      const auto v = static_cast<std::size_t>(id.index);
      if (made[v] == never) return true;
      const bool moves = last[v] > static_cast<std::int32_t>(i);
      if (moves) later.emplace_back(last[v], id);
      return moves;
    });
  for (const auto& [at, id] : later) tape.calls[static_cast<std::size_t>(at)].releases.push_back(id);
}

void mark_last_uses(Tape& tape) {
  settle_releases(tape);
  for (Call& call : tape.calls) call.last_uses.clear();
  const Frames frames(tape);
  std::vector<ValueLife> lives = lives_of(tape, frames);
  const std::int64_t by_class = follow_returns(tape, frames, lives);
  const Until popped = settled_where_popped(tape, frames, lives), settled = settled_uses(tape, frames, lives, popped),
              listed = held_in_joined_lists(tape, frames), collected = held_in_lists_of_class(tape, frames, lives);
  const std::vector<Statement> lines = statements(tape);
  const Until hidden =
      tape.reading.names == NameReading::held ? held_by_hidden_names(tape, frames, lines, lives) : Until();
  const Until weights = held_as_weights(tape, frames), turns = let_go_in_loops(tape, frames, lives),
              cached = held_by_cache(tape, frames), others = held_by_other_names(tape, frames, lines, lives),
              read = read_by_functions(tape, frames), in_lists = held_in_returned_lists(tape, frames, lines, settled),
              looped = held_by_lists_of_loops(tape, frames, lives), inside = held_in_functions(tape, frames);
  const std::int64_t by_method = keep_states(tape, states_of_methods(tape, frames, lives));
  std::int64_t by_function = 0, by_line = 0, by_tuple = 0;
  const std::vector<std::int32_t> places = places_among_names(tape, frames, lines, lives, settled);
  for (std::size_t v = 0; v < lives.size(); ++v) {
    const ValueLife& l = lives[v];
    if (l.born < 0) continue;
    std::int32_t until = settled[v];
    const std::size_t at = frames.line_of(l.top, l.born);
    const Line& line = frames.line(l.top, at);
    if (is_held_by_function(tape, frames, line, l.born, maker(tape, l).op))
      until = std::max(until, line.last), ++by_function;
    if (read[v] > until) until = read[v], ++by_function;
    if (inside[v] > until) until = inside[v], ++by_function;
    const std::int32_t without_names = until;
    const bool named = popped[v] < 0 || !is_of_emptied_list(frames, l);
    if (named)
      until = std::max({until, returned_by_name(tape, frames, l), returned_by_class(tape, frames, l), listed[v],
                        collected[v], cached[v], others[v], in_lists[v], looped[v]});
    if (named && places[v] >= 0) {
      const std::int32_t end = frames.collected(l.top, at, {static_cast<std::int32_t>(v)});
      const std::int32_t bound = frames.rebound(l.top, at, static_cast<std::size_t>(places[v]));
      if (end >= 0 && !writes_to_tensor(tape, l.top, line))
        until = std::max(until, end);
      else
        until = std::max(until, turns[v] < 0 ? bound : std::min(bound, turns[v]));
    }
    by_line += until > without_names;
    if (weights[v] > until) until = weights[v], ++by_tuple;
    if (tape.reading.names == NameReading::freed) until = settled[v];
    if (!hidden.empty()) until = std::max(until, hidden[v]);
    if (!l.kept && !l.released && !tape.values[v].in_attribute)
      tape.calls[static_cast<std::size_t>(until)].last_uses.push_back({static_cast<std::int32_t>(v)});
  }
  for (Call& call : tape.calls) {
    // A module's own frame goes before the arguments that its caller holds.
    std::ranges::stable_sort(call.last_uses, std::greater(),
                             [&](ValueId id) { return frames.depth(lives[index(id)].top); });
    call.last_uses.insert(call.last_uses.end(), call.releases.begin(), call.releases.end());
  }
  tell_counts(tape, by_line, by_function, by_tuple, by_class, by_method);
}

}  // namespace memplan
