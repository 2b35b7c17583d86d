#include "estimators/runtime/ort/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "estimators/base/release.h"
#include "estimators/frontends/onnx/inferred.h"
#include "estimators/runtime/ort/arena.h"
#include "estimators/runtime/ort/kernels.h"
#include "estimators/runtime/ort/optimize.h"
#include "estimators/runtime/ort/pattern.h"
#include "estimators/runtime/ort/plan.h"
#include "estimators/runtime/ort/scratch.h"
#include "estimators/runtime/ort/versions/versions.h"
#include "estimators/setup/field.h"

namespace memplan::ort {

namespace {

/// The graph, where that version loads its file.
const BoundGraph& loadable(const BoundGraph& bound, const OrtProfile& profile) {
  const auto check = [&](const char* what, std::int64_t has, std::int64_t most) {
    if (has > most)
      fail_input(fmt::format("the file has {} {}, and ONNX Runtime {} loads none newer than {}", what, has,
                             profile.version, most),
                 fmt::format("{} {}", what, has),
                 "export it with an older one, or name a newer version with " + setting(Field::ort_version, "X.Y"));
  };
  check("ONNX opset", bound.opset, profile.opset);
  check("IR version", bound.ir, profile.ir);
  return bound;
}

/// Marks nodes whose form the version has no CUDA kernel of; says which ops these are.
std::set<std::string> mark_late_forms(Graph& graph, std::int64_t opset, const OrtProfile& profile) {
  std::set<std::string> ops;
  for (GraphNode& node : graph.nodes) {
    if (!node.domain.empty() && node.domain != "ai.onnx") continue;
    if (!kernel_of(node) || has_form(profile, node.op_type, opset)) continue;
    node.metadata[on_cpu_key] = profile.version;
    ops.insert(node.op_type);
  }
  return ops;
}

class Session {
 public:
  Session(const BoundGraph& bound, const TrainingSetup& setup, const Device& device, const Reading& reading)
      : setup_(setup),
        profile_(profile_of(setup.ort)),
        context_{setup.ort,
                 profile_,
                 device,
                 reading.workspaces,
                 setup.runtime.cudnn.get(),
                 [this](GraphValueId id) { return graph().initializers.count(id) > 0; }},
        optimized_(optimized(loadable(bound, profile_), profile_)),
        late_(mark_late_forms(optimized_.graph, bound.opset, profile_)),
        placed_(in_order(place(std::move(optimized_.graph)))),
        inferred_(placed_.graph, bound.symbols, bound.opset),
        order_seed_(reading.order) {
    for (std::size_t i = 0; i < placed_.graph.values.size(); ++i)
      types_.push_back(inferred_[static_cast<GraphValueId>(i)].dtype.value_or(DType::float32));
    plan_ = plan_buffers(placed_, known_shapes(placed_.graph, bound.opset), types_, setup.ort.memory_reuse);
    find_scratch();
    bytes_of_values();
    note_nodes();
    note_optimizers();
    note_rewriting(bound.rewritten_by);
  }

  Schedule run() {
    load_weights();
    // Runs repeat each other; no number of them takes ten times as long as three.
    const std::int64_t steps = std::min<std::int64_t>(setup_.steps, 24);
    if (steps < setup_.steps)
      s_.notes.push_back({{},
                          fmt::format("of {} runs of the session {} are replayed", setup_.steps, steps),
                          Evidence::assumed,
                          About::allocator});
    for (std::int64_t step = 1; step <= steps; ++step) {
      s_.step_begins.push_back(static_cast<std::int32_t>(s_.events.size()));
      one_run(step);
    }
    return std::move(s_);
  }

 private:
  const Graph& graph() const { return placed_.graph; }

  void bytes_of_values() {
    std::int64_t unknown = 0;
    std::string first;
    bytes_.resize(graph().values.size());
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (plan_.own[i] == Own::nothing) continue;
      const onnx_format::Inferred& f = inferred_[static_cast<GraphValueId>(i)];
      if (f.sizes)
        bytes_[i] = bytes_of(types_[i], onnx_format::count_of(*f.sizes)).count;
      else if (unknown++ == 0)
        first = graph().values[i].name;
    }
    if (unknown > 0)
      fail_input(fmt::format("the sizes of {} values of the graph are not known, the first is '{}'", unknown, first),
                 first, "give the file shapes: onnx.shape_inference.infer_shapes, or save it from ONNX Runtime");
  }

  void find_scratch() {
    scratch_.resize(graph().nodes.size());
    ones_.resize(graph().nodes.size());
    std::map<std::string, Note> bounded;  // all nodes of an op at once: their bounds add up
    for (std::size_t k = 0; k < graph().nodes.size(); ++k) {
      if (placed_.node_on_cpu[k]) continue;
      Scratch found = scratch_of(onnx_format::At{graph().nodes[k], inferred_, inferred_.opset()}, context_);
      if (found.note && found.note->off) {
        const auto [it, fresh] = bounded.emplace(found.note->op, *found.note);
        if (!fresh) it->second.off->above += found.note->off->above, ++it->second.count;
      } else if (found.note) {
        note(s_.notes, *found.note);
      }
      scratch_[k] = std::move(found.bytes);
      ones_[k] = found.ones;
      for (const std::int64_t bytes : found.kept) kept_.emplace_back(k, bytes);
    }
    for (auto& [op, n] : bounded) s_.notes.push_back(std::move(n));
  }

  /// Nodes that no kernel is known for are taken to run on the CPU, and that is said.
  void note_nodes() {
    std::map<std::string, std::int64_t> unknown;
    for (const GraphNode& node : graph().nodes)
      if (!kernel_of(node) && !known_without_kernel(node) && late_.count(node.op_type) == 0) ++unknown[node.op_type];
    if (!late_.empty())
      s_.notes.push_back(
          {{},
           fmt::format("ONNX Runtime {} runs {} on the CPU, with copies around it: its CUDA provider has no "
                       "kernel of opset {}",
                       profile_.version, fmt::join(late_, ", "), inferred_.opset()),
           Evidence::chosen,
           About::framework});
    for (const auto& [op, count] : unknown) {
      Note n{"", "memplan knows no CUDA kernel of it: taken to run on the CPU, with copies around it",
             Evidence::assumed, About::op, op};
      n.count = count;
      s_.notes.push_back(std::move(n));
    }
  }

  /// How far off the figures may be where other optimizers of ONNX Runtime have something to do: buffers that a fusion
  /// saves, weights that are stored in another form beside the first.
  void note_optimizers() {
    if (optimized_.may_change.empty() && !optimized_.rearranged) return;
    const Bytes buffers = largest_buffer() * 4;
    Bytes weights;
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (plan_.own[i] == Own::weight) weights += Bytes(bytes_[i]);
    if (optimized_.rearranged) {
      s_.notes.push_back({{},
                          "a session that loads a quantized file puts its pairs in another order, which moves buffers",
                          Evidence::assumed,
                          About::op,
                          "DequantizeLinear",
                          "",
                          -1,
                          1,
                          Effect{buffers, buffers}});
      return;
    }
    std::string ops;
    for (const std::string& op : optimized_.may_change) ops += (ops.empty() ? "" : ", ") + op;
    s_.notes.push_back(
        {"MP070 not-optimized",
         fmt::format("ONNX Runtime's optimizers fuse and move nodes of a plain file, of which memplan follows "
                     "a part; they may change these: {}. pip install onnxruntime lets memplan ask them, and the file "
                     "that a session saves with optimized_model_filepath is taken as it is",
                     ops),
         Evidence::assumed, About::op, "graph optimizers", "", -1, 1, Effect{buffers, buffers + weights}});
  }

  /// Other optimizers than those of the version that runs.
  void note_rewriting(const std::string& by) {
    const std::optional<Release> other = release_of(by);
    if (!other || *other == *release_of(profile_.version)) return;
    const Bytes buffers = largest_buffer() * 4;
    s_.notes.push_back({{},
                        fmt::format("ONNX Runtime {} rewrote the graph, whose optimizers may fuse and move other nodes "
                                    "than those of {}",
                                    by, profile_.version),
                        Evidence::assumed,
                        About::op,
                        "graph optimizers",
                        "",
                        -1,
                        1,
                        Effect{buffers, buffers}});
  }

  Bytes largest_buffer() const {
    Bytes most;
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (plan_.own[i] == Own::planned) most = std::max(most, Bytes(bytes_[i]));
    return most;
  }

  std::int32_t name(const std::string& text) {
    const auto [it, fresh] = names_.emplace(text, static_cast<std::int32_t>(s_.names.size()));
    if (fresh) s_.names.push_back(text);
    return it->second;
  }

  void begin_op(const std::string& op, Phase phase, std::int64_t step) {
    OpRecord r;
    r.name = name(op);
    r.phase = phase;
    r.step = static_cast<std::int32_t>(step);
    r.first_event = static_cast<std::int32_t>(s_.events.size());
    s_.ops.push_back(r);
  }

  /// Every run has a stream of its own, whose number is that of the step.
  std::int32_t allocate(std::int64_t bytes, Category category, std::int64_t stream, const std::string& label,
                        GraphValueId value = -1) {
    if (bytes == 0) return -1;
    Allocation a;
    a.size = Bytes(bytes);
    a.born = static_cast<std::int32_t>(s_.events.size());
    a.op = static_cast<std::int32_t>(s_.ops.size()) - 1;
    a.stream = static_cast<std::int32_t>(stream);
    a.category = category;
    a.label = name(label);
    if (value >= 0) a.shape_at = shape_of(value);
    s_.events.push_back({Event::Kind::alloc, static_cast<std::int32_t>(s_.allocations.size())});
    s_.allocations.push_back(a);
    return static_cast<std::int32_t>(s_.allocations.size()) - 1;
  }

  void release(std::int32_t allocation) {
    if (allocation < 0) return;
    s_.allocations[static_cast<std::size_t>(allocation)].died = static_cast<std::int32_t>(s_.events.size());
    s_.events.push_back({Event::Kind::free, allocation});
  }

  std::int32_t shape_of(GraphValueId value) {
    const auto [it, fresh] = shapes_.emplace(value, static_cast<std::int32_t>(s_.shapes.size()));
    if (fresh)
      s_.shapes.push_back(
          {static_cast<std::uint8_t>(types_[static_cast<std::size_t>(value)]), *inferred_[value].sizes});
    return it->second;
  }

  const std::string& name_of_value(GraphValueId id) const { return graph().values[static_cast<std::size_t>(id)].name; }

  std::int32_t allocate_value(GraphValueId id, Category category, std::int64_t step) {
    return allocate(bytes_[static_cast<std::size_t>(id)], category, step, name_of_value(id), id);
  }

  void load_weights() {
    begin_op("session", Phase::setup, 0);
    std::vector<GraphValueId> weights;
    for (const auto& [id, tensor] : graph().initializers)
      if (plan_.own[static_cast<std::size_t>(id)] == Own::weight) weights.push_back(id);
    if (order_seed_ != 0) std::shuffle(weights.begin(), weights.end(), std::mt19937(order_seed_));
    for (const GraphValueId id : weights) allocate_value(id, Category::parameter, 0);
    for (const auto& [node, bytes] : kept_) allocate(bytes, Category::workspace, 0, graph().nodes[node].name);
  }

  void one_run(std::int64_t step) {
    std::vector<std::int32_t> inputs, outputs;
    begin_op("inputs", Phase::data, step);
    for (const GraphValueId id : graph().inputs)
      if (plan_.own[static_cast<std::size_t>(id)] == Own::input)
        inputs.push_back(allocate_value(id, Category::input, step));
    const bool pattern = setup_.ort.memory_pattern && step > 1;
    std::int32_t block = -1;
    if (pattern) {
      begin_op("memory pattern", Phase::forward, step);
      block = allocate(pattern_.bytes(), Category::activation, step, "memory pattern: all buffers of a run");
    }
    for (std::size_t k = 0; k < graph().nodes.size(); ++k) run_node(k, step, pattern, outputs);
    begin_op("end of run", Phase::forward, step);
    for (const auto& [id, allocation] : std::exchange(held_, {})) release(allocation);
    release(block);
    for (const auto* list : {&outputs, &inputs})
      for (const std::int32_t a : *list) release(a);
    if (setup_.ort.shrink) s_.events.push_back({Event::Kind::empty_cache, -1});
  }

  void run_node(std::size_t k, std::int64_t step, bool pattern, std::vector<std::int32_t>& outputs) {
    const GraphNode& node = graph().nodes[k];
    begin_op(node.op_type, Phase::forward, step);
    for (const GraphValueId id : node.outputs) {
      if (id < 0) continue;
      const Own own = plan_.own[static_cast<std::size_t>(id)];
      if (own == Own::output) outputs.push_back(allocate_value(id, Category::output, step));
      if (own != Own::planned) continue;
      if (step == 1) pattern_.allocate(id, bytes_[static_cast<std::size_t>(id)]);
      if (!pattern) held_[id] = allocate_value(id, Category::activation, step);
    }
    if (ones_[k] > 0) keep_ones(types_[static_cast<std::size_t>(node.inputs[0])], ones_[k]);
    std::vector<std::int32_t> scratch;
    for (const std::int64_t bytes : scratch_[k])
      scratch.push_back(allocate(bytes, Category::workspace, step, node.name));
    for (const std::int32_t a : scratch) release(a);
    for (const GraphValueId id : plan_.released[k]) {
      if (step == 1) pattern_.free(id);
      if (!pattern) release(std::exchange(held_[id], -1));
    }
  }

  /// More of them take the place of fewer.
  void keep_ones(DType dtype, std::int64_t bytes) {
    auto& [held, allocation] = kept_ones_.try_emplace(dtype, 0, -1).first->second;
    if (bytes <= held) return;
    const std::int32_t before = allocation;
    allocation = allocate(bytes, Category::workspace, reserved_stream, "ones that broadcast biases");
    held = bytes;
    release(before);
  }

  const TrainingSetup& setup_;
  const OrtProfile& profile_;
  ScratchContext context_;
  Optimized optimized_;
  std::set<std::string> late_;  ///< ops that run on the CPU for want of a kernel of their form
  Placed placed_;
  onnx_format::InferredValues inferred_;
  std::uint32_t order_seed_;
  std::vector<DType> types_;
  BufferPlan plan_;
  std::vector<std::int64_t> bytes_;                                   ///< by value
  std::vector<std::vector<std::int64_t>> scratch_;                    ///< by node
  std::vector<std::pair<std::size_t, std::int64_t>> kept_;            ///< what kernels keep for the session, by node
  std::vector<std::int64_t> ones_;                                    ///< by node
  std::map<DType, std::pair<std::int64_t, std::int32_t>> kept_ones_;  ///< bytes and allocation
  MemoryPattern pattern_;
  std::map<GraphValueId, std::int32_t> held_;  ///< buffers of the run, as allocations
  std::map<std::string, std::int32_t> names_;
  std::map<GraphValueId, std::int32_t> shapes_;
  Schedule s_;
};

}  // namespace

Schedule schedule_of(const BoundGraph& bound, const TrainingSetup& setup, const Device& device,
                     const Reading& reading) {
  return Session(bound, setup, device, reading).run();
}

}  // namespace memplan::ort
