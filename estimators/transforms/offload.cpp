#include "estimators/transforms/offload.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

std::string_view owner_of(std::string_view parameter) {
  const auto dot = parameter.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : parameter.substr(0, dot);
}

/// One call of a module with parameters of its own.
struct Visit {
  std::size_t first = 0, last = 0;
  std::map<std::size_t, ValueId> loaded;  ///< parameter -> its visitor, in the order of registration
};

using Visits = std::map<std::int32_t, Visit>;

/// The scopes around a call, from its own outwards.
template <class Do>
void for_each_scope(const Tape& tape, const Call& call, const Do& handle) {
  for (std::int32_t s = call.scope; s >= 0; s = tape.scopes[static_cast<std::size_t>(s)].parent) handle(s);
}

/// Which module's forward stands around each use of a parameter.
Visits visits_of(const Tape& tape) {
  std::set<std::int32_t> parameters;
  for (ValueId id : tape.parameters) parameters.insert(id.index);
  Visits visits;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    for_each_scope(tape, tape.calls[i], [&](std::int32_t s) {
      if (const auto visit = visits.find(s); visit != visits.end()) visit->second.last = i;
    });
    for_each_value(tape.calls[i], [&](ValueId id) {
      if (!id.valid() || !parameters.count(id.index)) return;
      const std::string& name = tape.values[static_cast<std::size_t>(id.index)].name;
      std::int32_t s = tape.calls[i].scope;
      while (s >= 0 && tape.scopes[static_cast<std::size_t>(s)].path != owner_of(name))
        s = tape.scopes[static_cast<std::size_t>(s)].parent;
      if (s < 0)
        fail(ErrorKind::usage, fmt::format("'{}' is used where its module does not run", name),
             setting(Field::offload, "parameters"),
             "accelerate.cpu_offload cannot offload such weights; leave " + setting(Field::offload, "parameters") +
                 " out");
      Visit& v = visits[s];
      v.loaded[static_cast<std::size_t>(id.index)] = {};
      v.last = i;
    });
  }
  for (std::size_t i = tape.calls.size(); i-- > 0;)
    for_each_scope(tape, tape.calls[i], [&](std::int32_t s) {
      if (const auto visit = visits.find(s); visit != visits.end()) visit->second.first = i;
    });
  return visits;
}

/// The calls that bring a module's parameters to the device, in its scope; `visit` learns what they make.
void load(Tape& tape, Visit& visit, std::int32_t scope, std::vector<Call>& calls) {
  for (auto& [parameter, visitor] : visit.loaded) {
    TapeValue value;
    value.name = tape.values[parameter].name;
    visitor = tape.add_value(std::move(value));
    Call call;
    call.op = "accelerate::set_module_tensor_to_device";
    call.args = {{ValueId{static_cast<std::int32_t>(parameter)}}};
    call.outputs = {visitor};
    call.scope = scope;
    calls.push_back(std::move(call));
  }
}

}  // namespace

void offload_parameters(Tape& tape) {
  Visits visits = visits_of(tape);
  std::vector<Call> calls;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    std::map<std::size_t, ValueId> here;
    std::vector<std::int32_t> chain;  // outermost first
    for_each_scope(tape, tape.calls[i], [&](std::int32_t s) {
      if (visits.count(s)) chain.insert(chain.begin(), s);
    });
    Call call = std::move(tape.calls[i]);
    for (std::int32_t s : chain) {
      Visit& v = visits[s];
      if (v.first == i) load(tape, v, s, calls);
      here.insert(v.loaded.begin(), v.loaded.end());
      if (v.last != i) continue;
      for (const auto& [parameter, visitor] : v.loaded) {
        call.releases.push_back(visitor);
        call.last_uses.push_back(visitor);
      }
    }
    replace_values(call, [&](ValueId id) {
      const auto it = id.valid() ? here.find(static_cast<std::size_t>(id.index)) : here.end();
      return Arg{it == here.end() ? id : it->second};
    });
    calls.push_back(std::move(call));
  }
  tape.calls = std::move(calls);
  for (ValueId id : tape.parameters) tape.values[static_cast<std::size_t>(id.index)].on_host = true;
}

}  // namespace memplan
