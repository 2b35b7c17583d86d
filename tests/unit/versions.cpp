#include <doctest/doctest.h>

#include <algorithm>

#include "estimators/pipeline.h"
#include "estimators/runtime/torch/aten/cudnn_workspace.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "tests/unit/convolutions.h"
#include "tests/unit/tape_builder.h"

using namespace memplan;
using memplan::testing::on;

namespace {

std::string chosen(std::string_view asked, std::string_view written_by) {
  const RuntimeSetup runtime = choose_version(asked, written_by);
  return runtime.version + (runtime.evidence == Evidence::assumed ? " instead" : "");
}

/// ResNet's block: 32 images of 64 channels and 56 x 56, 3 x 3.
ConvProblem block(std::int64_t batch) {
  ConvProblem p;
  p.input = p.output = {batch, 64, 56, 56};
  p.weight = {64, 64, 3, 3};
  p.stride = p.padding = p.dilation = {1, 1};
  return p;
}

}  // namespace

TEST_CASE("the version asked for, the one that wrote the file, the newest: in this order") {
  CHECK(chosen("2.13", "2.11.0+cu130") == "2.13");
  CHECK(chosen("", "2.11.0+cu130") == "2.11");
  CHECK(chosen("", "2.15.0a0+git12ab") == "2.15");
  CHECK(chosen("", "") == std::string(profiles().back().version));
  CHECK(chosen("", "nobody knows") == std::string(profiles().back().version));
}

TEST_CASE("a version without figures takes the nearest ones, and is an assumption") {
  const std::string oldest(profiles().front().version), newest(profiles().back().version);
  CHECK(chosen("", "1.13.1") == oldest + " instead");
  CHECK(chosen("", "2.99") == newest + " instead");
  CHECK(chosen("", "3.0") == newest + " instead");
  CHECK(chosen("2.99.1", "2.11") == newest + " instead");
}

TEST_CASE("what is no version of PyTorch is refused with the list") {
  for (const char* text : {"", "2", "3", "2.x", "1.13", "3.0", "2.5", "x.y", "2.", ".11", "2.11.", "2.11;", "2.11 ",
                           "-2.11", "2.99999999999999999999"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(check_version(text), Failure);
  }
  for (const char* text : {"2.6", "2.11", "2.13.1", "2.15.0+cu132", "2.16.0rc1", "2.99.0.dev20261101"})
    CHECK_NOTHROW(check_version(text));
}

TEST_CASE("every version says what it is, and each profile is its row's") {
  for (const ProfileRow& row : profiles()) {
    CHECK(row.profile().version == row.version);
    CHECK(row.profile().ops != nullptr);
  }
}

// 32 MiB on an H100 (getChosenWorkspaceSize); since 2.15 made for a call (CUDAContextLight.h).
TEST_CASE("PyTorch 2.15 keeps no workspace of cuBLAS") {
  TrainingSetup setup;
  setup.runtime.version = "2.15";
  const auto made = run_steps(testing::two_layer_tape(3, 8, 64), setup, choose_device("h100-80gb").device);
  REQUIRE(made.ok());
  std::int64_t workspaces = 0;
  for (const Allocation& a : made->allocations) {
    if (a.category != Category::workspace) continue;
    ++workspaces;
    CHECK(a.died == a.born + 1);
  }
  CHECK(workspaces > 2);
}

// Blocks that PyTorch 2.11 (cuDNN 9.19), 2.8 (9.10) and 2.15 (9.26) allocate for the data gradient on the emulated
// H100: the program "conv2d 3x3 float32" of the op oracle.
TEST_CASE("workspaces of convolutions by the version of cuDNN") {
  const auto bytes = [](std::string_view cudnn) {
    return conv_workspace(block(32), ConvPass::data_gradient, {on(90), cudnn}).bytes;
  };
  CHECK(bytes("9.19") == Bytes(51527696));
  CHECK(bytes("9.10") == Bytes(51527827));
  CHECK(bytes("9.26") == Bytes(51527827));
}

TEST_CASE("batch sizes and versions of cuDNN that nobody asked about are no recorded figures") {
  CHECK(conv_workspace(block(32), ConvPass::forward, {on(90), "9.26"}).evidence == Evidence::recorded);
  CHECK(conv_workspace(block(33), ConvPass::forward, {on(90), "9.26"}).evidence == Evidence::nearest_table_entry);
  CHECK(conv_workspace(block(33), ConvPass::forward, {on(90), "9.19"}).evidence == Evidence::recorded);
  CHECK(conv_workspace(block(32), ConvPass::forward, {on(90), "9.1"}).evidence == Evidence::nearest_table_entry);
  // 9.20 was not asked about a T4.
  CHECK(conv_workspace(block(32), ConvPass::forward, {on(75), "9.20"}).evidence == Evidence::nearest_table_entry);
  CHECK(conv_workspace(block(32), ConvPass::forward, {on(89), "9.10"}).evidence == Evidence::recorded);
  const auto at = [](std::int64_t n) {
    return conv_workspace(block(n), ConvPass::data_gradient, {on(90), "9.26"}).bytes;
  };
  CHECK(at(33) >= std::min(at(32), at(48)));
  CHECK(at(33) <= std::max(at(32), at(48)));
}
