#include <algorithm>
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

}  // namespace memplan
