#include "estimators/frontends/onnx/folded_away.h"

#include <string_view>
#include <unordered_set>
#include <vector>

#include "estimators/base/bytes.h"
#include "estimators/frontends/onnx/folded.h"
#include "estimators/frontends/onnx/values.h"

namespace memplan::onnx_format {

namespace {

/// Small tensors of `list` that the file holds under another module's name: calls over them may be merged as well.
Bytes merged_bytes(const Graph& file, const Tape& tape, const std::vector<ValueId>& list) {
  std::unordered_set<std::string_view> there;
  for (const auto& [id, t] : file.initializers) there.insert(t.name);
  Bytes merged;
  for (const ValueId id : list) {
    const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
    if (is_floating(v.dtype) && may_be_merged(v.sizes) && !there.contains(v.name)) merged += bytes_of(v.dtype, v.sizes);
  }
  return merged;
}

}  // namespace

void note_folded_away(const Graph& file, const Graph& graph, bool all_told, Tape& tape) {
  Bytes folded, numbers;
  for (const auto& [id, t] : graph.initializers)
    if (!t.sizes.empty() && !folded_from(graph, id).empty()) folded += bytes_of(t.dtype, t.sizes);
  tape.exported.merged_parameters = merged_bytes(file, tape, tape.parameters);
  const Bytes merged = tape.exported.merged_parameters + merged_bytes(file, tape, tape.buffers);
  if (!all_told || folded > Bytes())
    for (const Call& call : tape.calls)
      for (const auto& [dtype, sizes] : call.known_shapes)
        if (is_integral(dtype) || dtype == DType::boolean) numbers += bytes_of(dtype, sizes);
  tape.exported.folded_away = folded + numbers + merged;
}

}  // namespace memplan::onnx_format
