#include <algorithm>
#include <map>
#include <string_view>

#include "estimators/facts/libraries.h"
#include "estimators/restore/passes.h"

namespace memplan {

/// An ONNX file does not say which parameters are frozen. Where the model has adapters and the file freezes nothing,
/// their library's rule holds.
void freeze_beside_adapters(Tape& tape) {
  const auto value = [&](ValueId id) -> TapeValue& { return tape.values[static_cast<std::size_t>(id.index)]; };
  const bool adapters = std::ranges::any_of(
      tape.scopes, [](const Scope& s) { return fact_of_class("trained_beside_adapters", s.module_class) != nullptr; });
  if (!adapters || std::ranges::any_of(tape.parameters, [&](ValueId id) { return !value(id).requires_grad; })) return;
  const auto& trained = library_facts("trained_beside_adapters");
  std::int64_t frozen = 0;
  for (ValueId id : tape.parameters) {
    const std::string_view name = value(id).name;
    if (std::ranges::any_of(trained, [&](const LibraryFact& f) { return name.find(f.detail) != name.npos; })) continue;
    value(id).requires_grad = false;
    ++frozen;
  }
  tape.recovered.push_back({"frozen parameters", "adapters, beside which all else is frozen", frozen,
                            Evidence::told_by_name, About::weights});
}

/// Constructors of some classes freeze what they make: positions that are computed, biases that an optimizer does not
/// move.
void freeze_by_class(Tape& tape) {
  std::map<std::string_view, std::string_view> classes;  // by path
  for (const Scope& s : tape.scopes) classes.emplace(s.path, s.module_class);
  std::int64_t frozen = 0;
  for (ValueId id : tape.parameters) {
    TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    const std::string_view name = v.name;
    const auto root = classes.find("");
    bool of_class = root != classes.end() && fact_of_child("frozen", root->second, name);
    for (std::size_t dot = name.rfind('.'); !of_class && dot != name.npos && dot > 0; dot = name.rfind('.', dot - 1)) {
      const auto owner = classes.find(name.substr(0, dot));
      of_class = owner != classes.end() && fact_of_child("frozen", owner->second, name.substr(dot + 1));
    }
    if (!of_class || !v.requires_grad) continue;
    v.requires_grad = false;
    ++frozen;
  }
  if (frozen > 0)
    tape.recovered.push_back({"frozen parameters", "classes whose constructors freeze them", frozen,
                              Evidence::told_by_name, About::weights});
}

}  // namespace memplan
