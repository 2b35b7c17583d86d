// Reads setups, one JSON object per line ({"path": "data/models/mlp.onnx", "batch": 8, "seq": 128, "precision":
// "amp-bf16"}), and answers each with the floating-point operations that the planner's table counts, in all and by op.
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "estimators/base/unwrap.h"
#include "planner/cost/profile.h"

using namespace memplan;
using nlohmann::json;

namespace {

json cost_of(const json& run) {
  TrainingSetup setup;
  setup.batch = run.at("batch").get<std::int64_t>();
  if (run.contains("seq") && run["seq"].is_number()) setup.sequence = run["seq"].get<std::int64_t>();
  const std::string precision = run.value("precision", "fp32");
  setup.precision = precision == "amp-bf16" ? Precision::amp_bf16
                    : precision == "bf16"   ? Precision::bf16
                                            : Precision::fp32;
  if (run.value("checkpoint", "") != "") setup.checkpoint = {run["checkpoint"].get<std::string>()};
  const Tape tape = unwrap(tape_of(unwrap(load_model(run.at("path").get<std::string>())), setup));
  const Device device = choose_device("h100-80gb").device;
  const Profile p = unwrap(profile(tape, setup, device));
  json answer{
      {"forward", p.forward_flops}, {"backward", p.backward_flops}, {"again", p.again_flops}, {"peak", p.peak.count}};
  for (const CallWork& w : p.calls) {
    if (w.call < 0 || w.forward_flops == 0) continue;
    json& op = answer["ops"][tape.calls[static_cast<std::size_t>(w.call)].op];
    if (op.is_null()) op = {{"calls", 0}, {"forward", 0.0}, {"backward", 0.0}};
    op["calls"] = op["calls"].get<int>() + 1;
    op["forward"] = op["forward"].get<double>() + w.forward_flops;
    op["backward"] = op["backward"].get<double>() + w.backward_flops;
  }
  return answer;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    json answer;
    try {
      answer = cost_of(json::parse(line));
    } catch (const Failure& f) {
      answer["error"] = f.error().what;
    } catch (const std::exception& f) {
      answer["error"] = f.what();
    }
    std::cout << answer.dump() << std::endl;
  }
}
