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

}  // namespace

void offload_parameters(Tape& tape) {
  std::set<std::int32_t> parameters;
  for (ValueId id : tape.parameters) parameters.insert(id.index);
  // Which module's forward stands around each use of a parameter.
  std::map<std::int32_t, Visit> visits;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    for (std::int32_t s = tape.calls[i].scope; s >= 0; s = tape.scopes[static_cast<std::size_t>(s)].parent)
      if (const auto visit = visits.find(s); visit != visits.end()) visit->second.last = i;
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
    for (std::int32_t s = tape.calls[i].scope; s >= 0; s = tape.scopes[static_cast<std::size_t>(s)].parent)
      if (const auto visit = visits.find(s); visit != visits.end()) visit->second.first = i;

  std::vector<Call> calls;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    std::map<std::size_t, ValueId> here;
    std::vector<std::int32_t> chain;  // outermost first
    for (std::int32_t s = tape.calls[i].scope; s >= 0; s = tape.scopes[static_cast<std::size_t>(s)].parent)
      if (visits.count(s)) chain.insert(chain.begin(), s);
    Call call = std::move(tape.calls[i]);
    for (std::int32_t s : chain) {
      Visit& v = visits[s];
      if (v.first == i)
        for (auto& [parameter, visitor] : v.loaded) {
          TapeValue value;
          value.name = tape.values[parameter].name;
          visitor = tape.add_value(std::move(value));
          Call load;
          load.op = "accelerate::set_module_tensor_to_device";
          load.args = {{ValueId{static_cast<std::int32_t>(parameter)}}};
          load.outputs = {visitor};
          load.scope = s;
          calls.push_back(std::move(load));
        }
      here.insert(v.loaded.begin(), v.loaded.end());
      if (v.last == i)
        for (const auto& [parameter, visitor] : v.loaded) call.last_uses.push_back(visitor);
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
