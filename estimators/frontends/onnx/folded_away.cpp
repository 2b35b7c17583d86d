#include "estimators/frontends/onnx/folded_away.h"

#include "estimators/base/bytes.h"
#include "estimators/frontends/onnx/folded.h"

namespace memplan::onnx_format {

void note_folded_away(const Graph& graph, bool all_told, Tape& tape) {
  Bytes folded, numbers;
  for (const auto& [id, t] : graph.initializers)
    if (!t.sizes.empty() && !folded_from(graph, id).empty()) folded += bytes_of(t.dtype, t.sizes);
  if (all_told && folded == Bytes()) return;
  for (const Call& call : tape.calls)
    for (const auto& [dtype, sizes] : call.known_shapes)
      if (is_integral(dtype) || dtype == DType::boolean) numbers += bytes_of(dtype, sizes);
  tape.exported.folded_away = folded + numbers;
}

}  // namespace memplan::onnx_format
