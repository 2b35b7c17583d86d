// A recording in the file of its module: what it answers, what the graph answers, and files that lie.
#include "estimators/frontends/recording/attached.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "estimators/base/base64.h"
#include "estimators/base/unwrap.h"
#include "estimators/frontends/recording/attach.h"
#include "estimators/frontends/recording/recording.h"
#include "estimators/measured/recorded.h"
#include "tests/unit/onnx_builder.h"
#include "tests/unit/recorded_file.h"

using namespace memplan;
using namespace memplan::recorded_file;

namespace {

test::Builder graph(std::int64_t columns = 32) {
  test::Builder b;
  b.input("x", {-1, 32}).weight("weight", {32, columns}).node("MatMul", {"x", "weight"}, {"y"});
  b.output("y");
  return b;
}

std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

/// Requested bytes of the first step's peak: the recorded program has other bytes than the graph.
std::int64_t first_step(const Model& model, std::int64_t batch) {
  const auto e = estimate(model, inference(batch), choose_device("h100-80gb").device);
  REQUIRE(e.ok());
  return e->steps.at(1).peak.requested.count;
}

std::int64_t recorded_bytes(std::int64_t batch) { return 4096 + 64 * batch + 1000 * batch + 24 + 100; }

bool has_note(const Notes& notes, std::string_view code) {
  return std::any_of(notes.begin(), notes.end(), [&](const Fact& f) { return f.code.starts_with(code); });
}

}  // namespace

TEST_CASE("base64: the vectors of RFC 4648, section 10, and texts that are none") {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    CHECK(to_base64(bytes) == text);
    CHECK(from_base64(text) == std::optional<std::string>(bytes));
  }
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  CHECK(from_base64(to_base64(all)) == all);
  for (const char* bad : {"Zg=", "Z", "Zg=a", "Zm9v!Yg=", "====", "Z===", "Zg==Zg=="}) CHECK_FALSE(from_base64(bad));
}

TEST_CASE("an ONNX file with a recording answers by it, and by its graph what that cannot tell") {
  const ScratchArchive recorded(good_file());
  const ScratchFile file(graph().model.SerializeAsString());
  const std::int64_t plain = first_step(*load_model(file.path()), 4);
  CHECK(plain != recorded_bytes(4));
  for (int times = 0; times < 2; ++times) {  // the second takes the place of the first
    recording::attach(recorded.path(), file.path());
    ::onnx::ModelProto proto;
    REQUIRE(proto.ParseFromString(file_text(file.path())));
    CHECK(proto.metadata_props_size() == 1);
    CHECK(proto.graph().SerializeAsString() == graph().graph().SerializeAsString());
  }
  const auto model = load_model(file.path());
  REQUIRE(model.ok());
  CHECK(model->format.ends_with("with a recording of PyTorch 2.11.0"));
  for (const std::int64_t batch : {4, 5}) CHECK(first_step(*model, batch) == recorded_bytes(batch));
  // Calls were not recorded, so that a training step is the graph's.
  TrainingSetup training;
  training.batch = 4;
  const auto tape = tape_of(*model, training);
  REQUIRE(tape.ok());
  CHECK(has_note(tape->notes, "MP065"));
  CHECK_FALSE(tape->recorded);
}

TEST_CASE("a recording in a file that does not fit it any more is left out, and the file says so") {
  const ScratchArchive recorded(good_file());
  const ScratchFile file(graph().model.SerializeAsString());
  recording::attach(recorded.path(), file.path());
  ::onnx::ModelProto proto;
  REQUIRE(proto.ParseFromString(file_text(file.path())));
  const auto with = [&](const std::string& text, int nodes = 1) {
    ::onnx::ModelProto changed = proto;
    changed.mutable_metadata_props(0)->set_value(text);
    for (int i = 1; i < nodes; ++i)
      test::Builder::fill(*changed.mutable_graph()->add_node(), "Relu", {"y"}, {"z" + std::to_string(i)});
    const ScratchFile other(changed.SerializeAsString());
    return unwrap(load_model(other.path()));
  };
  const std::string text = proto.metadata_props(0).value();
  CHECK(with(text).recorded);
  const std::string cut = text.substr(0, text.size() / 2 / 4 * 4), mark = text.substr(0, 19);
  for (const Model& model : {with(text, 2), with(""), with("1 "), with("2 " + text.substr(2)), with(cut), with(mark),
                             with(mark + "!!!!"), with(mark + to_base64("no archive"))}) {
    CHECK_FALSE(model.recorded);
    REQUIRE(model.warnings.size() == 1);
    CHECK(model.warnings[0].find("is not used") != std::string::npos);
  }
}

TEST_CASE("attach refuses files that are not of one module") {
  const ScratchArchive recorded(good_file());
  const ScratchFile other(graph(16).model.SerializeAsString()), none("nothing");
  CHECK_THROWS_WITH_AS(recording::attach(recorded.path(), other.path()), doctest::Contains("another size"), Failure);
  CHECK_THROWS_AS(recording::attach(recorded.path(), none.path()), Failure);
  CHECK_THROWS_WITH_AS(recording::attach(other.path(), other.path()), doctest::Contains("no recording"), Failure);
  CHECK_THROWS_WITH_AS(recording::attach(recorded.path(), recorded.path()), doctest::Contains("goes into"), Failure);
  CHECK(file_text(other.path()) == graph(16).model.SerializeAsString());
}

TEST_CASE("a recorded run is a measurement: PyTorch's events and counters") {
  json body = run_body(json::array({program({2, 4, 7}, {100, 100, 100})}));
  const json peaks = {{4096, 4096, 2097152}, {8000, 8192, 2097152}, {8001, 8192, 2097152}};
  body["programs"][0]["peaks"] = {peaks, peaks, peaks};
  const ScratchArchive file(file_of(index_of({2, 4, 7}), body));
  const Model model = unwrap(load_model(file.path()));
  const Measurement m = measurement_from_recording(model, inference(4), 4);
  CHECK(m.peak.requested->count == 8001);
  CHECK(m.peak.reserved->count == 2097152);
  REQUIRE(m.steps.size() == 3);
  REQUIRE(m.events.size() == 12);
  CHECK(m.events[1].bytes == 64 * 4);
  CHECK(m.events[4].kind == MeasuredEvent::Kind::free);
  CHECK(m.events[4].address == m.events[3].address);
  CHECK_THROWS_AS(measurement_from_recording(model, inference(5), 5), Failure);  // told by lines, not run
  TrainingSetup training;
  CHECK_THROWS_AS(measurement_from_recording(model, training, 4), Failure);
}
