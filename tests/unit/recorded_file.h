// A recording written by hand, for tests.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "estimators/setup/setup.h"
#include "tests/unit/scratch_archive.h"

namespace memplan::recorded_file {

using nlohmann::json;

/// A weight of 4096 bytes; per step an input of 64 bytes a sample, an activation of 1000 a sample and 24, and a
/// temporary; at the end of the step the activation goes.
inline json program(json batches, json temporaries) {
  json sizes = json::array();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const std::int64_t b = batches[i];
    sizes.push_back({4096, 64 * b, 1000 * b + 24, temporaries[i], 64 * b, 1000 * b + 24, temporaries[i]});
  }
  return {{"batches", batches},
          {"sizes", sizes},
          {"streams", json::array()},
          {"categories", {0, 7, 4, 5, 7, 4, 5}},
          {"labels", {3, -1, -1, -1, -1, -1, -1}},
          {"events", {1, 2, 3, 4, -4, -3, 5, -2, 6, 7, -7, -6}},
          {"ops",
           {{0, -1, 0, 0, 0, -1}, {1, -1, 1, 1, 1, -1}, {4, 1, 2, 1, 2, 7}, {1, -1, 1, 2, 6, -1}, {4, 1, 2, 2, 8, 9}}},
          {"steps", {1, 6}}};
}

inline json run_body(json programs) {
  return {{"strings", {"setup", "data", "forward", "weight", "aten::mm", "net.Net", "layer", "net.Layer", ""}},
          {"scopes", {{8, 5, -1, 0}, {6, 7, 0, 0}}},
          {"programs", std::move(programs)}};
}

inline json index_of(json batches) {
  const json setup = {{"mode", "inference"}, {"precision", "fp32"}, {"optimizer", "adamw"}, {"impl", "auto"},
                      {"momentum", 0.0},     {"nesterov", false},   {"amsgrad", false},     {"weight_decay", 0.01},
                      {"accumulate", 1},     {"clip", false},       {"zero_grad", "begin"}, {"loss", "auto"},
                      {"steps", 2}};
  return {{"format", "memplan recording"},
          {"version", 1},
          {"torch", "2.11.0"},
          {"gpu", "h100-80gb"},
          {"evidence", "emulated device"},
          {"model",
           {{"class", "net.Net"},
            {"parameters", {{"weight", "float32", {32, 32}, 1, ""}, {"tied", "float32", {32, 32}, 1, "weight"}}},
            {"buffers", json::array()}}},
          {"inputs", {{"x", "float32", {batches.at(0), 16}}}},
          {"open", json::array({json::array({0, 0, "batch"})})},
          {"batches", batches},
          {"runs",
           {{{"setup", setup},
             {"events", "runs/0/events.json"},
             {"calls", nullptr},
             {"causes", true},
             {"unknown", json::array()}}}}};
}

inline Members file_of(const json& index, const json& body) {
  return {{"memplan_recording.json", index.dump()}, {"runs/0/events.json", body.dump()}};
}

inline Members good_file() {
  const json batches = {2, 4, 7};
  return file_of(index_of(batches), run_body(json::array({program(batches, {100, 100, 100})})));
}

inline TrainingSetup inference(std::int64_t batch) {
  TrainingSetup setup;
  setup.mode = Mode::inference;
  setup.steps = 2;
  setup.batch = batch;
  return setup;
}

}  // namespace memplan::recorded_file
