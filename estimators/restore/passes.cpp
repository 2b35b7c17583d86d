#include "estimators/restore/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"
#include "estimators/tape/uses.h"

namespace memplan {

bool matches_glob(std::string_view text, std::string_view glob) {
  std::size_t t = 0, g = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (g < glob.size() && (glob[g] == '?' || (glob[g] != '*' && glob[g] == text[t]))) {
      ++t, ++g;
    } else if (g < glob.size() && glob[g] == '*') {
      star = g++;
      mark = t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

void freeze(Tape& tape, const std::vector<std::string>& globs) {
  for (const std::string& glob : globs) {
    bool any = false;
    for (ValueId id : tape.parameters) {
      TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
      if (!matches_glob(v.name, glob)) continue;
      v.requires_grad = false;
      any = true;
    }
    if (!any) {
      const std::string example =
          tape.parameters.empty() ? "" : tape.values[static_cast<std::size_t>(tape.parameters.front().index)].name;
      fail(ErrorKind::usage, fmt::format("no parameter matches '{}'", glob), setting(Field::frozen, glob),
           example.empty() ? "the model has no parameters"
                           : fmt::format("parameters are named like '{}'; '*' matches any run of characters", example));
    }
  }
}

void freeze_listed(Tape& tape, std::string_view names) {
  std::set<std::string_view> listed;
  while (!names.empty()) {
    const std::size_t space = names.find(' ');
    listed.insert(names.substr(0, space));
    names = space == std::string_view::npos ? std::string_view{} : names.substr(space + 1);
  }
  for (ValueId id : tape.parameters) {
    TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    if (listed.count(v.name)) v.requires_grad = false;
  }
}

void remove_unused_calls(Tape& tape, const std::function<bool(const Call&, std::size_t)>& may_go) {
  std::vector<int> uses(tape.values.size(), 0);
  auto count = [&](const Call& call, int n) {
    for_each_value(call, [&](ValueId id) {
      if (id.valid()) uses[static_cast<std::size_t>(id.index)] += n;
    });
  };
  for (const Call& call : tape.calls) count(call, 1);
  for (ValueId id : tape.outputs)
    if (id.valid()) ++uses[static_cast<std::size_t>(id.index)];
  std::vector<bool> dead(tape.calls.size(), false);
  for (std::size_t i = tape.calls.size(); i-- > 0;) {
    const Call& call = tape.calls[i];
    const bool used = std::any_of(call.outputs.begin(), call.outputs.end(), [&](ValueId id) {
      return id.valid() && uses[static_cast<std::size_t>(id.index)] > 0;
    });
    if (used || !may_go(call, i)) continue;
    dead[i] = true;
    count(call, -1);
  }
  std::size_t at = 0;
  std::erase_if(tape.calls, [&](const Call&) { return dead[at++]; });
}

void remove_dead_calls(Tape& tape) {
  auto counts_bytes = [](const Call& call) {
    if (call.op.starts_with("aten::sym_") || call.op.starts_with("_operator.")) return false;
    if (call.known_shapes.empty()) return true;
    return std::any_of(call.known_shapes.begin(), call.known_shapes.end(),
                       [](const auto& s) { return is_floating(s.first); });
  };
  remove_unused_calls(tape, [&](const Call& call, std::size_t) {
    const std::string_view base = std::string_view(call.op).substr(0, call.op.find('.'));
    return !call.outputs.empty() && base.back() != '_' && !counts_bytes(call);
  });
}

}  // namespace memplan
