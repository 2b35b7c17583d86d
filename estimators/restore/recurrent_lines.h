// Lines of torch/nn/modules/rnn.py that call a recurrent layer or cell, of which exporters make many calls.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "estimators/tape/tape.h"

namespace memplan {

struct RecurrentLine {
  std::string_view line, op;  ///< "_VF.gru_cell(", "aten::gru_cell"
};

/// The one of `lines` that a call stands at; null for all others, and for the whole op itself.
inline const RecurrentLine* recurrent_line_of(const Call& call, std::span<const RecurrentLine> lines) {
  if (!call.source.starts_with("torch/nn/modules/rnn.py")) return nullptr;
  const auto found = std::ranges::find_if(
      lines, [&](const RecurrentLine& l) { return call.source.find(l.line) != std::string_view::npos; });
  return found == lines.end() || call.op == found->op ? nullptr : &*found;
}

}  // namespace memplan
