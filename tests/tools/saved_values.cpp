// What memplan says a compiled module keeps for its backward pass, for comparison with PyTorch's partitioner
// (tests/recording/saved_values.py): saved_values FILE.pt2 BATCH PRECISION [BUDGET [--graph]] prints one JSON object.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"
#include "estimators/runtime/torch/compiled/joint.h"
#include "estimators/runtime/torch/compiled/partition.h"
#include "estimators/runtime/torch/step/inspect_forward.h"
#include "estimators/setup/names.h"

using namespace memplan;
using nlohmann::json;

namespace {

json described(const compiled::JointNode& n) {
  return {std::string(n.op->name), std::string(name_of(n.dtype)), n.sizes.vector()};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: saved_values FILE BATCH PRECISION [BUDGET [--graph]]\n";
    return 2;
  }
  const Model model = unwrap(load_model(argv[1]));
  TrainingSetup setup;
  setup.batch = std::stoll(argv[2]);
  const std::string precision = argv[3];
  setup.precision = precision == "bf16"       ? Precision::bf16
                    : precision == "amp-bf16" ? Precision::amp_bf16
                                              : Precision::fp32;
  const auto device = choose_device("h100-80gb").device;
  Reading reading;
  reading.masks = MaskReading::traced;
  reading.in_place = InPlaceReading::never;
  json out;
  try {
    const Tape tape = unwrap(tape_of(model, setup, reading));
    inspect_forward(tape, setup, device, [&](const Run& run, const Environment& env) {
      const auto began = std::chrono::steady_clock::now();
      const compiled::Joint joint = compiled::joint_graph(run, tape, env);
      const auto traced = std::chrono::steady_clock::now();
      const compiled::Partition p = compiled::partition(joint.graph, argc > 4 ? std::stod(argv[4]) : 1.0);
      const auto cut = std::chrono::steady_clock::now();
      std::int64_t bytes = 0;
      json saved = json::array();
      for (const compiled::NodeId id : p.saved) {
        const compiled::JointNode& n = joint.graph.at(id);
        if (n.op->kind == compiled::Kind::input) continue;
        bytes += n.bytes;
        saved.push_back(described(n));
      }
      out = {{"bytes", bytes},
             {"saved", saved},
             {"guessed", joint.graph.guessed},
             {"nodes", joint.graph.nodes.size()},
             {"trace_ms", std::chrono::duration<double>(traced - began).count() * 1000},
             {"cut_ms", std::chrono::duration<double>(cut - traced).count() * 1000}};
      if (argc < 6) return;
      const auto all = json::array();
      json nodes = json::array();
      for (compiled::NodeId id = 0; static_cast<std::size_t>(id) < joint.graph.nodes.size(); ++id) {
        const auto& n = joint.graph.at(id);
        nodes.push_back({id, std::string(n.op->name), n.constants, n.inputs, std::string(name_of(n.dtype)),
                         n.sizes.vector(), n.strides.vector(),
                         std::find(p.saved.begin(), p.saved.end(), id) != p.saved.end(), n.backward});
      }
      out["graph"] = nodes;
      out["outputs"] = joint.graph.outputs;
    });
  } catch (const Failure& failure) {
    out = {{"error", failure.error().what}, {"where", failure.error().where}};
  }
  std::cout << out << "\n";
  return 0;
}
