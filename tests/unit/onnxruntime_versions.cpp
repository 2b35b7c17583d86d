// What kernels take in the versions of ONNX Runtime: requests as onnxruntime-gpu 1.22, 1.30 and 1.31 themselves made
// them for graphs of one node (recorded on the emulated device), and which version is estimated.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "estimators/runtime/ort/arena.h"
#include "estimators/runtime/ort/session.h"
#include "estimators/runtime/ort/versions/versions.h"
#include "estimators/setup/field.h"

using namespace memplan;

namespace {

using SizeList = std::vector<std::int64_t>;

struct OneNode {
  std::string op;
  std::vector<SizeList> inputs, outputs;
  std::map<std::string, Attribute> attributes;
  SizeList stored;  ///< contents of one more input
};

GraphValueId add_value(Graph& g, const std::string& name, const SizeList& sizes, DType dtype) {
  GraphValue v;
  v.name = name;
  v.dtype = dtype;
  std::vector<Dim> dims;
  for (const std::int64_t n : sizes) dims.push_back({n, {}});
  v.shape = dims;
  g.values.push_back(std::move(v));
  return static_cast<GraphValueId>(g.values.size()) - 1;
}

BoundGraph bound(const OneNode& one) {
  BoundGraph b;
  b.opset = 18;
  Graph& g = b.graph;
  GraphNode node;
  node.op_type = one.op;
  node.attributes = one.attributes;
  for (const SizeList& s : one.inputs) {
    const bool indices = one.op == "GatherND" && !node.inputs.empty();
    node.inputs.push_back(
        add_value(g, "in" + std::to_string(node.inputs.size()), s, indices ? DType::int64 : DType::float32));
    g.inputs.push_back(node.inputs.back());
  }
  if (!one.stored.empty()) {
    const auto count = static_cast<std::int64_t>(one.stored.size());
    node.inputs.push_back(add_value(g, "stored", {count}, DType::int64));
    g.initializers.emplace(node.inputs.back(),
                           StoredTensor{"stored", DType::int64, {count}, one.stored, {}, false, {}});
  }
  for (const SizeList& s : one.outputs) {
    node.outputs.push_back(add_value(g, "out" + std::to_string(node.outputs.size()), s, DType::float32));
    g.outputs.push_back(node.outputs.back());
  }
  g.nodes = {node};
  return b;
}

TrainingSetup session_of(const std::string& version) {
  TrainingSetup setup;
  setup.runtime.name = "ort";
  setup.mode = Mode::inference;
  setup.ort.version = version;
  return setup;
}

/// Requests beside inputs and outputs, in order.
SizeList scratch(const OneNode& one, const std::string& version) {
  const Schedule s = ort::schedule_of(bound(one), session_of(version), Device{}, {});
  SizeList out;
  for (const Allocation& a : s.allocations)
    if (a.category == Category::workspace && s.ops[static_cast<std::size_t>(a.op)].step == 1)
      out.push_back(a.size.count);
  return out;
}

OneNode split(std::int64_t axis, const SizeList& pieces) {
  OneNode one{"Split", {}, {}, {{"axis", axis}}, pieces};
  SizeList whole = axis == 2 ? SizeList{4, 7, 0} : SizeList{4, 0, 7};
  for (const std::int64_t n : pieces) {
    SizeList piece = whole;
    piece[static_cast<std::size_t>(axis)] = n;
    one.outputs.push_back(piece);
  }
  for (const std::int64_t n : pieces) whole[static_cast<std::size_t>(axis)] += n;
  one.inputs = {whole};
  return one;
}

OneNode concat(const SizeList& pieces) {
  OneNode one{"Concat", {}, {{4, 0, 5}}, {{"axis", std::int64_t{1}}}, {}};
  for (const std::int64_t n : pieces) {
    one.inputs.push_back({4, n, 5});
    one.outputs[0][1] += n;
  }
  return one;
}

OneNode gemm(const SizeList& bias, double beta = 1) {
  return {"Gemm", {{6, 11}, {11, 1000}, bias}, {{6, 1000}}, {{"beta", beta}}, {}};
}

}  // namespace

TEST_CASE("pieces on an axis: tables are uploaded unless the kernel's call has them") {
  const SizeList two{16, 16, 16, 1608};
  for (const char* version : {"1.22", "1.30"}) {
    CHECK(scratch(split(2, {100, 101}), version) == two);
    CHECK(scratch(split(2, {100, 101, 102}), version).empty());
    CHECK(scratch(split(2, {100, 101, 102, 103}), version) == SizeList{32, 32, 32, 3248});
    CHECK(scratch(concat({100, 101}), version).size() == 4);
  }
  for (const SizeList& pieces : {SizeList{100, 101}, {100, 101, 102}, {100, 101, 102, 103}})
    CHECK(scratch(split(2, pieces), "1.31").empty());
  CHECK(scratch(concat({100, 101}), "1.31").empty());
  for (const char* version : {"1.22", "1.31"}) {
    CHECK(scratch(split(1, {100, 101}), version) == two);
    CHECK(scratch(split(2, {100, 101, 102, 103, 104}), version) == SizeList{40, 40, 40, 4080});
    CHECK(scratch(split(1, SizeList(33, 3)), version) == SizeList{264});
    CHECK(scratch(concat(SizeList(33, 3)), version) == SizeList{264});
    CHECK(scratch(concat(SizeList(32, 3)), version).empty());
  }
  SizeList last_longer(33, 3);
  last_longer.back() = 5;
  CHECK(scratch(concat(last_longer), "1.31") == SizeList{264, 264, 264, 808});
}

TEST_CASE("up to 1.30 GatherND uploads the sizes of its slices") {
  const OneNode one{"GatherND", {{20, 30, 40}, {50, 3}}, {{50}}, {}, {}};
  CHECK(scratch(one, "1.30") == SizeList{24, 400});
  CHECK(scratch(one, "1.31") == SizeList{400});
}

TEST_CASE("up to 1.30 Gemm broadcasts a bias by ones, which are kept") {
  for (const SizeList& bias : {SizeList{1000}, {1, 1000}}) CHECK(scratch(gemm(bias), "1.22") == SizeList{24});
  CHECK(scratch(gemm({6, 1}), "1.22") == SizeList{4000});
  for (const SizeList& bias : {SizeList{1}, {6, 1000}}) CHECK(scratch(gemm(bias), "1.22").empty());
  CHECK(scratch(gemm({1000}, 0.0), "1.22").empty());
  CHECK(scratch(gemm({1000}), "1.31").empty());
  const Schedule s = ort::schedule_of(bound(gemm({1000})), session_of("1.22"), Device{}, {});
  int kept = 0;
  for (const Allocation& a : s.allocations) kept += a.stream == ort::reserved_stream && a.died < 0;
  CHECK(kept == 1);
}

TEST_CASE("what the arena passes on to the driver is asked for as it is, and given back at once") {
  OrtSetup setup;
  setup.extend = ArenaExtend::same_as_requested;
  ort::Arena arena(setup, Bytes::gib(80));
  const BlockId block = arena.allocate({4, ort::reserved_stream, 0}).block;
  CHECK(arena.usage().reserved == 4);
  arena.allocate({1000, 1, 0});
  arena.allocate({1000, 2, 0});
  CHECK(arena.usage().reserved == 4 + 2 * 1024);
  arena.free(block);
  CHECK(arena.usage().reserved == 2 * 1024);
  CHECK(ort::Arena(setup, Bytes(100)).allocate({101, ort::reserved_stream, 0}).block == no_block);
}

TEST_CASE("a file newer than the version is refused") {
  // A graph each: what sessions of one graph share is worked out once, the check included.
  const auto run = [](const char* version, int opset, int ir) {
    BoundGraph b = bound(gemm({1000}));
    b.opset = opset, b.ir = ir;
    return ort::schedule_of(b, session_of(version), Device{}, {});
  };
  for (const auto& [version, opset, ir] :
       {std::tuple{"1.22", 22, 10}, {"1.23", 23, 11}, {"1.24", 25, 13}, {"1.31", 26, 13}}) {
    CHECK_NOTHROW(run(version, opset, ir));
    CHECK_THROWS_AS(run(version, opset + 1, ir), Failure);
    CHECK_THROWS_AS(run(version, opset, ir + 1), Failure);
  }
}

TEST_CASE("ops whose form a version has no CUDA kernel of run on the CPU") {
  const auto copies = [](const char* op, std::int64_t opset, const char* version) {
    BoundGraph b = bound({op, {{4, 4, 4, 4}}, {{4, 4, 4, 4}}, {}, {}});
    b.opset = opset;
    const Schedule s = ort::schedule_of(b, session_of(version), Device{}, {});
    return std::count_if(s.ops.begin(), s.ops.end(), [&](const OpRecord& r) {
      return s.names[static_cast<std::size_t>(r.name)].starts_with("Memcpy");
    });
  };
  for (const auto& [op, opset, version] : {std::tuple{"Cos", 18, "1.22"}, {"Cos", 22, "1.27"}, {"Elu", 21, "1.31"}}) {
    CHECK(copies(op, opset, version) == 0);
  }
  const ort::OrtProfile& oldest = ort::ort_profiles().front();
  const ort::OrtProfile& newest = ort::ort_profiles().back();
  CHECK_FALSE(ort::has_form(oldest, "Reshape", 21));
  CHECK(ort::has_form(oldest, "Reshape", 20));
  CHECK(ort::has_form(newest, "Reshape", 26));
  CHECK_FALSE(ort::has_form(newest, "MaxPool", 22));
  CHECK(ort::has_form(oldest, "Add", 22));
  BoundGraph b = bound({"Cos", {{4}}, {{4}}, {}, {}});
  b.opset = 22;
  const Schedule s = ort::schedule_of(b, session_of("1.22"), Device{}, {});
  CHECK(std::none_of(s.allocations.begin(), s.allocations.end(),
                     [](const Allocation& a) { return a.category == Category::output; }));
}

TEST_CASE("the version of ONNX Runtime that is asked for, else the installed one, else the newest") {
  const auto chosen = [](const char* asked, const char* installed) {
    OrtSetup setup;
    choose_ort_version(setup, asked, installed);
    return setup.version + (setup.version_evidence == Evidence::assumed ? " instead" : "");
  };
  CHECK(chosen("", "") == OrtSetup::newest);
  CHECK(chosen("1.26.0", "1.31.1") == "1.26");
  CHECK(chosen("", "1.22.0") == "1.22");
  CHECK(chosen("", "1.99.0") == std::string(OrtSetup::newest) + " instead");
  CHECK(chosen("", "1.17.1") == "1.22 instead");
  for (const char* text : {"1.21", "0.9", "2.0", "newest", "1"}) CHECK_THROWS_AS(check_ort_version(text), Failure);
  for (const char* text : {"1.22", "1.31.1", "1.40"}) CHECK_NOTHROW(check_ort_version(text));
}
