#include "estimators/runtime/ort/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "estimators/base/release.h"
#include "estimators/frontends/onnx/inferred.h"
#include "estimators/runtime/ort/arena.h"
#include "estimators/runtime/ort/kernels.h"
#include "estimators/runtime/ort/pattern.h"
#include "estimators/runtime/ort/plan.h"
#include "estimators/runtime/ort/prepared.h"
#include "estimators/runtime/ort/scratch.h"
#include "estimators/runtime/ort/versions/versions.h"
#include "estimators/setup/field.h"

namespace memplan::ort {

namespace {

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
        prepared_(prepared(bound, profile_)),
        placed_(prepared_.arranged.placed),
        inferred_(prepared_.inferred),
        order_seed_(reading.order),
        types_(prepared_.types),
        plan_(plan_buffers(placed_, prepared_.arranged.shapes, types_, setup.ort.memory_reuse)) {
    find_scratch();
    bytes_of_values();
    note_nodes();
    note_optimizers();
    if (bound.flat) note_bodies();
    note_rewriting(bound.rewritten_by);
  }

  /// The first `count` nodes run on the device, and the others take nothing of it.
  Schedule run(std::size_t count = SIZE_MAX) {
    first_ = std::min(count, graph().nodes.size());
    find_read();
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
    const std::vector<Scratch>& all = scratch_of_nodes(prepared_, context_);
    scratch_.resize(graph().nodes.size());
    ones_.resize(graph().nodes.size());
    std::map<std::string, Note> bounded;  // all nodes of an op at once: their bounds add up
    for (std::size_t k = 0; k < graph().nodes.size(); ++k) {
      if (placed_.node_on_cpu[k]) continue;
      const Scratch& found = all[k];
      if (found.note && found.note->off) {
        const auto [it, fresh] = bounded.emplace(found.note->op, *found.note);
        if (!fresh) it->second.off->above += found.note->off->above, ++it->second.count;
      } else if (found.note) {
        note(s_.notes, *found.note);
      }
      scratch_[k] = found.bytes;
      ones_[k] = found.ones;
      for (const std::int64_t bytes : found.kept) kept_.emplace_back(k, bytes);
    }
    for (auto& [op, n] : bounded) s_.notes.push_back(std::move(n));
  }

  /// Bytes of what a node reads and makes, as far as they are known.
  Bytes around(const GraphNode& node) const {
    Bytes sum;
    for (const auto* ids : {&node.inputs, &node.outputs})
      for (const GraphValueId id : *ids)
        if (id >= 0 && inferred_[id].sizes)
          sum += bytes_of(types_[static_cast<std::size_t>(id)], onnx_format::count_of(*inferred_[id].sizes));
    return sum;
  }

  /// Nodes that run on the CPU because of their op: the report names them. Of an op that the table of kernels does not
  /// have, there may be a kernel after all, which then has no copies around it and may take scratch.
  void note_nodes() {
    std::map<std::string, Note> by_op;
    for (const GraphNode& node : graph().nodes) {
      if (kernel_of(node) || prepared_.arranged.late.count(node.op_type) > 0) continue;
      const bool sure = known_without_kernel(node);
      const auto [it, fresh] = by_op.try_emplace(
          node.op_type,
          Note{"",
               sure ? "the CUDA provider has no kernel of it: it runs on the CPU, with copies around it"
                    : "memplan knows no CUDA kernel of it: taken to run on the CPU, with copies around it",
               sure ? Evidence::recorded : Evidence::assumed, About::op, node.op_type, "", -1, 0, Effect{}});
      ++it->second.count;
      if (!sure) it->second.off->below += around(node), it->second.off->above += around(node);
    }
    if (!prepared_.arranged.late.empty())
      s_.notes.push_back(
          {{},
           fmt::format("ONNX Runtime {} runs {} on the CPU, with copies around it: its CUDA provider has no "
                       "kernel of opset {}",
                       profile_.version, fmt::join(prepared_.arranged.late, ", "), inferred_.opset()),
           Evidence::chosen,
           About::framework});
    for (auto& [op, n] : by_op) s_.notes.push_back(std::move(n));
  }

  /// ONNX Runtime runs the body of an If, Loop or Scan in a frame of its own, where nothing shares a buffer with what
  /// is outside: at least nothing is held of what is planned here, at most every buffer on its own.
  void note_bodies() {
    Bytes buffers;
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (plan_.own[i] == Own::planned || plan_.own[i] == Own::output) buffers += Bytes(bytes_[i]);
    s_.notes.push_back({{},
                        "ONNX Runtime runs the bodies of If, Loop and Scan in frames of their own, which is not "
                        "modelled: what is inside is taken for a part of the graph",
                        Evidence::assumed,
                        About::op,
                        "If, Loop, Scan",
                        "",
                        -1,
                        1,
                        Effect{buffers, buffers}});
  }

  /// How far off the figures may be where other optimizers of ONNX Runtime have something to do: buffers that a fusion
  /// saves, weights that are stored in another form beside the first.
  void note_optimizers() {
    if (prepared_.arranged.may_change.empty() && !prepared_.arranged.rearranged) return;
    const Bytes buffers = largest_buffer() * 4;
    Bytes weights;
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (plan_.own[i] == Own::weight) weights += Bytes(bytes_[i]);
    if (prepared_.arranged.rearranged) {
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
    for (const std::string& op : prepared_.arranged.may_change) ops += (ops.empty() ? "" : ", ") + op;
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

  /// Which values the nodes of this session read.
  void find_read() {
    read_.assign(graph().values.size(), false);
    for (std::size_t k = 0; k < first_; ++k)
      for (const GraphValueId id : graph().nodes[k].inputs)
        if (id >= 0) read_[static_cast<std::size_t>(id)] = true;
  }
  bool takes(GraphValueId id, Own own) const {
    const auto i = static_cast<std::size_t>(id);
    return plan_.own[i] == own && (read_[i] || first_ == graph().nodes.size());
  }

  void load_weights() {
    begin_op("session", Phase::setup, 0);
    std::vector<GraphValueId> weights;
    for (const auto& [id, tensor] : graph().initializers)
      if (takes(id, Own::weight)) weights.push_back(id);
    if (order_seed_ != 0) std::shuffle(weights.begin(), weights.end(), std::mt19937(order_seed_));
    for (const GraphValueId id : weights) allocate_value(id, Category::parameter, 0);
    for (const auto& [node, bytes] : kept_)
      if (node < first_) allocate(bytes, Category::workspace, 0, graph().nodes[node].name);
  }

  void one_run(std::int64_t step) {
    std::vector<std::int32_t> inputs, outputs;
    begin_op("inputs", Phase::data, step);
    for (const GraphValueId id : graph().inputs)
      if (takes(id, Own::input)) inputs.push_back(allocate_value(id, Category::input, step));
    const bool pattern = setup_.ort.memory_pattern && step > 1;
    std::int32_t block = -1;
    if (pattern) {
      begin_op("memory pattern", Phase::forward, step);
      block = allocate(pattern_.bytes(), Category::activation, step, "memory pattern: all buffers of a run");
    }
    for (std::size_t k = 0; k < first_; ++k) run_node(k, step, pattern, outputs);
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
  const Prepared& prepared_;
  const Placed& placed_;
  const onnx_format::InferredValues& inferred_;
  std::uint32_t order_seed_;
  const std::vector<DType>& types_;
  BufferPlan plan_;
  std::vector<std::int64_t> bytes_;                                   ///< by value
  std::vector<std::vector<std::int64_t>> scratch_;                    ///< by node
  std::vector<std::pair<std::size_t, std::int64_t>> kept_;            ///< what kernels keep for the session, by node
  std::vector<std::int64_t> ones_;                                    ///< by node
  std::map<DType, std::pair<std::int64_t, std::int32_t>> kept_ones_;  ///< bytes and allocation
  MemoryPattern pattern_;
  std::size_t first_ = 0;                      ///< nodes that run on the device
  std::vector<bool> read_;                     ///< by value
  std::map<GraphValueId, std::int32_t> held_;  ///< buffers of the run, as allocations
  std::unordered_map<std::string, std::int32_t> names_;
  std::map<GraphValueId, std::int32_t> shapes_;
  Schedule s_;
};

}  // namespace

Schedule schedule_of(const BoundGraph& bound, const TrainingSetup& setup, const Device& device,
                     const Reading& reading) {
  return Session(bound, setup, device, reading).run();
}

void for_first_nodes(const BoundGraph& bound, const TrainingSetup& setup, const Device& device, const Reading& reading,
                     const std::vector<std::size_t>& counts,
                     const std::function<void(std::size_t, const Schedule&)>& use) {
  const Session whole(bound, setup, device, reading);
  for (const std::size_t count : counts) use(count, Session(whole).run(count));
}

}  // namespace memplan::ort
