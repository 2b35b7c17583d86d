#include "estimators/restore/names.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "estimators/facts/libraries.h"
#include "estimators/restore/statement.h"

namespace memplan {

namespace {

/// nn.Sequential's "module(input)": one call, of a local name.
bool is_call_of_local(std::string_view value) {
  const auto open = value.find('(');
  if (open == std::string_view::npos || value.find('(', open + 1) != std::string_view::npos || value.back() != ')')
    return false;
  return value.substr(0, open).find('.') == std::string_view::npos;
}

/// "skips" of "x = up(x, skips.pop())".
std::vector<std::string> popped_lists(std::string_view line) {
  constexpr std::string_view pop = ".pop(";
  std::vector<std::string> out;
  for (auto at = line.find(pop); at != std::string_view::npos; at = line.find(pop, at + 1)) {
    std::size_t first = at;
    while (first > 0 && in_path(line[first - 1])) --first;
    out.emplace_back(line.substr(first, at - first));
  }
  return out;
}

/// "outs" of "outs.append(self.head(x))" and "X" of "X[0, 1] = self.node(x)": a local name of a list or a dict. Slices
/// and `...` are places of a tensor.
std::string_view collecting_name(std::string_view text) {
  constexpr std::string_view append = ".append(";
  const std::size_t end = leading_name(text).size();
  if (end == 0 || std::isdigit(static_cast<unsigned char>(text.front())) != 0) return {};
  const std::string_view name = text.substr(0, end), rest = text.substr(end);
  if (rest.starts_with(append)) {
    const bool all = closing_bracket(text, end + append.size() - 1) == text.size() - 1;
    return all ? name : std::string_view{};
  }
  const auto close = rest.find(']');
  if (!rest.starts_with('[') || close == rest.npos || !rest.substr(close + 1).starts_with(" = ")) return {};
  const std::string_view key = rest.substr(1, close - 1);
  const bool place = key.find_first_of(":[") != key.npos || key.find("...") != key.npos || has_name(key, "None");
  return place ? std::string_view{} : name;
}

/// "\"full_attention\"" of `"full_attention": create_causal_mask(**kwargs),`: an entry of a dict that is written over
/// several lines. Empty for all other lines.
std::string_view dict_key(std::string_view text) {
  if (!is_dict_key(text)) return {};
  const auto end = text.find(text.front(), 1);
  return end != text.npos && text.substr(end + 1).starts_with(':') ? text.substr(0, end + 1) : std::string_view{};
}

Binding binding_of(std::string_view source) {
  const Statement s = parse_statement(source);
  Binding b;
  for (const auto& names : s.targets) b.targets.emplace_back(names.begin(), names.end());
  // The dict has the entry as a name would have it, and nothing says which name has the dict: until the frame returns.
  if (const auto key = s.targets.empty() ? dict_key(s.value) : std::string_view{}; !key.empty())
    b.targets.push_back({std::string(key)});
  b.calls_local = is_call_of_local(s.value);
  b.makes_list = !s.value.empty() && s.value.front() == '[';
  b.pops = popped_lists(source);
  if (const auto space = source.find(' '); space != source.npos) b.collects = collecting_name(source.substr(space + 1));
  // Names inside of plain functions are not in the file.
  for (const LibraryFact& f : library_facts("holds_result"))
    if (source.find(f.subject + "(") != std::string_view::npos) b.held.push_back(f.detail);
  return b;
}

/// A statement over several lines. "mask = make_mask(" and ").to(bool)": what its last line gives gets the names of the
/// first, whose own result is on its way there. "x = self.a(x) + \\" and "self.b(x)": the sum comes back to the first
/// line, and what that had made before is an operand without a name.
class JoinedStatements {
 public:
  explicit JoinedStatements(const Tape& tape) : tape_(tape) {}

  /// Calls and modules of a frame, in their order.
  void visit(std::int32_t frame, const std::string& source, std::int32_t& binding) {
    const PlacedLine line = placed_line(source);
    if (line.number == 0) return;
    forget_operands(sums_[frame], line, binding);
    PlacedLine& first = begun_[frame].first;
    std::int32_t& names = begun_[frame].second;
    const bool last = line.text.starts_with(')') && names >= 0 && line.file == first.file && line.number > first.number;
    if (last && binding >= 0 && tape_.bindings[static_cast<std::size_t>(binding)].targets.empty())
      binding = names;
    else if (line.text != first.text || line.number != first.number)
      first = line, names = line.text.ends_with('(') ? binding : -1;
  }

 private:
  /// What a line that goes on after an operator has made so far.
  struct Sum {
    PlacedLine first;
    std::vector<std::int32_t*> made;  ///< bindings of calls and modules
    bool went_on = false;             ///< lines below it have run since
  };

  void forget_operands(Sum& sum, const PlacedLine& line, std::int32_t& binding) const {
    const bool same = line.number == sum.first.number && line.text == sum.first.text && line.file == sum.first.file;
    const bool names = binding >= 0 && !tape_.bindings[static_cast<std::size_t>(binding)].targets.empty();
    if (!same && !names && !sum.made.empty() && line.file == sum.first.file && line.number > sum.first.number) {
      sum.went_on = true;
      return;
    }
    if (!same) sum = {line, {}, false};
    if (sum.went_on)
      for (std::int32_t* operand : std::exchange(sum.made, {})) *operand = -1;
    sum.went_on = false;
    if (names && line.text.ends_with('\\')) sum.made.push_back(&binding);
  }

  const Tape& tape_;
  std::map<std::int32_t, Sum> sums_;                                   ///< by frame
  std::map<std::int32_t, std::pair<PlacedLine, std::int32_t>> begun_;  ///< by frame: a line that ends open, its binding
};

void join_statements(Tape& tape) {
  JoinedStatements joined(tape);
  std::vector<bool> entered(tape.scopes.size(), false);
  for (Call& call : tape.calls) {
    std::vector<std::int32_t> modules;  // that this call is the first of
    for (std::int32_t s = call.scope; s >= 0 && !entered[static_cast<std::size_t>(s)];
         s = tape.scopes[static_cast<std::size_t>(s)].parent) {
      entered[static_cast<std::size_t>(s)] = true;
      modules.push_back(s);
    }
    for (auto s = modules.rbegin(); s != modules.rend(); ++s) {
      Scope& module = tape.scopes[static_cast<std::size_t>(*s)];
      joined.visit(module.parent, module.source, module.binding);
    }
    joined.visit(call.scope, call.source, call.binding);
  }
}

}  // namespace

void bind_names(Tape& tape) {
  std::unordered_map<std::string_view, std::int32_t> known;
  const auto bind = [&](auto& user) {
    if (user.binding >= 0 || user.source.empty()) return;
    const auto [it, added] = known.emplace(user.source, static_cast<std::int32_t>(tape.bindings.size()));
    if (added) tape.bindings.push_back(binding_of(user.source));
    user.binding = it->second;
  };
  for (Call& call : tape.calls) bind(call);
  for (Scope& scope : tape.scopes) bind(scope);
  join_statements(tape);
}

std::vector<Statement> statements(const Tape& tape) {
  std::vector<Statement> all(tape.bindings.size());
  const auto tell = [&](std::int32_t binding, const std::string& source) {
    if (binding >= 0 && all[static_cast<std::size_t>(binding)].value.empty())
      all[static_cast<std::size_t>(binding)] = parse_statement(source);
  };
  for (const Call& c : tape.calls) tell(c.binding, c.source);
  for (const Scope& s : tape.scopes) tell(s.binding, s.source);
  return all;
}

}  // namespace memplan
