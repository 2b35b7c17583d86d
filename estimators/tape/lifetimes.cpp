#include "estimators/tape/lifetimes.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

namespace memplan {

namespace {

constexpr std::int32_t root = -1;  ///< the frame around all modules: the program's call of the model

/// The names that a line of Python assigns: "a, b = f(x)" -> a, b; "x += y" -> x; "return f(x)" -> none.
std::vector<std::string_view> assigned_names(std::string_view line) {
  // "torchvision/models/resnet.py:92 out = self.conv1(x)": the code begins after the first blank.
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return {};
  const std::string_view code = line.substr(blank + 1);
  std::vector<std::string_view> names;
  std::size_t at = 0;
  const auto spaces = [&] {
    while (at < code.size() && (code[at] == ' ' || code[at] == '(')) ++at;
  };
  while (at < code.size()) {
    spaces();
    const std::size_t begin = at;
    while (at < code.size() && (std::isalnum(static_cast<unsigned char>(code[at])) || code[at] == '_')) ++at;
    if (at == begin) return {};
    names.push_back(code.substr(begin, at - begin));
    while (at < code.size() && (code[at] == ' ' || code[at] == ')')) ++at;
    if (at < code.size() && code[at] == ',') {
      ++at;
      continue;
    }
    break;
  }
  if (at < code.size() && code[at] == ':') {  // x: Tensor = …
    at = code.find('=', at);
    if (at == std::string_view::npos) return {};
  }
  // An assignment, also an augmented one ("+="), but no comparison.
  const std::size_t operators = at;
  while (at < code.size() && std::string_view("+-*/%@&|^<>").find(code[at]) != std::string_view::npos && at - operators < 3) ++at;
  if (at >= code.size() || code[at] != '=' || (at + 1 < code.size() && code[at + 1] == '=')) return {};
  return names;
}

/// One line of one frame: the calls and modules that it ran, in a row.
struct Statement {
  std::string_view source;
  std::int32_t last_call = 0;  ///< the last call that ran for it, at any depth
};

struct Frame {
  std::int32_t parent = root;
  int depth = 0;
  std::int32_t first_call = -1, last_call = -1;
  std::vector<Statement> statements;
  std::map<std::string_view, std::vector<std::int32_t>> bindings;  ///< name -> its assigning statements, in order
};

class Lifetimes {
 public:
  explicit Lifetimes(Tape& tape) : tape_(tape), frames_(tape.scopes.size() + 1) {}

  void mark() {
    make_frames();
    find_statements();
    std::vector<std::int32_t> last_use(tape_.values.size(), -1), born(tape_.values.size(), -1), position(tape_.values.size(), 0);
    std::vector<std::vector<std::int32_t>> uses(tape_.values.size());
    for (std::size_t i = 0; i < tape_.calls.size(); ++i) {
      const Call& call = tape_.calls[i];
      visit(call, [&](ValueId id) {
        if (uses[at(id)].empty() || uses[at(id)].back() != static_cast<std::int32_t>(i)) uses[at(id)].push_back(static_cast<std::int32_t>(i));
      });
      for (std::size_t o = 0; o < call.outputs.size(); ++o)
        if (call.outputs[o].valid()) {
          born[at(call.outputs[o])] = static_cast<std::int32_t>(i);
          position[at(call.outputs[o])] = static_cast<std::int32_t>(o);
        }
    }
    std::vector<bool> kept(tape_.values.size(), false);
    for (ValueId id : tape_.outputs)
      if (id.valid()) kept[at(id)] = true;
    for (Call& call : tape_.calls) call.last_uses.clear();
    for (std::size_t v = 0; v < tape_.values.size(); ++v) {
      if (born[v] < 0 || kept[v] || tape_.values[v].kind != ValueKind::computed) continue;
      const std::int32_t end = end_of(born[v], static_cast<std::size_t>(position[v]), uses[v]);
      tape_.calls[static_cast<std::size_t>(end)].last_uses.push_back({static_cast<std::int32_t>(v)});
    }
  }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id.index); }
  Frame& frame(std::int32_t scope) { return frames_[static_cast<std::size_t>(scope + 1)]; }

  template <class F>
  static void visit_arg(const Arg& arg, F&& f) {
    if (auto* id = std::get_if<ValueId>(&arg.value)) {
      if (id->valid()) f(*id);
    } else if (auto* list = std::get_if<Arg::List>(&arg.value)) {
      for (const Arg& a : *list) visit_arg(a, f);
    }
  }
  template <class F>
  static void visit(const Call& call, F&& f) {
    for (const Arg& a : call.args) visit_arg(a, f);
    for (const auto& [name, a] : call.kwargs) visit_arg(a, f);
  }

  void make_frames() {
    for (std::size_t s = 0; s < tape_.scopes.size(); ++s) {
      Frame& f = frame(static_cast<std::int32_t>(s));
      f.parent = tape_.scopes[s].parent;
      f.depth = frame(f.parent).depth + 1;
    }
    for (std::size_t i = 0; i < tape_.calls.size(); ++i)
      for (std::int32_t s = tape_.calls[i].scope;; s = frame(s).parent) {
        Frame& f = frame(s);
        if (f.first_call < 0) f.first_call = static_cast<std::int32_t>(i);
        f.last_call = static_cast<std::int32_t>(i);
        if (s == root) break;
      }
  }

  /// The child of `ancestor` in which `scope` lies, or `scope` itself when it is the ancestor.
  std::int32_t child_of(std::int32_t ancestor, std::int32_t scope) {
    if (scope == ancestor) return scope;
    while (frame(scope).parent != ancestor) scope = frame(scope).parent;
    return scope;
  }

  std::int32_t common(std::int32_t a, std::int32_t b) {
    while (a != b) {
      if (frame(a).depth >= frame(b).depth) a = frame(a).parent;
      else b = frame(b).parent;
    }
    return a;
  }

  /// The line of frame `owner` that call `i` ran for.
  std::string_view line_in(std::int32_t owner, std::int32_t i) {
    const Call& call = tape_.calls[static_cast<std::size_t>(i)];
    if (call.scope == owner) return call.source;
    return tape_.scopes[static_cast<std::size_t>(child_of(owner, call.scope))].source;
  }

  /// Cuts every frame into its statements. A call belongs to one statement of each frame around it.
  void find_statements() {
    for (std::size_t i = 0; i < tape_.calls.size(); ++i) {
      std::int32_t inner = tape_.calls[i].scope;
      std::string_view source = tape_.calls[i].source;
      for (std::int32_t s = inner;; s = frame(s).parent) {
        Frame& f = frame(s);
        if (f.statements.empty() || f.statements.back().source != source || source.empty()) {
          f.statements.push_back({source, static_cast<std::int32_t>(i)});
          for (std::string_view name : assigned_names(source)) f.bindings[name].push_back(static_cast<std::int32_t>(f.statements.size() - 1));
        } else {
          f.statements.back().last_call = static_cast<std::int32_t>(i);
        }
        if (s == root) break;
        source = tape_.scopes[static_cast<std::size_t>(s)].source;
      }
    }
  }

  std::int32_t statement_of(const Frame& f, std::int32_t call) {
    const auto it = std::lower_bound(f.statements.begin(), f.statements.end(), call, [](const Statement& s, std::int32_t c) { return s.last_call < c; });
    return static_cast<std::int32_t>(it - f.statements.begin());
  }

  /// The call after which the value is gone.
  std::int32_t end_of(std::int32_t born, std::size_t position, const std::vector<std::int32_t>& uses) {
    const std::int32_t made_in = tape_.calls[static_cast<std::size_t>(born)].scope;
    // The frame that holds the value in the end: the innermost one around its making and all of its uses.
    std::int32_t owner = made_in;
    for (std::int32_t u : uses) owner = common(owner, tape_.calls[static_cast<std::size_t>(u)].scope);
    std::int32_t end = born;
    for (std::int32_t u : uses) {
      const std::int32_t user = child_of(owner, tape_.calls[static_cast<std::size_t>(u)].scope);
      // A module that was called with it holds it until it returns.
      end = std::max(end, user == owner || user == child_of(owner, made_in) ? u : frame(user).last_call);
    }
    if (owner == root) return end;
    const Frame& f = frame(owner);
    const std::int32_t index = statement_of(f, born);
    const Statement& statement = f.statements[static_cast<std::size_t>(index)];
    const std::vector<std::string_view> names = assigned_names(statement.source);
    if (names.empty() || !is_result(owner, born, statement)) return end;
    const std::size_t outputs = tape_.calls[static_cast<std::size_t>(born)].outputs.size();
    const std::string_view name = made_in == owner && outputs == names.size() ? names[position] : names.front();
    const auto& assigning = f.bindings.at(name);
    const auto next = std::upper_bound(assigning.begin(), assigning.end(), index);
    const std::int32_t bound_until = next == assigning.end() ? f.last_call : f.statements[static_cast<std::size_t>(*next)].last_call;
    return std::max(end, bound_until);
  }

  /// Whether the value is what the statement assigns, and not something that a later part of the line consumed.
  bool is_result(std::int32_t owner, std::int32_t born, const Statement& statement) {
    const std::int32_t made_in = child_of(owner, tape_.calls[static_cast<std::size_t>(born)].scope);
    return made_in == owner ? born == statement.last_call : frame(made_in).last_call == statement.last_call;
  }

  Tape& tape_;
  std::vector<Frame> frames_;  ///< [0] is the root, the others are scopes by index + 1
};

}  // namespace

void mark_last_uses(Tape& tape) { Lifetimes(tape).mark(); }

}  // namespace memplan
