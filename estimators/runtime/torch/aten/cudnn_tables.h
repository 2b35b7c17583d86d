// What cuDNN's heuristics said of convolutions: the tables of data/cudnn, by version and architecture.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

#include "estimators/base/bytes.h"

namespace memplan::cudnn_tables {

/// What the table in full was made from; of the others there are the differences.
constexpr std::string_view base_cudnn = "9.19";

/// A convolution without batch size, precision and layout.
using Shape = std::array<std::int64_t, 13>;  // C H W K R S pad_h pad_w stride_h stride_w dilation_h dilation_w groups
enum { C, H, W, K, R, S, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, groups };

/// Of one architecture. The curves stay text until they are asked for: the table is large, and a model needs a few
/// dozen lines of it.
using Lines = std::map<Shape, std::string_view>;

/// The lines of one architecture, unpacked and read when a run on it wants them.
class Section {
 public:
  Section(std::string_view file, int sm) : file_(file), sm_(sm) {}
  const Lines& lines() const;

 private:
  std::string_view file_;  ///< of data/cudnn, a literal
  int sm_;
  mutable std::once_flag read_;
  mutable Lines lines_;
};

using Architectures = std::map<int, Section>;

/// Of one cuDNN: the table that says everything, and what this version says otherwise.
struct Tables {
  const Architectures& base;
  const Architectures* changes = nullptr;  ///< curves that are not "~"
  bool known = true;                       ///< false: another version's figures are taken
};

/// Batch sizes that the differences were asked for (tools/cudnn_workspaces/query.cpp).
constexpr std::array<std::int64_t, 13> sampled{1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256};

/// All that can be read.
constexpr std::array asked_versions{base_cudnn, std::string_view("9.10"), std::string_view("9.20"),
                                    std::string_view("9.24"), std::string_view("9.26")};

Tables tables_of(std::string_view cudnn);

/// The figure of an entry, by the version's own curve where it has one.
std::optional<Bytes> figure(const Tables& tables, int sm, const Shape& shape, std::string_view base, int index,
                            std::int64_t batch);

}  // namespace memplan::cudnn_tables
