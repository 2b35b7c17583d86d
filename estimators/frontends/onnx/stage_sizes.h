// Sizes of parameters in stages of a network that no node of a file reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/frontends/onnx/unread_sizes.h"

namespace memplan::onnx_format {

/// "encoder.layer3." of "encoder.layer3.0.conv1.weight", where the number is at least 2; empty: the path has no such
/// part.
std::string stage_of(std::string_view path);

/// An encoder of which a decoder takes the first stages has the others all the same: "layer3" is to "layer2" as that is
/// to "layer1", channels twice as many (segmentation_models_pytorch's PSPNet reads three of ResNet's five). None where
/// the path has no stage, or the two stages before it do not differ by one factor.
std::optional<std::vector<std::int64_t>> sizes_of_next_stage(std::string_view path, const KnownSizes& known);

}  // namespace memplan::onnx_format
