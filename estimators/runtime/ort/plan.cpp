#include "estimators/runtime/ort/plan.h"

#include <algorithm>
#include <list>
#include <unordered_set>

#include "estimators/runtime/ort/kernels.h"

namespace memplan::ort {

namespace {

class Planner {
 public:
  Planner(const Placed& placed, const std::vector<KnownShape>& shapes, const std::vector<DType>& types, bool reuse)
      : placed_(placed), graph_(placed.graph), shapes_(shapes), types_(types), reuse_(reuse) {}

  BufferPlan run() {
    plan_.own.assign(graph_.values.size(), Own::nothing);
    for (std::size_t i = 0; i < graph_.values.size(); ++i) plan_.root.push_back(static_cast<GraphValueId>(i));
    count_uses();
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const GraphNode& node = graph_.nodes[n];
      for (std::size_t i = 0; i < node.outputs.size(); ++i)
        if (node.outputs[i] >= 0) plan_output(n, node, i);
      for (const GraphValueId id : node.inputs)
        if (id >= 0 && --uses_[of(id)] == 0) free_.push_front(plan_.root[static_cast<std::size_t>(id)]);
      for (const GraphValueId id : node.outputs)
        if (id >= 0 && uses_[of(id)] == 0) free_.push_front(plan_.root[static_cast<std::size_t>(id)]);
    }
    find_last_uses();
    return std::move(plan_);
  }

 private:
  std::size_t of(GraphValueId id) const { return static_cast<std::size_t>(plan_.root[static_cast<std::size_t>(id)]); }

  /// Inputs, weights and outputs are used by the caller as well, so that nothing takes their place.
  void count_uses() {
    uses_.assign(graph_.values.size(), 0);
    const auto use = [&](GraphValueId id) { ++uses_[static_cast<std::size_t>(id)]; };
    for (const GraphNode& node : graph_.nodes)
      for (const GraphValueId id : node.inputs)
        if (id >= 0) use(id);
    for (const GraphValueId id : graph_.inputs) {
      use(id);
      if (placed_.value_on_device[static_cast<std::size_t>(id)]) plan_.own[static_cast<std::size_t>(id)] = Own::input;
    }
    for (const GraphValueId id : graph_.outputs) {
      use(id);
      outputs_.insert(id);
    }
    for (const auto& [id, tensor] : graph_.initializers) {
      use(id);
      if (placed_.value_on_device[static_cast<std::size_t>(id)]) plan_.own[static_cast<std::size_t>(id)] = Own::weight;
    }
  }

  bool same_size(GraphValueId a, GraphValueId b) const {
    return bytes_of(types_[static_cast<std::size_t>(a)], 1) == bytes_of(types_[static_cast<std::size_t>(b)], 1) &&
           same_shape(shapes_[static_cast<std::size_t>(a)], shapes_[static_cast<std::size_t>(b)]);
  }

  void take_over(GraphValueId from, GraphValueId by) {
    const auto root = of(from);
    plan_.root[static_cast<std::size_t>(by)] = static_cast<GraphValueId>(root);
    uses_[root] += uses_[static_cast<std::size_t>(by)];
  }

  void plan_output(std::size_t n, const GraphNode& node, std::size_t i) {
    const GraphValueId id = node.outputs[i];
    const bool on_device = placed_.value_on_device[static_cast<std::size_t>(id)];
    Own& own = plan_.own[static_cast<std::size_t>(id)];
    if (outputs_.count(id)) {
      if (on_device) own = Own::output;
      return;
    }
    const Kernel* kernel = placed_.node_on_cpu[n] ? nullptr : kernel_of(node);
    if (i == 0 && kernel && !node.inputs.empty() && node.inputs[0] >= 0) {
      const GraphValueId from = node.inputs[0];
      if (kernel->alias || (kernel->in_place && uses_[of(from)] == 1 && same_size(from, id))) {
        take_over(from, id);
        return;
      }
    }
    if (const auto found = free_of_shape(id); found != free_.end()) {
      const GraphValueId from = *found;
      free_.erase(found);
      take_over(from, id);
      return;
    }
    if (on_device) own = Own::planned;
  }

  std::list<GraphValueId>::iterator free_of_shape(GraphValueId id) {
    const KnownShape& shape = shapes_[static_cast<std::size_t>(id)];
    if (!reuse_ || !shape || shape->empty()) return free_.end();
    return std::find_if(free_.begin(), free_.end(), [&](GraphValueId f) {
      return placed_.value_on_device[static_cast<std::size_t>(f)] ==
                 placed_.value_on_device[static_cast<std::size_t>(id)] &&
             same_size(f, id);
    });
  }

  void find_last_uses() {
    std::vector<std::int32_t> last(graph_.values.size(), -1);
    for (std::size_t k = 0; k < graph_.nodes.size(); ++k) {
      for (const GraphValueId id : graph_.nodes[k].inputs)
        if (id >= 0) last[of(id)] = static_cast<std::int32_t>(k);
    }
    plan_.released.resize(graph_.nodes.size());
    for (std::size_t id = 0; id < last.size(); ++id)
      if (plan_.own[id] == Own::planned && last[id] >= 0)
        plan_.released[static_cast<std::size_t>(last[id])].push_back(static_cast<GraphValueId>(id));
  }

  const Placed& placed_;
  const Graph& graph_;
  const std::vector<KnownShape>& shapes_;
  const std::vector<DType>& types_;
  bool reuse_;
  BufferPlan plan_;
  std::vector<std::int64_t> uses_;  ///< by value; of a root: of all that share its buffer
  std::unordered_set<GraphValueId> outputs_;
  std::list<GraphValueId> free_;  ///< roots, the one that was freed last first
};

}  // namespace

BufferPlan plan_buffers(const Placed& placed, const std::vector<KnownShape>& shapes, const std::vector<DType>& types,
                        bool reuse) {
  return Planner(placed, shapes, types, reuse).run();
}

}  // namespace memplan::ort
