// Recordings of memplan.record: a file written by hand, the sizes between recorded batches, and files that lie.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "estimators/base/unwrap.h"
#include "estimators/frontends/recording/reader.h"
#include "estimators/pipeline.h"
#include "estimators/setup/field.h"
#include "tests/unit/damage.h"
#include "tests/unit/recorded_file.h"

using namespace memplan;
using namespace memplan::recorded_file;

namespace {

Error error_of(const Members& members, const TrainingSetup& setup) {
  const ScratchArchive file(members);
  const auto model = load_model(file.path());
  if (!model) return model.error();
  const auto found = estimate(*model, setup, choose_device("h100-80gb").device);
  return found ? Error{} : found.error();
}

}  // namespace

TEST_CASE("a recording: the events of a recorded batch and of one between them") {
  const ScratchArchive file(good_file());
  const auto model = load_model(file.path());
  REQUIRE(model.ok());
  CHECK(model->format == "recording of net.Net, PyTorch 2.11.0");
  const Device device = choose_device("h100-80gb").device;
  for (const std::int64_t batch : {4, 5, 100}) {
    const auto e = estimate(*model, inference(batch), device);
    REQUIRE(e.ok());
    REQUIRE(e->steps.size() == 3);
    CHECK(e->steps[0].peak.requested.count == 4096);
    CHECK(e->steps[1].peak.requested.count == 4096 + 64 * batch + 1000 * batch + 24 + 100);
    // The second input is there before the first one goes.
    CHECK(e->steps[2].peak.requested.count == 4096 + 64 * batch + 1000 * batch + 24 + 100);
    CHECK(e->parameter_count == 1024);
    CHECK(e->peak_op == "aten::mm");
    CHECK(e->peak_module == "layer");
    CHECK(e->unmodelled.empty());
    // Only the context, which is no part of the recording, is open.
    CHECK(e->low.reserved == e->high.reserved);
    CHECK(e->high.process - e->low.process == device.context_below + device.context_above);
  }
  TrainingSetup unsaid = inference(1);
  unsaid.batch.reset();
  const auto first = estimate(*model, unsaid, device);
  REQUIRE(first.ok());
  CHECK(first->steps[1].peak.requested.count == 4096 + 2 * 1064 + 124);
}

TEST_CASE("a recording of a compiled program: the range reaches the runs with cold caches and with padding") {
  const json batches = {4};
  json index = index_of(batches);
  index["runs"][0]["setup"]["compile"] = true;
  json body = run_body(json::array({program(batches, {100})}));
  // PyTorch's own peaks of the run with warm caches, per step: requested, allocated, reserved.
  body["programs"][0]["peaks"] = {{{4096, 4096, 2 << 20}, {8572, 9216, 2 << 20}, {8572, 9216, 2 << 20}}};
  index["runs"][0]["others"] = {{{"how", "cold"}, {"batch", 4}, {"peak", {8572, 9216, 22 << 20}}},
                                {{"how", "padded"}, {"batch", 4}, {"peak", {8600, 9728, 2 << 20}}}};
  const ScratchArchive file(file_of(index, body));
  const auto model = load_model(file.path());
  REQUIRE(model.ok());
  const Device device = choose_device("h100-80gb").device;
  TrainingSetup setup = inference(4);
  const auto eager = estimate(*model, setup, device);
  REQUIRE_FALSE(eager.ok());  // only the compiled program ran
  setup.compile = true;
  const Tape tape = unwrap(tape_of(*model, setup));
  const auto e = with_range(*model, tape, setup, device, unwrap(estimate(*model, setup, device)));
  REQUIRE(e.ok());
  CHECK(e->low.requested == e->peak.requested);
  CHECK((e->high.requested - e->peak.requested).count == 28);
  CHECK((e->high.allocated - e->peak.allocated).count == 512);
  CHECK((e->high.reserved - e->peak.reserved).count == 20 << 20);
  setup.batch = 8;
  CHECK(estimate(*model, setup, device).error().what.find("batch 8 was not recorded") != std::string::npos);
  index["runs"][0]["others"][0]["peak"] = {1, 2};
  CHECK_FALSE(load_model(ScratchArchive(file_of(index, body)).path()).ok());
}

TEST_CASE("a recording of the eager program does not answer for the compiled one") {
  TrainingSetup setup = inference(4);
  setup.compile = true;
  CHECK(error_of(good_file(), setup).what.find(setting(Field::compile)) != std::string::npos);
  CHECK(error_of(good_file(), setup).hint.find("compile=True") != std::string::npos);
}

TEST_CASE("a recording: fewer steps than recorded end with the last one asked for") {
  const ScratchArchive file(good_file());
  TrainingSetup setup = inference(4);
  setup.steps = 1;
  const auto e = estimate(*load_model(file.path()), setup, choose_device("h100-80gb").device);
  REQUIRE(e.ok());
  CHECK(e->steps.size() == 2);
  setup.steps = 3;
  CHECK(error_of(good_file(), setup).what.find(setting(Field::steps, "3")) != std::string::npos);
}

TEST_CASE("a recording: sizes that follow no line widen the range by their bend") {
  const json batches = {2, 4, 7};
  // The line from 2 to 7 passes through 180 at batch 4, where 300 was recorded.
  const auto members = file_of(index_of(batches), run_body(json::array({program(batches, {100, 300, 300})})));
  const ScratchArchive file(members);
  const auto model = load_model(file.path());
  REQUIRE(model.ok());
  const Device device = choose_device("h100-80gb").device;
  const auto recorded = estimate(*model, inference(4), device);
  REQUIRE(recorded.ok());
  CHECK(recorded->unmodelled.empty());
  const auto between = estimate(*model, inference(3), device);
  REQUIRE(between.ok());
  CHECK(between->steps[1].peak.requested.count == 4096 + 3 * 1064 + 24 + 200);
  REQUIRE(between->unmodelled.size() == 1);
  CHECK(between->unmodelled[0].count == 2);
  CHECK(between->unmodelled[0].widened_by.count == 120);
}

TEST_CASE("a recording: what a library needs at some sizes only") {
  const json batches = {2, 4, 7};
  const auto members = file_of(index_of(batches), run_body(json::array({program(batches, {0, 300, 300})})));
  const ScratchArchive file(members);
  const auto model = load_model(file.path());
  REQUIRE(model.ok());
  const auto without = estimate(*model, inference(2), choose_device("h100-80gb").device);
  REQUIRE(without.ok());
  CHECK(without->steps[1].peak.requested.count == 4096 + 2 * 1064 + 24);
  CHECK(without->steps[2].peak.requested.count == 4096 + 2 * 1064 + 24);
}

TEST_CASE("a recording: an input with several samples for each of the batch") {
  const json batches = {2, 4, 7}, pairs = {{"b", {0, 2}}}, batch = {{"b", {0, 1}}};
  json index = index_of(batches);
  index["inputs"] = {{"x", "float32", {4, 16}}};
  index["open"] = json::array();  // the script's batch is not its first dimension
  index["runs"][0]["calls"] = "runs/0/calls.json";
  Members members = file_of(index, run_body(json::array({program(batches, {100, 100, 100})})));
  members["runs/0/calls.json"] = json{
      {"version", 2},
      {"batches", batches},
      {"values",
       {{"float32", json::array({pairs, 16}), "input", "0", 0}, {"float32", json::array({batch, 32}), "", "", 0}}},
      {"calls",
       {{{"op", "aten.view.default"},
         {"args", {{{"v", 0}}, json::array({batch, 32})}},
         {"outputs", {1}},
         {"scope", 0},
         {"at", ""}}}},
      {"functions", json::array()},
      {"outputs", {1}},
      {"scopes",
       {{"", "net.Net", -1, 0}}}}.dump();
  const ScratchArchive file(members);
  const auto model = load_model(file.path());
  REQUIRE(model.ok());
  TrainingSetup setup = inference(3);
  setup.precision = Precision::amp_bf16;  // did not run: the calls answer
  const Tape tape = unwrap(tape_of(*model, setup));
  CHECK(tape.values[static_cast<std::size_t>(tape.inputs.at(0).index)].sizes == std::vector<std::int64_t>{6, 16});
  CHECK(estimate(*model, setup, choose_device("h100-80gb").device).ok());
}

TEST_CASE("a recording answers what was recorded and says how to record the rest") {
  TrainingSetup training = inference(4);
  training.mode = Mode::training;
  const Error mode = error_of(good_file(), training);
  CHECK(mode.kind == ErrorKind::usage);
  CHECK(mode.what == "the recording has no run with " + setting(Field::mode, "training") + "; it has inference fp32");
  CHECK(mode.hint.find("memplan.record") != std::string::npos);
  TrainingSetup amp = inference(4);
  amp.precision = Precision::amp_bf16;
  CHECK(error_of(good_file(), amp).what.find(setting(Field::precision, "amp-bf16")) != std::string::npos);
  CHECK(error_of(good_file(), amp).hint.find("precision=\"amp-bf16\"") != std::string::npos);
  TrainingSetup last = inference(4);
  last.channels_last = true;
  CHECK(error_of(good_file(), last).what.find(setting(Field::channels_last)) != std::string::npos);
}

TEST_CASE("a recording of a program that changes with the batch answers recorded batches only") {
  json two = json::array({program({2}, {100}), program({4}, {100})});
  two[1]["events"] = {1, 2, 3, -3, 4, -4, 5, -2, 6, 7, -7, -6};
  const Members members = file_of(index_of({2, 4}), run_body(two));
  CHECK(error_of(members, inference(2)).what.empty());
  CHECK(error_of(members, inference(4)).what.empty());
  const Error e = error_of(members, inference(3));
  CHECK(e.kind == ErrorKind::usage);
  CHECK(e.what.find("batch 3 has to be recorded; recorded are 2, 4") != std::string::npos);
  CHECK(e.hint.find("batches=[3]") != std::string::npos);
  // Two sizes are a line that nothing has checked.
  const json pair = {2, 4};
  const Members unchecked = file_of(index_of(pair), run_body(json::array({program(pair, {100, 100})})));
  CHECK(error_of(unchecked, inference(3)).what.find("three or more") != std::string::npos);
}

TEST_CASE("a recording that lies is refused") {
  const json batches = {2, 4, 7};
  const json index = index_of(batches), body = run_body(json::array({program(batches, {100, 100, 100})}));
  const auto refused = [&](const json& i, const json& b) {
    const Error e = error_of(file_of(i, b), inference(4));
    CHECK(e.kind == ErrorKind::input);
    return e.what;
  };
  const auto with = [](json j, const char* pointer, json value) {
    j[json::json_pointer(pointer)] = std::move(value);
    return j;
  };
  CHECK(refused(with(index, "/version", 2), body).find("version 2") != std::string::npos);
  CHECK(refused(with(index, "/format", "other"), body).find("index") != std::string::npos);
  refused(with(index, "/runs", json::array()), body);
  refused(with(index, "/open/0/1", 9), body);
  refused(with(index, "/runs/0/events", "../../etc/passwd"), body);
  refused(with(index, "/runs/0/setup/precision", "int1"), body);
  refused(index, with(body, "/programs/0/events/3", 9));                        // an allocation out of order
  refused(index, with(body, "/programs/0/events/5", -4));                       // freed twice
  refused(index, with(body, "/programs/0/events/0", -1));                       // freed before it is there
  refused(index, with(body, "/programs/0/sizes/1/2", -5));                      // a negative size
  refused(index, with(body, "/programs/0/sizes/1/2", 1e300));                   // no integer
  refused(index, with(body, "/programs/0/sizes/1/2", std::uint64_t{1} << 63));  // too large
  refused(index, with(body, "/programs/0/ops/0/0", 99));                        // no such name
  refused(index, with(body, "/programs/0/ops/2/1", 7));                         // no such scope
  refused(index, with(body, "/programs/0/steps", json::array({6, 1})));         // steps out of order
  refused(index, with(body, "/programs/0/categories", json::array({0})));       // too few
  refused(index, with(body, "/programs/0/batches/1", 2));                       // twice
  refused(index, with(body, "/programs", json::array()));
  Members lost = file_of(index, body);
  lost.erase("runs/0/events.json");
  CHECK(error_of(lost, inference(4)).what.find("lacks its member") != std::string::npos);
}

TEST_CASE("damaged recordings end with an estimate or an error") {
  const Members whole = good_file();
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    Members members = whole;
    auto& text = members[round % 2 ? "memplan_recording.json" : "runs/0/events.json"];
    text = damaged(text, random);
    const Error e = error_of(members, inference(4));
    CHECK_MESSAGE(e.kind != ErrorKind::baseline, e.what);
    if (!e.what.empty()) CHECK_MESSAGE((e.kind == ErrorKind::input || e.kind == ErrorKind::usage), e.what);
  }
}
