// Damaged ONNX files: whatever the bytes, loading and lowering end with a tape or an Error, in bounded time. The
// seeds are fixed; MEMPLAN_FUZZ_ROUNDS asks for more rounds than a test run has time for.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "estimators/frontends/onnx/reader.h"
#include "estimators/pipeline.h"
#include "tests/unit/damage.h"

using namespace memplan;

namespace {

std::string read_file(const std::string& name) {
  std::ifstream in(std::string(MEMPLAN_SOURCE_DIR) + "/data/models/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("damaged files end in an error or a tape, quickly") {
  const char* wanted = std::getenv("MEMPLAN_FUZZ_ROUNDS");
  const int rounds = wanted ? std::atoi(wanted) : 60;
  std::size_t loaded = 0, lowered = 0;
  for (const char* name : {"mlp.onnx", "legacy/resnet18.onnx", "legacy/gpt2.onnx", "optimized/llama-tiny.onnx"}) {
    const std::string whole = read_file(name);
    REQUIRE_MESSAGE(!whole.empty(), name);
    TrainingSetup setup;
    setup.batch = 2;
    if (whole.find("input_ids") != std::string::npos) setup.sequence = 16;
    setup.steps = 1;
    std::mt19937_64 random(20240607);
    for (int round = 0; round < rounds; ++round) {
      const std::string bytes = damaged(whole, random);
      const auto begin = std::chrono::steady_clock::now();
      const auto model = catching([&] { return onnx_format::read_model(bytes, name); });
      if (model.ok()) {
        ++loaded;
        const auto tape = tape_of(*model, setup);
        if (tape.ok())
          ++lowered;
        else
          CHECK_MESSAGE(tape.error().kind != ErrorKind::internal,
                        name << " round " << round << ": " << tape.error().what);
        if (tape.ok()) {
          const auto steps = run_steps(*tape, setup, Device{});
          if (!steps.ok())
            CHECK_MESSAGE(steps.error().kind != ErrorKind::internal,
                          name << " round " << round << ": " << steps.error().what);
        }
      } else {
        CHECK_MESSAGE(model.error().kind == ErrorKind::input, name << " round " << round << ": " << model.error().what);
        CHECK_FALSE(model.error().what.empty());
      }
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
    }
  }
  // Were all refused, or none, the damage would not test what it should.
  CHECK(loaded > 0);
  CHECK(lowered > 0);
}
