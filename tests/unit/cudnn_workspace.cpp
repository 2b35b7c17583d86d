#include <doctest/doctest.h>

#include "estimators/aten/cudnn_workspace.h"

using namespace memplan;

namespace {

/// ResNet's convolutions: square, padded to keep the size or halve it.
ConvProblem square(std::int64_t n, std::int64_t c, std::int64_t hw, std::int64_t k, std::int64_t r, std::int64_t stride) {
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

}  // namespace

// The figures of the next two cases were taken from PyTorch 2.11 on the emulated device: the block that a convolution
// allocates and frees within itself.
TEST_CASE("the workspace of a convolution is what cuDNN's heuristics say for that device") {
  ConvProblem stem = square(32, 3, 224, 64, 7, 2);
  CHECK(conv_workspace(stem, ConvPass::forward, 90, 132) == Bytes(122065680));
  CHECK(conv_workspace(stem, ConvPass::data_gradient, 90, 132) == Bytes(0));
  CHECK(conv_workspace(stem, ConvPass::weight_gradient, 90, 132) == Bytes(134522000));
  ConvProblem block = square(32, 64, 56, 64, 3, 1);
  CHECK(conv_workspace(block, ConvPass::forward, 90, 132) == Bytes(25837584));
  CHECK(conv_workspace(block, ConvPass::data_gradient, 90, 132) == Bytes(51527696));
  CHECK(conv_workspace(block, ConvPass::weight_gradient, 90, 132) == Bytes(51822803));
}

TEST_CASE("precision and memory format change the workspace") {
  ConvProblem block = square(256, 64, 56, 64, 3, 1);
  block.dtype = DType::bfloat16;
  CHECK(conv_workspace(block, ConvPass::forward, 90, 132) == Bytes(205594771));
  CHECK(conv_workspace(block, ConvPass::weight_gradient, 90, 132) == Bytes(205889747));
  block.channels_last = true;
  CHECK(conv_workspace(block, ConvPass::forward, 90, 132) == Bytes(131));
  CHECK(conv_workspace(block, ConvPass::weight_gradient, 90, 132) == Bytes(295107));
}
