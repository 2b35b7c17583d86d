#include "estimators/frontends/onnx/second_calls.h"

#include <algorithm>
#include <vector>

#include "estimators/frontends/onnx/copied_calls.h"
#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/frontends/onnx/metadata.h"

namespace memplan::onnx_format {

namespace {

std::vector<std::string_view> frames_of(std::string_view trace) {
  std::vector<std::string_view> out;
  for (auto at = trace.find("File \""); at != trace.npos;) {
    const auto next = trace.find("File \"", at + 1);
    out.push_back(trace.substr(at, next == trace.npos ? next : next - at));
    at = next;
  }
  return out;
}

/// Without the space that ends a printed frame.
std::string_view text_of(std::string_view frame) {
  const auto end = frame.find_last_not_of(" \n");
  return frame.substr(0, end == frame.npos ? 0 : end + 1);
}

}  // namespace

SecondCall second_call(const GraphNode& maker, const GraphNode& reader) {
  const auto its = parse_python_strings(note_at(maker.metadata, scopes_key)),
             mine = parse_python_strings(note_at(reader.metadata, scopes_key));
  const std::string_view trace = note_at(reader.metadata, stack_trace_key);
  const auto its_frames = frames_of(note_at(maker.metadata, stack_trace_key)), my_frames = frames_of(trace);
  // The last of the scopes is the node itself, and each module has a frame.
  if (its.size() < 3 || mine.size() < 3 || its_frames.size() + 1 != its.size() || my_frames.size() + 1 != mine.size())
    return {};
  for (std::size_t i = 0; i + 2 < std::min(its.size(), mine.size()) && its[i] == mine[i]; ++i)
    if (text_of(its_frames[i]) != text_of(my_frames[i]))
      return its[i + 1] == mine[i + 1]
                 ? SecondCall{mine[i + 1], i + 1, trace.substr(0, trace.find(my_frames[i]) + my_frames[i].size())}
                 : SecondCall{};
  return {};
}

}  // namespace memplan::onnx_format
