#include "estimators/runtime/torch/aten/cudnn_workspace.h"

#include <doctest/doctest.h>

#include "tests/unit/convolutions.h"

using namespace memplan;
using memplan::testing::on;

namespace {

/// ResNet's convolutions: square, padded to keep the size or halve it.
ConvProblem square(std::int64_t n, std::int64_t c, std::int64_t hw, std::int64_t k, std::int64_t r,
                   std::int64_t stride) {
  const std::int64_t pad = r / 2, out = (hw + 2 * pad - r) / stride + 1;
  ConvProblem p;
  p.input = {n, c, hw, hw};
  p.weight = {k, c, r, r};
  p.output = {n, k, out, out};
  p.stride = {stride, stride};
  p.padding = {pad, pad};
  p.dilation = {1, 1};
  return p;
}

ConvWorkspace workspace(const ConvProblem& problem, ConvPass pass, int sm) {
  return conv_workspace(problem, pass, {on(sm), "9.19"});
}

}  // namespace

// The figures of the next two cases were taken from PyTorch 2.11 on the emulated device: the block that a convolution
// allocates and frees within itself.
TEST_CASE("the workspace of a convolution is what cuDNN's heuristics say for that device") {
  ConvProblem stem = square(32, 3, 224, 64, 7, 2);
  CHECK(workspace(stem, ConvPass::forward, 90).bytes == Bytes(122065680));
  CHECK(workspace(stem, ConvPass::data_gradient, 90).bytes == Bytes(0));
  CHECK(workspace(stem, ConvPass::weight_gradient, 90).bytes == Bytes(134522000));
  ConvProblem block = square(32, 64, 56, 64, 3, 1);
  CHECK(workspace(block, ConvPass::forward, 90).bytes == Bytes(25837584));
  CHECK(workspace(block, ConvPass::data_gradient, 90).bytes == Bytes(51527696));
  CHECK(workspace(block, ConvPass::weight_gradient, 90).bytes == Bytes(51822803));
}

TEST_CASE("precision and memory format change the workspace") {
  ConvProblem block = square(256, 64, 56, 64, 3, 1);
  block.dtype = DType::bfloat16;
  CHECK(workspace(block, ConvPass::forward, 90).bytes == Bytes(205594771));
  CHECK(workspace(block, ConvPass::weight_gradient, 90).bytes == Bytes(205889747));
  block.channels_last = true;
  CHECK(workspace(block, ConvPass::forward, 90).bytes == Bytes(131));
  CHECK(workspace(block, ConvPass::weight_gradient, 90).bytes == Bytes(295107));
}

TEST_CASE("a convolution that the table lacks gets a figure by rules and says so") {
  const ConvProblem known = square(32, 64, 56, 64, 3, 1), wider = square(32, 64, 57, 64, 3, 1);
  CHECK(workspace(known, ConvPass::forward, 90).evidence == Evidence::recorded);
  const ConvWorkspace near = workspace(wider, ConvPass::forward, 90);
  CHECK(near.evidence == Evidence::nearest_table_entry);
  CHECK_FALSE(near.why.empty());
  CHECK(near.bytes == Bytes(53379219));  // cuDNN 9.19 takes another engine than for the table's 56 x 56
}

TEST_CASE("ONNX Runtime asks other heuristics, so what its table lacks is scaled from the nearest entry") {
  const ConvProblem odd = square(3, 61, 57, 67, 3, 1);
  const ConvWorkspace scaled = conv_workspace(odd, ConvPass::forward, {on(90), for_onnxruntime});
  CHECK(scaled.evidence == Evidence::nearest_table_entry);
  CHECK(scaled.why != workspace(odd, ConvPass::forward, 90).why);
}

TEST_CASE("another architecture takes the figures of the one before it and says so") {
  ConvProblem block = square(32, 64, 56, 64, 3, 1);
  for (const int sm : {75, 80, 86, 89, 90, 100, 120})
    CHECK(workspace(block, ConvPass::forward, sm).evidence == Evidence::recorded);
  for (const auto& [sm, before] : {std::pair(70, 75), std::pair(87, 86), std::pair(103, 100), std::pair(121, 120)}) {
    CHECK(workspace(block, ConvPass::forward, sm).bytes == workspace(block, ConvPass::forward, before).bytes);
    CHECK(workspace(block, ConvPass::forward, sm).evidence == Evidence::nearest_table_entry);
  }
  CHECK(workspace(block, ConvPass::forward, 70).evidence == Evidence::nearest_table_entry);
}

TEST_CASE("three-dimensional convolutions have rules, other types have no figure") {
  ConvProblem p;
  p.input = {1, 3, 8, 8, 8};
  p.weight = {4, 3, 3, 3, 3};
  p.output = {1, 4, 6, 6, 6};
  p.stride = p.dilation = {1, 1, 1};
  p.padding = {0, 0, 0};
  CHECK(workspace(p, ConvPass::forward, 90).evidence == Evidence::nearest_table_entry);
  ConvProblem doubles = square(1, 3, 8, 4, 3, 1);
  doubles.dtype = DType::float64;
  CHECK(workspace(doubles, ConvPass::forward, 90).evidence == Evidence::assumed);
}

TEST_CASE("a convolution that no table has is bounded by the entries around it") {
  ConvProblem odd = square(16, 61, 157, 267, 3, 1);  // where the heuristics take one engine or another
  const auto read = [&](WorkspaceReading reading) {
    return conv_workspace(odd, ConvPass::forward, {on(90), "9.19", reading}).bytes;
  };
  CHECK(read(WorkspaceReading::least) <= read(WorkspaceReading::nearest));
  CHECK(read(WorkspaceReading::nearest) <= read(WorkspaceReading::most));
  CHECK(read(WorkspaceReading::least) < read(WorkspaceReading::most));
  // One that is in the table is what it is.
  odd = square(32, 64, 56, 64, 3, 1);
  for (const WorkspaceReading r : {WorkspaceReading::least, WorkspaceReading::most}) CHECK(read(r) == Bytes(25837584));
}

namespace {

/// Says what it is told to, and remembers what it was asked.
struct Library final : CudnnLibrary {
  std::optional<Bytes> answer;
  std::string_view only;  ///< the version that is installed; empty: any
  int asked = 0;
  std::optional<Bytes> workspace(const ConvProblem&, ConvPass, const Device&, std::string_view version) override {
    ++asked;
    return only.empty() || version == only ? answer : std::nullopt;
  }
};

}  // namespace

TEST_CASE("an installed cuDNN is asked about what the tables lack, and about nothing else") {
  Library library;
  library.answer = Bytes(4711);
  const ConvProblem known = square(32, 64, 56, 64, 3, 1), odd = square(32, 64, 57, 64, 3, 1);
  const auto of = [&](const ConvProblem& p) {
    return conv_workspace(p, ConvPass::forward, {on(90), "9.19", WorkspaceReading::nearest, &library});
  };
  CHECK(of(known).bytes == workspace(known, ConvPass::forward, 90).bytes);
  CHECK(library.asked == 0);
  CHECK(of(odd).bytes == Bytes(4711));
  CHECK(of(odd).evidence == Evidence::recorded);
  CHECK(of(odd).asked);
  library.answer.reset();
  CHECK(of(odd).bytes == workspace(odd, ConvPass::forward, 90).bytes);
  CHECK(of(odd).evidence == Evidence::nearest_table_entry);
}

TEST_CASE("of a version that cannot be asked, the version that the rules were learnt from is asked in its place") {
  Library library;
  library.answer = Bytes(4711);
  library.only = "9.19";
  const ConvProblem odd = square(32, 64, 57, 64, 3, 1);
  const auto of = [&](WorkspaceReading reading, CudnnLibrary* asked) {
    return conv_workspace(odd, ConvPass::forward, {on(90), "9.1", reading, asked});
  };
  CHECK(of(WorkspaceReading::nearest, &library).bytes == Bytes(4711));
  CHECK(of(WorkspaceReading::nearest, &library).evidence == Evidence::nearest_table_entry);
  CHECK_FALSE(of(WorkspaceReading::nearest, &library).asked);
  CHECK(of(WorkspaceReading::nearest, nullptr).bytes != Bytes(4711));
  // Its engines may be others all the same.
  for (const WorkspaceReading end : {WorkspaceReading::least, WorkspaceReading::most})
    CHECK(of(end, &library).bytes == of(end, nullptr).bytes);
  library.only = "9.26";
  CHECK(of(WorkspaceReading::nearest, &library).bytes == of(WorkspaceReading::nearest, nullptr).bytes);
}

TEST_CASE("other types are known to an installed cuDNN alone") {
  Library library;
  library.answer = Bytes(4711);
  ConvProblem p = square(4, 8, 16, 8, 3, 1);
  p.dtype = DType::float64;
  CHECK(conv_workspace(p, ConvPass::forward, {on(90), "9.19"}).evidence == Evidence::assumed);
  CHECK(conv_workspace(p, ConvPass::forward, {on(90), "9.19", WorkspaceReading::nearest, &library}).bytes ==
        Bytes(4711));
}
