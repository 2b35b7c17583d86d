// Sizes of parameters in stages of a network that no node of a file reads.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/frontends/onnx/unread_sizes.h"

namespace memplan::onnx_format {

/// "encoder.layer3." of "encoder.layer3.0.conv1.weight", where the number is at least 2; empty: the path has no such
/// part.
std::string stage_of(std::string_view path);

/// An encoder of which a decoder takes the first stages has the others all the same: "layer3" is to "layer2" as that is
/// to "layer1", channels twice as many (segmentation_models_pytorch's PSPNet reads three of ResNet's five).
class NextStages {
 public:
  /// `known` may grow: what a stage's parameters are like is looked up when the first of the next one is asked for.
  explicit NextStages(const KnownSizes& known) : known_(known) {}

  /// None where the path has no stage, or the two stages before it do not differ by one factor. Failure(input) where
  /// sizes overflow.
  std::optional<std::vector<std::int64_t>> sizes_of(std::string_view path);

 private:
  using Sizes = std::vector<std::int64_t>;
  /// Channels of two stages, and how much wider the second one's are.
  struct Growth {
    std::int64_t factor = 0;
    std::set<std::int64_t> channels;
  };

  std::optional<Growth> growth(const std::string& first, const std::string& second) const;
  const Sizes* twin_of(const std::string& root, std::string_view after);

  const KnownSizes& known_;
  std::map<std::string, std::optional<Growth>, std::less<>> growth_;            ///< by stage
  std::map<std::string, std::map<std::string, Sizes, std::less<>>> in_blocks_;  ///< by stage and path in a block
};

}  // namespace memplan::onnx_format
