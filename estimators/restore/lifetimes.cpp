#include "estimators/restore/lifetimes.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "estimators/facts/libraries.h"
#include "estimators/restore/frames.h"
#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// "self.attn" of "x = self.attn(y)" and "rotate" of "rotate(q)": what a line of Python calls.
std::vector<std::string_view> called_in(std::string_view text) {
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  std::vector<std::string_view> out;
  for (auto open = text.find('('); open != std::string_view::npos; open = text.find('(', open + 1)) {
    std::size_t first = open;
    while (first > 0 && in_name(text[first - 1])) --first;
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
  HiddenNames(const Tape& tape, const Frames& frames) : tape_(tape), frames_(frames), texts_(tape.bindings.size()) {
    const auto tell = [&](std::int32_t binding, const std::string& source) {
      if (binding >= 0 && texts_[static_cast<std::size_t>(binding)].empty())
        texts_[static_cast<std::size_t>(binding)] = parse_statement(source).value;
    };
    for (const Call& c : tape.calls) tell(c.binding, c.source);
    for (const Scope& s : tape.scopes) tell(s.binding, s.source);
    for (std::size_t i = 0; i < tape.calls.size(); ++i)
      if (tape.calls[i].function >= 0) function_ends_[tape.calls[i].function] = static_cast<std::int32_t>(i);
  }

  /// Values have to come in falling order.
  std::int32_t hold(std::int32_t top, std::size_t line, std::int32_t born, std::int32_t born_scope) {
    std::int32_t child = -1;
    for (std::int32_t s = born_scope; s != top && s >= 0; s = frames_.parent(s)) child = s;
    const Call& call = tape_.calls[static_cast<std::size_t>(born)];
    std::int32_t until = -1;
    if (opaque(top, line)) {
      const std::string_view kind = child < 0
                                        ? std::string_view(call.op)
                                        : std::string_view(tape_.scopes[static_cast<std::size_t>(child)].module_class);
      const auto [at, last] = next_.try_emplace({top, line, kind}, frames_.line(top, line).last);
      until = at->second;
      at->second = frames_.settled(top, born_scope, born);
    }
    if (child < 0 && top >= 0 && call.op.rfind("aten::softmax", 0) == 0)
      until = std::max(until, frames_.end(frames_.parent(top)));
    // The forward of an autograd.Function is a frame of its own.
    if (call.function >= 0) until = std::max(until, function_ends_.at(call.function));
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
  bool opaque(std::int32_t scope, std::size_t line) {
    const auto [at, fresh] = opaque_.try_emplace({scope, line}, false);
    if (fresh) at->second = calls_helper(scope, frames_.line(scope, line));
    return at->second;
  }

  bool calls_helper(std::int32_t scope, const Line& line) const {
    if (line.binding < 0) return false;
    std::set<std::string_view> children;
    std::int64_t own = 0;
    for (std::int32_t i = line.first; i <= line.last; ++i) {
      std::int32_t child = -1;
      for (std::int32_t s = tape_.calls[static_cast<std::size_t>(i)].scope; s != scope && s >= 0; s = frames_.parent(s))
        child = s;
      if (child < 0)
        ++own;
      else
        children.insert(tape_.scopes[static_cast<std::size_t>(child)].path);
    }
    for (const std::string_view callee : called_in(texts_[static_cast<std::size_t>(line.binding)])) {
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
  std::vector<std::string_view> texts_;                 ///< of statements, by binding: what stands right of the `=`
  std::map<std::int32_t, std::int32_t> function_ends_;  ///< the last call of each application
  std::map<std::pair<std::int32_t, std::size_t>, bool> opaque_;
  std::map<std::tuple<std::int32_t, std::size_t, std::string_view>, std::int32_t> next_;
};

bool is_recurrent(std::string_view op) {
  return op == "aten::lstm.input" || op == "aten::gru.input" || op == "aten::rnn_tanh.input" ||
         op == "aten::rnn_relu.input";
}

/// The module `owner` returns what the module `child` in it has made.
bool returned_by_owner(const Tape& tape, std::int32_t owner, std::int32_t child) {
  return fact_of_child("returned_by_owner", tape.scopes[static_cast<std::size_t>(owner)].module_class,
                       tape.scopes[static_cast<std::size_t>(child)].path) != nullptr;
}

struct Life {
  std::int32_t born = -1, last = -1;
  std::int32_t top = -1;  ///< frame that sees the definition and all uses
  bool kept = false;
  bool released = false;  ///< by Call::releases
};

/// By value: until where a name that the file does not show could hold it; -1: none could.
std::vector<std::int32_t> held_by_hidden_names(const Tape& tape, const Frames& frames, const std::vector<Life>& lives) {
  std::vector<std::int32_t> until(lives.size(), -1);
  HiddenNames names(tape, frames);
  for (std::size_t v = lives.size(); v-- > 0;) {
    const Life& l = lives[v];
    if (l.born < 0) continue;
    until[v] =
        names.hold(l.top, frames.line_of(l.top, l.born), l.born, tape.calls[static_cast<std::size_t>(l.born)].scope);
  }
  for (const Call& call : tape.calls)
    if (HiddenNames::joins_named_list(call))
      for_each_value(call, [&](ValueId id) {
        auto& u = until[static_cast<std::size_t>(id.index)];
        if (lives[static_cast<std::size_t>(id.index)].born >= 0) u = std::max(u, frames.end(call.scope));
      });
  return until;
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
  Frames frames(tape);
  std::vector<Life> lives(tape.values.size());
  const auto at_index = [](ValueId id) { return static_cast<std::size_t>(id.index); };
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    auto use = [&](ValueId id) {
      Life& l = lives[at_index(id)];
      if (l.born < 0) return;
      l.top = frames.common(l.top, call.scope);
      l.last = static_cast<std::int32_t>(i);
    };
    for_each_value(call, use);
    // What an nn.LSTM returns besides its output is often not used, but the caller's names hold it.
    const bool recurrent = call.scope >= 0 && is_recurrent(call.op);
    for (ValueId id : call.outputs)
      if (id.valid())
        lives[at_index(id)] = {static_cast<std::int32_t>(i), static_cast<std::int32_t>(i),
                               recurrent ? frames.parent(call.scope) : call.scope, false, false};
  }
  for (const Call& call : tape.calls)
    for (ValueId id : call.releases) lives[at_index(id)].released = true;
  for (ValueId id : tape.outputs)
    if (id.valid()) lives[at_index(id)].kept = true;
  // Some modules return a result of a module inside of them that nothing of the graph reads any more.
  std::int64_t by_class = 0, by_function = 0, by_line = 0;
  for (Life& l : lives) {
    if (l.born < 0 || l.top < 0) continue;
    const Scope& owner = tape.scopes[static_cast<std::size_t>(l.top)];
    if (owner.parent < 0) continue;
    std::int32_t child = tape.calls[static_cast<std::size_t>(l.born)].scope;
    while (child != l.top && frames.parent(child) != l.top) child = frames.parent(child);
    if (child != l.top && returned_by_owner(tape, l.top, child)) {
      l.top = owner.parent;
      ++by_class;
    }
  }
  // Where each use settles depends on the final `top`, so a second walk.
  std::vector<std::int32_t> release(tape.values.size(), -1);
  for (std::size_t v = 0; v < lives.size(); ++v)
    if (lives[v].born >= 0)
      release[v] =
          frames.settled(lives[v].top, tape.calls[static_cast<std::size_t>(lives[v].born)].scope, lives[v].born);
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    auto use = [&](ValueId id) {
      const Life& l = lives[at_index(id)];
      if (l.born < 0 || l.born == static_cast<std::int32_t>(i)) return;
      release[at_index(id)] =
          std::max(release[at_index(id)], frames.settled(l.top, call.scope, static_cast<std::int32_t>(i)));
    };
    for_each_value(call, use);
  }
  const std::vector<std::int32_t> hidden =
      tape.reading.names == NameReading::held ? held_by_hidden_names(tape, frames, lives) : std::vector<std::int32_t>();
  // Values are numbered in the order of the calls that make them, so the results of a line come in the order in which
  // it computes them: the first goes to its first target.
  std::map<std::pair<std::int32_t, std::size_t>, std::size_t> results;
  for (std::size_t v = 0; v < lives.size(); ++v) {
    const Life& l = lives[v];
    if (l.born < 0) continue;
    std::int32_t until = release[v];
    const std::size_t line = frames.line_of(l.top, l.born);
    // A value that its line made and used up was a temporary; the others got the line's names.
    const bool outlives = l.kept || until > frames.line(l.top, line).last;
    const bool result = outlives || frames.settled(l.top, tape.calls[static_cast<std::size_t>(l.born)].scope, l.born) ==
                                        frames.line(l.top, line).last;
    const std::string& op = tape.calls[static_cast<std::size_t>(l.born)].op;
    const auto& held = frames.binding(frames.line(l.top, line)).held;
    if (std::find(held.begin(), held.end(), op) != held.end()) {
      bool first = true;
      for (std::int32_t i = frames.line(l.top, line).first; i < l.born; ++i)
        first = first && tape.calls[static_cast<std::size_t>(i)].op != op;
      if (first) until = std::max(until, frames.line(l.top, line).last), ++by_function;
    }
    const std::int32_t without_names = until;
    if (result) until = std::max(until, frames.rebound(l.top, line, results[{l.top, line}]++));
    by_line += until > without_names;
    if (tape.reading.names == NameReading::freed) until = release[v];
    if (!hidden.empty()) until = std::max(until, hidden[v]);
    if (!l.kept && !l.released)
      tape.calls[static_cast<std::size_t>(until)].last_uses.push_back({static_cast<std::int32_t>(v)});
  }
  for (Call& call : tape.calls) call.last_uses.insert(call.last_uses.end(), call.releases.begin(), call.releases.end());
  // The pass runs again after every change of the tape: only its last word counts.
  std::erase_if(tape.notes, [](const Fact& f) { return f.about == About::lifetime; });
  const auto tell = [&](std::int64_t count, Evidence evidence, const char* text) {
    if (count > 0) tape.notes.push_back({{}, text, evidence, About::lifetime, {}, {}, -1, count, {}});
  };
  tell(by_line, Evidence::told_by_source_line, "values that a name of the forward pass keeps beyond their last use");
  tell(by_function, Evidence::told_by_name, "values that a name inside of a known function keeps");
  tell(by_class, Evidence::told_by_name, "results of an encoder that the model's class returns");
}

}  // namespace memplan
