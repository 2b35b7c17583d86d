#include "estimators/transforms/blocks.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/base/glob.h"
#include "estimators/facts/libraries.h"

namespace memplan {

namespace {

const Scope& scope(const Tape& tape, std::int32_t s) { return tape.scopes[static_cast<std::size_t>(s)]; }

}  // namespace

std::string_view without_number(std::string_view path) {
  while (!path.empty() && path.back() >= '0' && path.back() <= '9') path.remove_suffix(1);
  return path;
}

ScopeSpans::ScopeSpans(const Tape& tape) : first(tape.scopes.size(), -1), last(tape.scopes.size(), -1) {
  for (std::size_t i = 0; i < tape.calls.size(); ++i)
    for (std::int32_t s = tape.calls[i].scope; s >= 0; s = scope(tape, s).parent) {
      auto& begin = first[static_cast<std::size_t>(s)];
      if (begin < 0) begin = static_cast<std::int32_t>(i);
      last[static_cast<std::size_t>(s)] = static_cast<std::int32_t>(i);
    }
}

std::set<std::int32_t> repeated_modules(const Tape& tape) {
  std::set<std::int32_t> parents;
  for (const Scope& s : tape.scopes) parents.insert(s.parent);
  std::map<std::pair<std::string_view, std::string_view>, std::set<std::string_view>> members;
  for (std::size_t i = 0; i < tape.scopes.size(); ++i) {
    const Scope& s = tape.scopes[i];
    if (fact_of_class("container", s.module_class)) continue;  // what it contains are the blocks
    if (without_number(s.path).size() == s.path.size() || !parents.count(static_cast<std::int32_t>(i))) continue;
    members[{without_number(s.path), s.module_class}].insert(s.path);
  }
  std::set<std::int32_t> out;
  for (std::size_t i = 0; i < tape.scopes.size(); ++i) {
    const Scope& s = tape.scopes[i];
    const auto it = members.find({without_number(s.path), s.module_class});
    if (it != members.end() && it->second.size() > 1 && it->second.count(s.path))
      out.insert(static_cast<std::int32_t>(i));
  }
  return out;
}

std::set<std::int32_t> matching_modules(const Tape& tape, const std::string& glob) {
  std::set<std::int32_t> out;
  for (std::size_t i = 0; i < tape.scopes.size(); ++i)
    if (!tape.scopes[i].path.empty() && matches_glob(tape.scopes[i].path, glob))
      out.insert(static_cast<std::int32_t>(i));
  return out;
}

std::set<std::int32_t> outermost(const Tape& tape, const std::set<std::int32_t>& scopes) {
  std::set<std::int32_t> out;
  for (std::int32_t s : scopes) {
    bool inside = false;
    for (std::int32_t p = scope(tape, s).parent; p >= 0; p = scope(tape, p).parent) inside = inside || scopes.count(p);
    if (!inside) out.insert(s);
  }
  return out;
}

void no_such_module(const Tape& tape, const std::string& glob, Field field) {
  const bool repeated = glob == "blocks" || glob.starts_with("every:") || glob.starts_with("groups:");
  std::string example;
  for (const Scope& s : tape.scopes)
    if (example.empty() && !s.path.empty()) example = s.path;
  fail(ErrorKind::usage, repeated ? "the model has no repeated blocks" : fmt::format("no module matches '{}'", glob),
       setting(field, glob),
       example.empty() ? "the file does not say which modules its nodes came from"
                       : fmt::format("modules have paths such as '{}'; '*' matches any run of characters", example));
}

std::set<std::int32_t> named_modules(const Tape& tape, const std::vector<std::string>& globs, Field field) {
  std::set<std::int32_t> wanted;
  for (const std::string& glob : globs) {
    const auto found = glob == "blocks" ? repeated_modules(tape) : matching_modules(tape, glob);
    if (found.empty()) no_such_module(tape, glob, field);
    wanted.insert(found.begin(), found.end());
  }
  return wanted;
}

}  // namespace memplan
