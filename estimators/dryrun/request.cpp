#include "estimators/dryrun/request.h"

#include <nlohmann/json.hpp>
#include <string>

#include "estimators/base/error.h"
#include "estimators/tape/tape_json.h"

namespace memplan {

using nlohmann::json;

namespace {

json setup_to_json(const TrainingSetup& s) {
  // Both ends are built from the same headers, so enumerations travel as numbers.
  return {{"mode", static_cast<int>(s.mode)},
          {"precision", static_cast<int>(s.precision)},
          {"loss", static_cast<int>(s.loss)},
          {"optimizer",
           {{"kind", static_cast<int>(s.optimizer.kind)},
            {"impl", static_cast<int>(s.optimizer.impl)},
            {"momentum", s.optimizer.momentum},
            {"nesterov", s.optimizer.nesterov},
            {"weight_decay", s.optimizer.weight_decay},
            {"amsgrad", s.optimizer.amsgrad}}},
          {"accumulate", s.accumulate},
          {"clip", s.clip_grad_norm},
          {"zero_grad", static_cast<int>(s.zero_grad)},
          {"attention", static_cast<int>(s.attention)},
          {"keep_loss_history", s.keep_loss_history},
          {"empty_cache", s.empty_cache},
          {"channels_last", s.channels_last},
          {"offload", {s.offload.activations, s.offload.optimizer}},
          {"steps", s.steps}};
}

TrainingSetup setup_from_json(const json& j) {
  TrainingSetup s;
  s.mode = static_cast<Mode>(j.at("mode").get<int>());
  s.precision = static_cast<Precision>(j.at("precision").get<int>());
  s.loss = static_cast<Loss>(j.at("loss").get<int>());
  const json& o = j.at("optimizer");
  s.optimizer.kind = static_cast<OptimizerKind>(o.at("kind").get<int>());
  s.optimizer.impl = static_cast<OptimizerImpl>(o.at("impl").get<int>());
  s.optimizer.momentum = o.at("momentum").get<double>();
  s.optimizer.nesterov = o.at("nesterov").get<bool>();
  s.optimizer.weight_decay = o.at("weight_decay").get<double>();
  s.optimizer.amsgrad = o.at("amsgrad").get<bool>();
  s.accumulate = j.at("accumulate").get<std::int64_t>();
  s.clip_grad_norm = j.at("clip").get<bool>();
  s.zero_grad = static_cast<ZeroGrad>(j.at("zero_grad").get<int>());
  s.attention = static_cast<AttentionBackend>(j.at("attention").get<int>());
  s.keep_loss_history = j.value("keep_loss_history", false);
  s.empty_cache = j.value("empty_cache", false);
  s.channels_last = j.value("channels_last", false);
  const json& offload = j.at("offload");
  s.offload.activations = offload.at(0).get<bool>();
  s.offload.optimizer = offload.at(1).get<bool>();
  s.steps = j.at("steps").get<std::int64_t>();
  return s;
}

json to_json(const DryRunTensor& t) { return {{"dtype", name_of(t.dtype)}, {"sizes", t.sizes}}; }

DryRunTensor tensor_from_json(const json& j) {
  const auto dtype = dtype_from_name(j.at("dtype").get<std::string>());
  if (!dtype) fail_input("a tensor of the request has an unknown dtype");
  return {*dtype, j.at("sizes").get<std::vector<std::int64_t>>()};
}

}  // namespace

json to_json(const DryRunRequest& r) {
  json j{{"tape", to_json(r.tape)}, {"setup", setup_to_json(r.setup)}, {"events", r.events}};
  j["target"] = r.target ? to_json(*r.target) : json(nullptr);
  j["kv_cache"] = json::array();
  for (const DryRunTensor& t : r.kv_cache) j["kv_cache"].push_back(to_json(t));
  j["hidden_matrices"] = json::array();
  for (ValueId id : r.hidden_matrices) j["hidden_matrices"].push_back(id.index);
  return j;
}

DryRunRequest request_from_json(const json& j) try {
  DryRunRequest r;
  r.tape = tape_from_json(j.at("tape"));
  r.setup = setup_from_json(j.at("setup"));
  r.events = j.value("events", true);
  if (const json& t = j.at("target"); t.is_object()) r.target = tensor_from_json(t);
  for (const json& t : j.value("kv_cache", json::array())) r.kv_cache.push_back(tensor_from_json(t));
  for (const json& id : j.value("hidden_matrices", json::array())) {
    r.hidden_matrices.push_back(ValueId{id.get<std::int32_t>()});
    if (id.get<std::int64_t>() < 0 || id.get<std::size_t>() >= r.tape.values.size())
      fail_input("the request names a value that its tape does not have");
  }
  return r;
} catch (const json::exception& e) {
  fail_input(std::string("the request of a dry run is not as expected: ") + e.what());
}

}  // namespace memplan
