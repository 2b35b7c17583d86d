// Sizes that a file fixes, followed through its calls: by hand, and for every model of data/models as a fixed export
// would have it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "estimators/base/unwrap.h"
#include "estimators/graph/dims.h"
#include "estimators/pipeline.h"
#include "estimators/resize/follow.h"
#include "estimators/runtime/torch/autograd/interpreter.h"
#include "estimators/tape/tape_text.h"
#include "estimators/tape/uses.h"

using namespace memplan;
using resizing::Origin;

namespace {

/// The tape with `wanted` instead of `file` along the first dimension of its first input.
Tape followed(const std::string& text, std::int64_t file, std::int64_t wanted) {
  const Tape tape = from_text(text);
  return resizing::follow(tape, Origin{{{tape.inputs[0], 0}}, file, true}, wanted).tape;
}

std::string error_of(const std::string& text, std::int64_t file, std::int64_t wanted) {
  const auto result = catching([&] { return followed(text, file, wanted); });
  REQUIRE_FALSE(result.ok());
  return result.error().what;
}

std::vector<std::int64_t> numbers_of(const Tape& tape, std::size_t call, std::size_t argument) {
  std::vector<std::int64_t> out;
  for (const Arg& a : std::get<Arg::List>(tape.calls.at(call).args.at(argument).value))
    out.push_back(std::get<std::int64_t>(a.value));
  return out;
}

using Numbers = std::vector<std::int64_t>;

/// Puts the numbers that calls compute from shapes in the place of these calls' names, as an export with fixed sizes
/// does.
Tape as_fixed(Tape tape) {
  struct Watch : CallHooks {
    std::map<std::int32_t, std::int64_t> numbers;
    const Tape* tape = nullptr;
    void before(Run&, Environment&, std::int32_t, Lasting) override {}
    void after(Run&, Environment& env, std::int32_t call) override {
      for (const ValueId id : tape->calls[static_cast<std::size_t>(call)].outputs)
        if (id.valid())
          if (const auto* n = std::get_if<std::int64_t>(&env.values[static_cast<std::size_t>(id.index)].v))
            numbers[id.index] = *n;
    }
  } watch;
  watch.tape = &tape;
  const Device device;
  Run run(run_options({}), device);
  run.grad_mode = false;
  run.phantom = true;
  Environment env;
  env.keeps_values = true;
  env.hooks = &watch;
  env.values.resize(tape.values.size());
  for (std::size_t i = 0; i < tape.values.size(); ++i) {
    const TapeValue& v = tape.values[i];
    if (v.kind == ValueKind::computed) continue;
    env.values[i] = v.number    ? Value(*v.number)
                    : v.on_host ? Value(run.host(Dims(v.sizes), v.dtype))
                                : Value(run.empty(Dims(v.sizes), v.dtype));
  }
  run_forward(run, tape, env);
  std::vector<Call> calls;
  for (Call& call : tape.calls) {
    if (call.outputs.size() == 1 && call.outputs[0].valid() && watch.numbers.contains(call.outputs[0].index)) continue;
    replace_values(call, [&](ValueId id) {
      const auto n = watch.numbers.find(id.index);
      return n == watch.numbers.end() ? Arg{id} : Arg{n->second};
    });
    calls.push_back(std::move(call));
  }
  tape.calls = std::move(calls);
  return tape;
}

/// A model of data/models at a batch, as a fixed export: lowered, and its numbers put in.
Tape fixed_tape(const Model& model, std::int64_t batch) {
  TrainingSetup setup;
  for (const OpenDim& dim : open_dims(model.graphs.front())) setup.dims[dim.name] = dim.batch ? batch : 48;
  return as_fixed(unwrap(lower(model, unwrap(bind(model, setup)), setup)));
}

/// The text without what says where sizes come from.
std::string calls_of(const Tape& tape) {
  Tape bare;
  bare.values = tape.values;
  bare.calls = tape.calls;
  bare.inputs = tape.inputs;
  bare.outputs = tape.outputs;
  for (Call& c : bare.calls) c.known_shapes.clear(), c.scope = -1, c.binding = -1, c.source.clear();
  return to_text(bare);
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(MEMPLAN_SOURCE_DIR) + "/data/models" + folder))
    if (const std::string path = entry.path().string(); path.ends_with(".pt2") || path.ends_with(".onnx"))
      out.push_back(path);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("a view's numbers follow where the order of memory has the batch") {
  const Tape t = followed(
      "input %x float32 [2, 6, 8]\n"
      "%a = aten::view(%x, [12, 8])\n"
      "%b = aten::view(%a, [2, 3, 2, 8])\n"
      "%c = aten::permute(%b, [1, 0, 2, 3])\n"
      "%d = aten::reshape(%c, [6, 16])\n"
      "return %d\n",
      2, 5);
  CHECK(numbers_of(t, 0, 1) == Numbers{30, 8});
  CHECK(numbers_of(t, 1, 1) == Numbers{5, 3, 2, 8});
  CHECK(numbers_of(t, 3, 1) == Numbers{15, 16});
}

TEST_CASE("a number that equals the batch by chance stays where nothing contradicts") {
  const Tape t = followed(
      "input %x float32 [4, 16]\n"
      "%a = aten::view(%x, [4, 4, 4])\n"
      "%b = aten::unsqueeze(%a, 2)\n"
      "%c = aten::expand(%b, [4, 4, 4, 4])\n"
      "return %c\n",
      4, 7);
  CHECK(numbers_of(t, 0, 1) == Numbers{7, 4, 4});
  CHECK(numbers_of(t, 2, 1) == Numbers{7, 4, 4, 4});
}

TEST_CASE("a batch of one: what is joined with it or multiplied decides where it stands") {
  const Tape t = followed(
      "input %x float32 [1, 3, 8]\n"
      "parameter %cls float32 [1, 1, 8]\n"
      "parameter %w float32 [8, 8]\n"
      "%a = aten::expand(%cls, [1, -1, -1])\n"
      "%b = aten::cat([%a, %x], 1)\n"
      "%c = aten::transpose.int(%b, 0, 1)\n"
      "%d = aten::reshape(%c, [4, 8])\n"
      "%e = aten::linear(%d, %w, None)\n"
      "return %e\n",
      1, 6);
  CHECK(numbers_of(t, 0, 1) == Numbers{6, -1, -1});
  CHECK(numbers_of(t, 3, 1) == Numbers{24, 8});
}

TEST_CASE("tensors that are made from nothing follow where a contradiction says so") {
  const Tape t = followed(
      "input %x float32 [3, 5]\n"
      "%a = aten::arange(3)\n"
      "%b = aten::unsqueeze(%a, 1)\n"
      "%c = aten::add.Tensor(%x, %b)\n"
      "%d = aten::zeros([3, 5])\n"
      "%e = aten::mul.Tensor(%c, %d)\n"
      "return %e\n",
      3, 10);
  CHECK(std::get<std::int64_t>(t.calls[0].args[0].value) == 10);
  CHECK(numbers_of(t, 3, 0) == Numbers{10, 5});
}

TEST_CASE("what cannot be followed names the op") {
  const std::string one_each = error_of(
      "input %x float32 [2, 8]\n"
      "scope 0 loop Loop\n"
      "%a, %b = aten::unbind.int(%x, 0) in 0\n"
      "%c = aten::add.Tensor(%a, %b)\n"
      "return %c\n",
      2, 4);
  CHECK(one_each.find("aten::unbind.int in loop") != std::string::npos);
  const std::string forgotten = error_of(
      "input %x float32 [2, 8]\n"
      "parameter %w float32 [4, 8]\n"
      "%a = aten::select.int(%x, 0, 1)\n"
      "%b = aten::mul.Tensor(%w, %a)\n"
      "return %b\n",
      2, 4);
  CHECK(forgotten.find("aten::select.int") != std::string::npos);
}

TEST_CASE("a size that the program cannot have is the caller's error") {
  const auto result = catching([] {
    return followed(
        "input %x float32 [4, 8]\n"
        "%a = aten::view(%x, [2, 2, 8])\n"
        "return %a\n",
        4, 5);
  });
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().kind == ErrorKind::usage);
}

TEST_CASE("every model of data/models as a fixed export is, at another batch, the export at that batch") {
  std::size_t compared = 0;
  for (const char* folder : {"", "/pt2", "/more"})
    for (const std::string& path : files_below(folder)) {
      CAPTURE(path);
      const Model model = unwrap(load_model(path));
      const Tape wanted = fixed_tape(model, 5);
      for (const std::int64_t file : {std::int64_t{1}, std::int64_t{2}}) {
        CAPTURE(file);
        const auto from = catching([&] { return fixed_tape(model, file); });
        if (!from) continue;  // the exporter bounds its batch from below
        Origin origin{{}, file, true};
        for (const ValueId id : from->inputs) origin.dims.emplace_back(id, 0);
        const auto result = catching([&] { return resizing::follow(*from, origin, 5); });
        CHECK_MESSAGE(result.ok(), (result.ok() ? "" : result.error().what));
        // Where a number could be either, the result says so, and the range of an estimate has both.
        if (!result || result->open.count > 0) continue;
        CHECK(calls_of(result->tape) == calls_of(wanted));
        ++compared;
      }
    }
  CHECK(compared > 100);
}
