// What the calls of a file read of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "estimators/frontends/onnx/fx_program.h"
#include "estimators/graph/graph.h"

namespace memplan::onnx_format {

struct CallRead {
  std::size_t node = 0, input = 0;
  GraphValueId id = -1;
};

class CallReads {
 public:
  /// All three outlive this.
  CallReads(const Graph& graph, const FxProgram& program, const GroupedNodes& nodes);

  /// What nodes of a call read of other calls and from outside, in order.
  std::vector<CallRead> of(const FxGroup& call) const;

  /// What the file has that calls read.
  std::vector<GraphValueId> parameters_of(const std::vector<std::int32_t>& calls) const;

  /// What one node made of one value within a call of several: the Sigmoid of a SiLU, which another call's own may have
  /// been merged with.
  bool is_step(GraphValueId id) const;

  bool is_input(GraphValueId id) const { return inputs_.contains(id); }

  /// Whether a call's result lies otherwise than in order: a turned tensor, or what views make of one without a copy.
  bool lies_turned(std::int32_t call) const;

  /// Whether all of them may have been left out without having been merged.
  bool do_nothing(const std::vector<std::int32_t>& calls) const;

  /// As the file has them.
  void put_in_order(std::vector<std::int32_t>& calls) const;

  /// A call and those of the module which it rests on, later ones first.
  std::vector<std::int32_t> within(std::int32_t call, std::string_view module) const;

 private:
  const Graph& graph_;
  const FxProgram& program_;
  const GroupedNodes& nodes_;
  std::unordered_set<GraphValueId> inputs_;
};

}  // namespace memplan::onnx_format
