#include "estimators/runtime/torch/compiled/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "estimators/runtime/torch/compiled/prims.h"

namespace memplan::compiled {

struct CompiledModule::State {
  Joint joint;
  Partition partition;
  PassPlans plans;
  std::vector<std::int32_t> scopes;  ///< by node: index into Tape::scopes
};

namespace {

std::size_t position(std::int32_t i) { return static_cast<std::size_t>(i); }

/// Tensors of a pass by buffer.
using Memory = TensorList;

Tensor made(Run& r, const JointNode& n, Category category) {
  return r.empty_strided(n.sizes, n.strides, n.dtype, category);
}

/// Another tensor in the same memory.
Tensor over(Run& r, const Tensor& old, const JointNode& n) {
  Tensor t = r.alias(old, n.sizes, n.strides, 0);
  t->dtype = n.dtype;
  return t;
}

class PassRun {
 public:
  PassRun(Run& r, const JointGraph& g, const Pass& pass, const std::vector<std::int32_t>& scopes)
      : r_(r), g_(g), pass_(pass), scopes_(scopes), memory_(pass.buffers.size()) {}

  void hand_in(std::size_t buffer, Tensor t) { memory_[buffer] = std::move(t); }

  void run(const std::vector<bool>& kept, Category kept_category) {
    for (const Kernel& k : pass_.kernels) {
      const JointNode& n = g_.at(k.node);
      r_.scope = scopes_[position(k.node)];
      r_.call = n.call;
      r_.begin_op(fmt::format("compiled: {}", n.op->name == "getitem" ? g_.at(n.inputs[0]).op->name : n.op->name));
      for (const std::int32_t b : k.allocates) {
        const Buffer& buffer = pass_.buffers[position(b)];
        const JointNode& result = g_.at(buffer.node);
        const Category category = kept[position(buffer.node)] ? kept_category : Category::temporary;
        Tensor& t = memory_[position(b)];
        t = buffer.takes_over >= 0 ? over(r_, memory_[position(buffer.takes_over)], result)
                                   : made(r_, result, category);
        if (buffer.takes_over >= 0) r_.set_category(t, category);
        r_.label(t, n.op->name);
      }
      use_libraries(n);
      for (const std::int32_t b : k.frees) memory_[position(b)].reset();
    }
  }

  /// What the kernels of libraries take while they run.
  void use_libraries(const JointNode& n) {
    if (n.scratch > 0) r_.scratch(Bytes(n.scratch), Category::workspace);
    if (n.op->name == "mm" || n.op->name == "bmm") r_.use_cublas();
    if (n.op->name != "addmm") return;
    // As op::addmm: with a bias of one dimension cuBLASLt.
    const Dims& b = g_.at(n.inputs[2]).sizes;
    if (g_.at(n.inputs[0]).sizes.size() == 1 && b[0] > 1 && b[1] > 1)
      r_.use_cublas_lt();
    else
      r_.use_cublas();
  }

  /// By node: something of `ids` lies in its buffer.
  std::vector<bool> where(const std::vector<NodeId>& ids) const {
    std::vector<bool> marks(g_.nodes.size(), false);
    for (const NodeId id : ids)
      if (id >= 0) marks[position(lies_in(id))] = true;
    return marks;
  }

  /// The tensor of a node; a view of where it lies.
  Tensor value(NodeId id) const {
    const NodeId from = lies_in(id);
    const std::int32_t b = pass_.of_node[position(from)];
    if (b < 0 || !memory_[position(b)]) return {};
    return from == id ? memory_[position(b)] : over(r_, memory_[position(b)], g_.at(id));
  }

 private:
  NodeId lies_in(NodeId id) const {
    while (pass_.of_node[position(id)] < 0 && !g_.at(id).inputs.empty()) id = g_.at(id).inputs[0];
    return id;
  }

  Run& r_;
  const JointGraph& g_;
  const Pass& pass_;
  const std::vector<std::int32_t>& scopes_;
  Memory memory_;
};

/// Of the largest buffer that a pass makes.
std::int64_t largest_buffer(const JointGraph& g, const PassPlans& plans) {
  std::int64_t most = 0;
  for (const Pass* pass : {&plans.forward, &plans.backward})
    for (const Kernel& k : pass->kernels)
      for (const std::int32_t b : k.allocates)
        most = std::max(most, g.at(pass->buffers[position(b)].node).bytes + g.at(k.node).scratch);
  return most;
}

/// torch/_inductor/fx_passes/pad_mm.py: a product whose sizes are no multiples of 16 bytes may run on padded copies,
/// which PyTorch decides by timing both. The most that one of them adds.
std::int64_t most_padding(const JointGraph& g) {
  std::int64_t most = 0;
  for (const JointNode& n : g.nodes) {
    if (n.op->name != "mm" && n.op->name != "bmm" && n.op->name != "addmm") continue;
    const JointNode& a = g.at(n.inputs[n.inputs.size() - 2]);
    const JointNode& b = g.at(n.inputs.back());
    const std::int64_t align = prim::is_half(n.dtype) ? 8 : 4;
    const Dims& left = a.sizes;
    const bool aligned = left[left.size() - 2] % align == 0 && left.back() % align == 0 && b.sizes.back() % align == 0;
    if (!aligned) most = std::max(most, a.bytes + b.bytes + n.bytes);
  }
  return most;
}

std::int64_t kept_bytes(const JointGraph& g, const Partition& p) {
  std::int64_t bytes = 0;
  for (const NodeId id : p.saved)
    if (g.at(id).op->kind != Kind::input) bytes += g.at(id).bytes;
  return bytes;
}

}  // namespace

CompiledModule::CompiledModule(Run& run, const Tape& tape, const Environment& env, double budget) {
  auto state = std::make_shared<State>();
  state->joint = joint_graph(run, tape, env);
  state->partition = partition(state->joint.graph, budget);
  const bool laid = in_layout(state->joint.graph, state->partition);
  for (Fact& f : laid ? state->joint.notes_in_layout : state->joint.notes) note(run.schedule.notes, std::move(f));
  const JointGraph& g = state->joint.graph;
  state->plans = plan(g, state->partition, Fusion::whole);
  const PassPlans little = plan(g, state->partition, Fusion::little);
  const std::int64_t apart = std::max({std::int64_t{0}, little.forward.peak - state->plans.forward.peak,
                                       little.backward.peak - state->plans.backward.peak});
  // Which of them are written in place, and in which order they run, moves the peak by a buffer.
  const std::int64_t one = largest_buffer(g, state->plans);
  for (const JointNode& n : g.nodes) state->scopes.push_back(n.call >= 0 ? tape.calls[position(n.call)].scope : -1);
  run.note("torch.compile", About::op, Evidence::assumed,
           "what the compiler fuses, and what libraries take beside it, may differ",
           Effect{Bytes(one), Bytes(apart + one)});
  if (run.profile.version != "2.11")
    run.note("torch.compile", About::version, Evidence::assumed,
             "the compiler is taken to decide as that of PyTorch 2.11");
  run.note("torch.compile", About::program, Evidence::assumed,
           "the graph compiles whole: a file shows neither graph breaks nor CUDA graphs, and the compiler's own trials "
           "in the first step are not counted");
  if (const std::int64_t padding = most_padding(g); padding > 0)
    run.note("torch.compile", About::op, Evidence::assumed,
             "matrix products with odd sizes may be padded, which PyTorch decides by timing them on the device",
             Effect{Bytes(), Bytes(padding)});
  if (!state->partition.cut)
    run.note("torch.compile", About::op, Evidence::assumed,
             "what is kept for the backward pass is not known: all that it reads is taken to be kept",
             Effect{Bytes(kept_bytes(g, state->partition)), Bytes()});
  for (const auto& [op, bytes] : g.guessed)
    run.note(op, About::op, Evidence::assumed, "how it is compiled is not known: a kernel of its own",
             Effect{Bytes(bytes), Bytes(bytes)});
  state_ = std::move(state);
}

CompiledModule::~CompiledModule() = default;

void CompiledModule::forward(Run& r, const Tape& tape, Environment& env) {
  const std::shared_ptr<const State> state = state_;
  const JointGraph& g = state->joint.graph;
  TensorList inputs = state->joint.primals;
  // The batch is another one in every step.
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (state->joint.inputs[i] >= 0) inputs[i] = env.values[position(state->joint.inputs[i])].tensor();
  TensorList outputs;
  auto saved = std::make_shared<TensorList>();
  {
    PassRun pass(r, g, state->plans.forward, state->scopes);
    pass.run(pass.where(state->partition.saved), Category::activation);
    for (const NodeId id : g.outputs) {
      Tensor t = pass.value(id);
      if (t && t->refs > 1) t = r.detach(t);
      outputs.push_back(t ? t : r.empty(g.at(id).sizes, g.at(id).dtype));
    }
    for (const NodeId id : state->partition.saved)
      if (g.at(id).op->kind != Kind::input) saved->push_back(pass.value(id));
  }
  r.scope = r.call = -1;
  r.begin_op("CompiledFunction");
  r.record(inputs, outputs, [state, saved](Run& r, Node&, TensorList&) {
    const JointGraph& g = state->joint.graph;
    PassRun pass(r, g, state->plans.backward, state->scopes);
    for (std::size_t i = 0; i < saved->size(); ++i) pass.hand_in(i, std::move((*saved)[i]));
    saved->clear();
    pass.run(pass.where(g.gradients), Category::gradient);
    TensorList gradients;
    for (const NodeId id : g.gradients) gradients.push_back(id < 0 ? Tensor() : pass.value(id));
    return gradients;
  });
  for (std::size_t i = 0; i < state->joint.outputs.size(); ++i)
    env.values[position(state->joint.outputs[i])] = outputs[i];
  (void)tape;
}

}  // namespace memplan::compiled
