// The minimum cut and what it says of joint graphs that are small enough to be cut by hand.
#include <doctest/doctest.h>

#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"
#include "estimators/runtime/torch/compiled/joint.h"
#include "estimators/runtime/torch/compiled/knapsack.h"
#include "estimators/runtime/torch/compiled/min_cut.h"
#include "estimators/runtime/torch/compiled/partition.h"
#include "estimators/runtime/torch/compiled/passes.h"
#include "estimators/runtime/torch/compiled/plan.h"
#include "estimators/runtime/torch/step/inspect_forward.h"

using namespace memplan;
using namespace memplan::compiled;

namespace {

NodeId node(JointGraph& g, std::string_view op, std::vector<NodeId> inputs, std::int64_t floats,
            std::string constants = {}) {
  JointNode n;
  n.op = &op_row(op);
  n.inputs = std::move(inputs);
  n.constants = std::move(constants);
  n.sizes = n.strides = Dims{floats};
  n.strides[0] = 1;
  n.bytes = 4 * floats;
  g.nodes.push_back(n);
  const auto id = static_cast<NodeId>(g.nodes.size() - 1);
  g.at(id).storage = id;
  return id;
}

NodeId primal(JointGraph& g, std::int64_t floats, bool constant) {
  const NodeId id = node(g, "input", {}, floats);
  g.primals.push_back(id);
  g.gradients.push_back(-1);
  if (constant) g.constants.push_back(id);
  return id;
}

NodeId tangent(JointGraph& g, std::int64_t floats) {
  const NodeId id = node(g, "input", {}, floats);
  g.tangents.push_back(id);
  return id;
}

}  // namespace

TEST_CASE("min cut: of two cuts that are as small, the one nearest to the sink") {
  // 0 -5-> 1 -3-> 2 -3-> 3: both inner edges cost 3.
  const MinCut cut = min_cut(4, {{0, 1, 5}, {1, 2, 3}, {2, 3, 3}}, 0, 3);
  CHECK(cut.bounded);
  CHECK(cut.reaches_sink == std::vector<bool>{false, false, false, true});
}

TEST_CASE("min cut: flow that has to be taken back") {
  // 0 -> 1, 2 -> 3 with a bridge 1 -> 2; the greatest flow is 2 + 2 = 4, all out of the source.
  const MinCut cut = min_cut(4, {{0, 1, 2}, {0, 2, 2}, {1, 2, 1}, {1, 3, 3}, {2, 3, 3}}, 0, 3);
  CHECK(cut.bounded);
  CHECK_FALSE(cut.reaches_sink[0]);
  CHECK(cut.reaches_sink[1]);
  CHECK(cut.reaches_sink[2]);
}

TEST_CASE("min cut: a path without a limit ends the search") {
  CHECK_FALSE(min_cut(3, {{0, 1, unlimited}, {1, 2, unlimited}}, 0, 2).bounded);
  // Beside one with a limit, whichever is found first.
  CHECK_FALSE(min_cut(4, {{0, 1, 7}, {1, 3, 7}, {0, 2, unlimited}, {2, 3, unlimited}}, 0, 3).bounded);
  CHECK_FALSE(min_cut(4, {{0, 2, unlimited}, {2, 3, unlimited}, {0, 1, 7}, {1, 3, 7}}, 0, 3).bounded);
}

namespace {

/// y = mm(x, w); r = relu(y); s = mul(r, 2); out = mm(s, v), with a mask of `mask` floats in the backward pass, which
/// reads s (for v), r (for the mask) and x (for w). Returns what is kept and the nodes y, s and mask.
std::pair<std::vector<NodeId>, std::vector<NodeId>> kept_of_chain(std::int64_t mask) {
  JointGraph g;
  const NodeId x = primal(g, 500, false), w = primal(g, 10, true), v = primal(g, 10, true);
  const NodeId y = node(g, "mm", {x, w}, 1000), r = node(g, "relu", {y}, 1000), s = node(g, "mul", {r}, 1000, "2f");
  g.outputs = {node(g, "mm", {s, v}, 100)};
  const NodeId t = tangent(g, 100);
  const NodeId dv = node(g, "mm", {s, t}, 10), ds = node(g, "mm", {t, v}, 1000), dr = node(g, "mul", {ds}, 1000, "2f");
  const NodeId le = node(g, "le", {r}, mask), dy = node(g, "where", {le, dr}, 1000), dw = node(g, "mm", {x, dy}, 10);
  g.gradients = {-1, dw, dv};
  const Partition p = partition(g);
  CHECK(p.cut);
  return {p.saved, {x, v, y, s, le}};
}

}  // namespace

// Weights are bytes * 1.1^distance, where the distance is that to the backward pass and at least 1, and twice that of
// what would not be in memory anyway, because only pointwise nodes read it (get_node_weight). s is read by a product of
// the backward pass, so it would have to be written again: it may not be computed again (should_ban_recomputation,
// materialized in the backward pass) and is kept, whatever else is. Between y and the mask one more has to be:
//   y     4000 * 1.1^2 = 4840: a product wrote it
//   r     2 * 4000 * 1.1 = 8800
//   mask  2 * its bytes * 1.1
TEST_CASE("partition: a pointwise chain is computed again from what a product left") {
  const auto [saved, n] = kept_of_chain(1000);  // the mask costs 8800
  CHECK(saved == std::vector<NodeId>{n[0], n[1], n[2], n[3]});
}

TEST_CASE(
    "partition: a mask of a quarter of the bytes is kept instead, as PyTorch 2.11 keeps that of (relu(x @ w) * 2) @ "
    "v") {
  const auto [saved, n] = kept_of_chain(250);  // the mask costs 2200
  CHECK(saved == std::vector<NodeId>{n[0], n[1], n[3], n[4]});
}

TEST_CASE("partition: a path without a limit ends, and all that the backward pass reads is kept") {
  // A kernel with several results may neither be computed again nor be kept as one, and the gradient reads it itself.
  JointGraph g;
  const NodeId x = primal(g, 1000, false), e = node(g, "exp", {x}, 1000), k = node(g, "guessed", {e}, 1000);
  g.at(k).several = true;
  g.outputs = {node(g, "mul", {e, k}, 1000)};
  const NodeId t = tangent(g, 1000), a = node(g, "mul", {t, k}, 1000);
  g.gradients = {node(g, "mul", {a, e}, 1000)};
  const Partition p = partition(g);
  CHECK_FALSE(p.cut);
  CHECK(p.saved == std::vector<NodeId>{e});
}

TEST_CASE("partition: a reduction to less than a quarter is kept, what is around it is not") {
  // m = mean(x) of 4000 bytes to 4: kept. The gradient of x * m reads both; x is an input and stays as it is.
  JointGraph g;
  const NodeId x = primal(g, 1000, false);
  const NodeId e = node(g, "exp", {x}, 1000), m = node(g, "mean", {e}, 1), y = node(g, "mul", {e, m}, 1000);
  const NodeId out = node(g, "sum", {y}, 1);
  g.outputs = {out};
  const NodeId t = tangent(g, 1), spread = node(g, "expand", {t}, 1000), a = node(g, "mul", {spread, m}, 1000);
  const NodeId dx = node(g, "mul", {a, e}, 1000);
  g.gradients = {dx};
  const Partition p = partition(g);
  CHECK(p.saved == std::vector<NodeId>{x, m});
  CHECK(p.backward[static_cast<std::size_t>(e)]);
}

// As torch._functorch._activation_checkpointing.knapsack.dp_knapsack of PyTorch 2.11 answers.
TEST_CASE("knapsack: what is kept is dearest to compute again, with ties and rounding as PyTorch has them") {
  const std::vector<double> memory{0.0952, 0.2177, 0.148, 0.2416, 0.2503, 0.0262, 0.0053, 0.335};
  const std::vector<double> costs{5, 13, 1, 1, 100, 8, 13, 13};
  CHECK(worth_keeping(memory, costs, 0.9) == std::vector<bool>{0, 1, 0, 0, 1, 1, 1, 1});
  CHECK(worth_keeping(memory, costs, 0.5) == std::vector<bool>{0, 1, 0, 0, 1, 1, 1, 0});
  CHECK(worth_keeping(memory, costs, 0.2) == std::vector<bool>{1, 0, 0, 0, 0, 1, 1, 0});
  CHECK(worth_keeping(memory, costs, 0.05) == std::vector<bool>{0, 0, 0, 0, 0, 1, 1, 0});
  CHECK(worth_keeping({0.25, 0.25, 0.25, 0.25}, {1, 1, 1, 1}, 0.5) == std::vector<bool>{1, 1, 0, 0});
  CHECK(worth_keeping({0.00001, 0.5, 0.6}, {1, 7, 7}, 0.6) == std::vector<bool>{1, 1, 0});
  CHECK(worth_keeping({0.00005, 0.00015}, {1, 2}, 0.0002) == std::vector<bool>{1, 1});
}

TEST_CASE("simplify: equal nodes are one, random numbers are not, and what nobody reads goes") {
  JointGraph g;
  const NodeId x = primal(g, 8, false);
  const NodeId a = node(g, "exp", {x}, 8), b = node(g, "exp", {x}, 8);
  const NodeId r = node(g, "inductor_random", {}, 8), q = node(g, "inductor_random", {}, 8);
  const NodeId one = node(g, "add", {a, r}, 8), two = node(g, "add", {b, q}, 8);
  node(g, "cos", {x}, 8);
  g.outputs = {node(g, "sub", {one, two}, 8)};
  CHECK(simplify(g).nodes.size() == 7);  // x, exp, two random ones, two sums, the difference
}

TEST_CASE("saved values: bytes that PyTorch 2.11's partitioner keeps, as tests/recording/saved_values.py wrote them") {
  struct Truth {
    const char* name;
    std::int64_t whole, half, tenth;  ///< under an activation_memory_budget of 1, 0.5 and 0.1
  };
  for (const Truth truth : {Truth{"alexnet", 9874432, 4793344, 823296},
                            {"squeezenet1_1", 52153248, 23687328, 3098784},
                            {"resnet18", 80428544, 39785984, 8028160},
                            {"efficientnet_b0", 215095332, 107199936, 21424064},
                            {"convnext_tiny", 434148980, 215635892, 42749952},
                            {"vit_b_16", 496861408, 246915072, 48414720}}) {
    CAPTURE(truth.name);
    const Model model = unwrap(load_model(std::string(MEMPLAN_SOURCE_DIR) + "/data/models/pt2/" + truth.name + ".pt2"));
    TrainingSetup setup;
    setup.compile = true;
    setup.batch = 4;
    const Device device = choose_device("h100-80gb").device;
    inspect_forward(unwrap(tape_of(model, setup)), setup, device, [&](const Run& run, const Environment& env) {
      const Joint joint = joint_graph(run, unwrap(tape_of(model, setup)), env);
      const auto kept = [&](double budget) {
        std::int64_t bytes = 0;
        for (const NodeId id : partition(joint.graph, budget).saved)
          if (joint.graph.at(id).op->kind != Kind::input) bytes += joint.graph.at(id).bytes;
        return bytes;
      };
      CHECK(kept(1) == truth.whole);
      CHECK(kept(0.5) == truth.half);
      CHECK(kept(0.1) == truth.tenth);
      CHECK(kept(0) == 0);
      CHECK(joint.graph.guessed.empty());
    });
  }
}

TEST_CASE("a graph file is compiled on paper: modelled, with a range both ways, and strategies are refused") {
  const Model model = unwrap(load_model(std::string(MEMPLAN_SOURCE_DIR) + "/data/models/pt2/resnet18.pt2"));
  TrainingSetup setup;
  setup.compile = true;
  setup.batch = 4;
  const Device device = choose_device("h100-80gb").device;
  const Tape tape = unwrap(tape_of(model, setup));
  const Estimate e = unwrap(with_range(model, tape, setup, device, unwrap(estimate_tape(tape, setup, device))));
  CHECK(e.requested_basis == Basis::modelled);
  CHECK(e.low.requested < e.peak.requested);
  CHECK(e.high.requested > e.peak.requested);
  // Steps that train keep what the backward pass reads: weights, their gradients and two moments, and what is saved.
  CHECK(e.peak.requested.count > 4 * 4 * 11'689'512 + 80'428'544);
  setup.checkpoint = {"blocks"};
  CHECK_FALSE(tape_of(model, setup).ok());
}

// torch/_inductor/config.py of 2.11: realize_reads_threshold = 4. Each sum of a residual stream is read by a product
// and by the next sum: the fourth would read five tensors, so it is written, and what it read goes.
TEST_CASE("plan: a sum that reads five tensors and is read twice is written to memory") {
  JointGraph g;
  const NodeId x = primal(g, 1000, false), w = primal(g, 10, true);
  NodeId sum = x;
  for (int i = 0; i < 5; ++i) sum = node(g, "add", {sum, node(g, "mm", {sum, w}, 1000)}, 1000);
  g.outputs = {node(g, "mm", {sum, w}, 10)};
  Partition p;
  p.forward.assign(g.nodes.size(), true);
  p.backward.assign(g.nodes.size(), false);
  const Pass forward = plan(g, p, Fusion::whole).forward;
  CHECK(std::ranges::none_of(forward.buffers, [&](const Buffer& b) { return g.at(b.node).bytes == 0; }));
  CHECK(forward.peak == 4 * 1000 * 2);
}

TEST_CASE("plan: a fused kernel writes over what it reads last") {
  JointGraph g;
  const NodeId x = primal(g, 1000, false), w = primal(g, 10, true);
  const NodeId y = node(g, "mm", {x, w}, 1000), s = node(g, "relu", {y}, 1000), out = node(g, "mm", {s, w}, 10);
  g.outputs = {out};
  Partition p;
  p.forward.assign(g.nodes.size(), true);
  p.backward.assign(g.nodes.size(), false);
  CHECK(plan(g, p, Fusion::whole).forward.peak == 4 * 1010);
  CHECK(plan(g, p, Fusion::little).forward.peak == 4 * 2000);
}
