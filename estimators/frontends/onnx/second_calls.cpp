#include "estimators/frontends/onnx/second_calls.h"

#include <algorithm>

#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/frontends/onnx/metadata.h"

namespace memplan::onnx_format {

namespace {

/// Without the space that ends a printed frame.
std::string_view text_of(std::string_view frame) {
  const auto end = frame.find_last_not_of(" \n");
  return frame.substr(0, end == frame.npos ? 0 : end + 1);
}

}  // namespace

SecondCall second_call(const GraphNode& maker, const GraphNode& reader) {
  const auto its = parse_python_strings(note_at(maker.metadata, scopes_key)),
             mine = parse_python_strings(note_at(reader.metadata, scopes_key));
  const std::string_view its_trace = note_at(maker.metadata, stack_trace_key),
                         trace = note_at(reader.metadata, stack_trace_key);
  // The last of the scopes is the node itself, and each module has a frame.
  if (its.size() < 3 || mine.size() < 3 || count_frames(its_trace) + 1 != its.size() ||
      count_frames(trace) + 1 != mine.size())
    return {};
  for (std::size_t i = 0; i + 2 < std::min(its.size(), mine.size()) && its[i] == mine[i]; ++i)
    if (text_of(frame_of(its_trace, i)) != text_of(frame_of(trace, i)))
      return its[i + 1] == mine[i + 1] ? SecondCall{mine[i + 1], i + 1, trace.substr(0, frame_at(trace, i + 1))}
                                       : SecondCall{};
  return {};
}

}  // namespace memplan::onnx_format
