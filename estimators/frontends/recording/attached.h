// A recording that travels in the file of its own module: an ONNX file has it among its metadata_props, a .pt2 archive
// as a member (docs/recording.md). The recording answers what it can, the graph what is left (recording/answers.h).
#pragma once

#include <string>
#include <string_view>

#include "estimators/graph/graph.h"

namespace memplan::recording {

/// Key of the entry of an ONNX file, and the end of the name of a .pt2 archive's member.
constexpr std::string_view attached_key = "memplan.recording";
constexpr std::string_view attached_member = "extra/memplan.recording";
/// As text: a recording of a module of 80 layers at three batches takes about 10 MB.
constexpr std::int64_t most_attached = std::int64_t{64} << 20;

/// What stands in the file: the graph's mark and the recording's bytes as text.
std::string attached_text(const Model& graph, std::string_view recording);

/// The recording in `text`, with `graph` as what answers the rest. One that is damaged, or of a graph that was changed
/// since, is left out, and the model says so (MP001).
Model with_attached(Model graph, std::string_view text);

}  // namespace memplan::recording
