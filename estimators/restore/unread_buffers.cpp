#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "estimators/base/glob.h"
#include "estimators/facts/libraries.h"
#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// The buffer that a fact tells of, by another tensor of the module: "like inv_freq", or "rows
/// position_embeddings.weight", a number for each row. None where the module has no such tensor.
std::optional<TapeValue> buffer_of(const Tape& tape, const Scope& module, const LibraryFact& fact) {
  const auto space = fact.detail.find(' ');
  const TapeValue* other = stored_tensor(tape, module.path + "." + fact.detail.substr(space + 1));
  if (!other || other->sizes.empty()) return std::nullopt;
  TapeValue v;
  v.name = module.path + "." + fact.child;
  v.kind = ValueKind::buffer;
  const bool like = fact.detail.starts_with("like ");
  v.dtype = like ? other->dtype : DType::int64;
  v.sizes = like ? other->sizes : std::vector<std::int64_t>{1, other->sizes.front()};
  return v;
}

/// Two numbers for each row of the largest table: what modules register beside tables, and no op reads.
Bytes bytes_beside_tables(const Tape& tape) {
  std::int64_t rows = 0;
  for (const ValueId id : tape.parameters)
    if (const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)]; v.sizes.size() == 2)
      rows = std::max(rows, v.sizes.front());
  return bytes_of(DType::int64, std::vector<std::int64_t>{2, rows});
}

}  // namespace

void add_unread_buffers(Tape& tape) {
  if (!tape.exported.strict) return;
  std::set<std::string> seen;
  std::int64_t count = 0;
  for (const Scope& module : tape.scopes) {
    if (module.path.empty() || !seen.insert(module.path).second) continue;
    for (const LibraryFact& fact : library_facts("registers")) {
      if (!matches_glob(module.module_class, fact.subject) || stored_tensor(tape, module.path + "." + fact.child))
        continue;
      if (auto buffer = buffer_of(tape, module, fact))
        tape.buffers.push_back(tape.add_value(std::move(*buffer))), ++count;
    }
  }
  if (count > 0)
    tape.recovered.push_back(
        {"buffers that no op reads", "classes that register them", count, Evidence::told_by_name, About::weights});
  note(tape.notes, {"MP004",
                    "the file was exported in strict mode (torch.export.export(…, strict=True)), which leaves out "
                    "buffers, and in ONNX files parameters, that no op reads; if the model has any, their bytes are "
                    "missing here",
                    Evidence::assumed,
                    About::weights,
                    {},
                    {},
                    -1,
                    1,
                    Effect{Bytes(), bytes_beside_tables(tape)}});
}

}  // namespace memplan
