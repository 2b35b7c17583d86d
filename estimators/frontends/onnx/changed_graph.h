// A graph that is copied when something of it is about to change, which for most files nothing is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

/// Of a node, a value or a group, whose indices are signed.
inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class ChangedGraph {
 public:
  explicit ChangedGraph(const Graph& old) : old_(old) {}

  const Graph& read() const { return changed_ ? *changed_ : old_; }
  Graph& write() {
    if (!changed_) changed_ = old_;
    return *changed_;
  }
  std::optional<Graph> take() { return std::move(changed_); }

 private:
  const Graph& old_;
  std::optional<Graph> changed_;
};

}  // namespace memplan::onnx_format
