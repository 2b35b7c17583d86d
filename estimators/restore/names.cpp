#include "estimators/restore/names.h"

#include <cctype>
#include <string_view>
#include <unordered_map>

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
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; };
  std::vector<std::string> out;
  for (auto at = line.find(pop); at != std::string_view::npos; at = line.find(pop, at + 1)) {
    std::size_t first = at;
    while (first > 0 && in_name(line[first - 1])) --first;
    out.emplace_back(line.substr(first, at - first));
  }
  return out;
}

Binding binding_of(std::string_view source) {
  const Statement s = parse_statement(source);
  Binding b;
  for (const auto& names : s.targets) b.targets.emplace_back(names.begin(), names.end());
  b.calls_local = is_call_of_local(s.value);
  b.makes_list = !s.value.empty() && s.value.front() == '[';
  b.pops = popped_lists(source);
  // Names inside of plain functions are not in the file.
  for (const LibraryFact& f : library_facts("holds_result"))
    if (source.find(f.subject + "(") != std::string_view::npos) b.held.push_back(f.detail);
  return b;
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
}

}  // namespace memplan
