#include "estimators/runtime/torch/aten/cudnn_rules.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "estimators/runtime/torch/aten/cudnn_parts.h"
#include "estimators/runtime/torch/aten/cudnn_rule_sizes.h"

using namespace memplan;
using namespace memplan::cudnn_rules;

namespace {

constexpr ConvPass forward = ConvPass::forward, data = ConvPass::data_gradient, weight = ConvPass::weight_gradient;

Sizes convolution(ConvPass pass, std::int64_t element, bool channels_last, std::int64_t batch, std::int64_t channels,
                  std::int64_t outputs, std::int64_t groups, std::int64_t in, std::int64_t kernel, std::int64_t out,
                  std::int64_t sides = 0, std::int64_t out_rows = 0) {
  Sizes s{};
  s.batch = batch, s.channels = channels, s.outputs = outputs, s.groups = groups;
  s.group_channels = channels / groups, s.group_outputs = outputs / groups;
  s.in = in, s.kernel = kernel, s.out = out, s.sides = sides, s.out_rows = out_rows;
  s.element = element, s.pass = pass, s.channels_last = channels_last;
  return s;
}

std::int64_t bytes(std::string_view kind, std::int64_t amount, const Sizes& s) {
  return bytes_of_kind(kind_of(kind), amount, s);
}

ConvProblem images(DType dtype, bool channels_last, std::int64_t n, std::int64_t c, std::int64_t size, std::int64_t k,
                   std::int64_t r) {
  ConvProblem p;
  p.input = {n, c, size, size};
  p.weight = {k, c, r, r};
  p.output = {n, k, size, size};
  p.stride = p.dilation = {1, 1};
  p.padding = {r / 2, r / 2};
  p.dtype = dtype;
  p.channels_last = channels_last;
  return p;
}

}  // namespace

// Every figure of this case is an answer of cuDNN 9.19 for an A100 (the one with a table of positions: a T4).
TEST_CASE("kinds of cuDNN's workspaces have the sizes that cuDNN says") {
  CHECK(bytes("Z", 0, convolution(forward, 2, false, 1, 112, 48, 1, 133 * 133, 9, 133 * 133)) == 0);
  // copies with the channels last, padded to eight
  CHECK(bytes("C0.0", 0, convolution(forward, 2, false, 1, 112, 48, 1, 133 * 133, 9, 133 * 133)) == 5757264);
  CHECK(bytes("C0.0", 0, convolution(forward, 2, true, 66, 77, 80, 1, 28 * 28, 121, 28 * 28)) == 9827856);
  // groups: eight at a time, or widened
  CHECK(bytes("C0.0", 0, convolution(forward, 2, false, 115, 232, 464, 232, 16 * 70, 49, 640)) == 25957504);
  CHECK(bytes("C3.0", 0, convolution(forward, 2, true, 64, 64, 144, 4, 169, 10, 42)) == 7241744);
  // a table with an entry for every position
  CHECK(bytes("C2.5", 0, convolution(forward, 4, true, 1, 256, 32, 1, 4096, 49, 3480)) == 6266384);
  // partial sums of the weight's gradient, counters of its tiles, buffers of its blocks
  CHECK(bytes("S1", 77, convolution(weight, 4, true, 4, 56, 64, 1, 67081, 1, 67081)) == 129899536);
  CHECK(bytes("S0", 39, convolution(weight, 2, true, 8, 24, 480, 1, 13456, 9, 13456)) == 16174208);
  CHECK(bytes("T0.1", 0, convolution(weight, 2, true, 64, 664, 160, 1, 31684, 81, 21316)) == 1812);
  CHECK(bytes("U0.10", 8, convolution(weight, 2, true, 2, 256, 768, 1, 366025, 3, 366025)) == 18875823);
  CHECK(bytes("V14", 0, convolution(weight, 4, false, 64, 512, 192, 1, 48, 9, 48)) == 6912);
}

// Answers of cuDNN 9.19 for a T4, an A100 and an H100.
TEST_CASE("tables, small blocks, merged groups and constants behind copies have the sizes that cuDNN says") {
  CHECK(bytes("C0.6", 0, convolution(data, 2, false, 66, 1008, 40, 1, 1024, 1, 88, 64)) == 136718480);
  CHECK(bytes("C0.6", 0, convolution(data, 4, false, 32, 640, 16, 1, 50176, 25, 5625, 448)) == 4123164944);
  CHECK(bytes("U6.16", 61, convolution(weight, 4, true, 30, 2, 2, 1, 1024, 9, 1024)) == 742047);
  CHECK(bytes("U10.17", 1, convolution(weight, 2, true, 1, 96, 1656, 1, 169, 1, 169)) == 853791);
  CHECK(bytes("G9.5", 15, convolution(weight, 4, false, 256, 192, 320, 64, 16384, 1, 4096)) == 10739401391);
  CHECK(bytes("G9.5", 39, convolution(weight, 2, true, 1, 24, 256, 8, 50176, 9, 50176)) == 48846639);
  CHECK(bytes("C8.0", 0, convolution(data, 4, true, 1, 138, 80, 1, 529, 49, 144)) == 2501936);
  CHECK(bytes("C8.0", 0, convolution(data, 4, true, 4, 11, 493, 1, 378 * 378, 121, 189 * 189)) == 309539568);
  CHECK(bytes("C14.5", 0, convolution(forward, 4, false, 2, 408, 40, 8, 7850, 9, 7870)) == 377856);
  CHECK(bytes("U11.4", 1, convolution(forward, 4, true, 9, 200, 16, 1, 1, 9, 1)) == 130775);
  CHECK(bytes("W8", 0, convolution(forward, 4, false, 1, 384, 153, 1, 711 * 711, 9, 711 * 711)) == 6047844);
  CHECK(bytes("W8", 0, convolution(data, 4, true, 2, 8, 6, 1, 256, 9, 256)) == 48560);
  CHECK(bytes("D7", 229563, convolution(forward, 4, true, 1, 320, 4, 1, 154, 9, 42)) == 229563);
  CHECK(bytes("D0", 1179883, convolution(data, 2, false, 142, 160, 276, 1, 34596, 25, 34596)) == 4326536059);
}

// Answers of cuDNN 9.19 for a T4, and one for an A100.
TEST_CASE("engines with tables of their own have the sizes that cuDNN says") {
  CHECK(bytes("W8", 0, convolution(forward, 4, true, 32, 112, 48, 1, 17472, 9, 17472, 302, 78)) == 358672592);
  CHECK(bytes("W8", 0, convolution(forward, 4, false, 2, 624, 1008, 16, 85264, 9, 85264, 584, 292)) == 558623872);
  CHECK(bytes("I8.0", 0, convolution(forward, 4, true, 32, 1343, 160, 1, 1024, 49, 1024, 64, 32)) == 239129359);
  CHECK(bytes("I8.0", 0, convolution(forward, 4, true, 1, 112, 1280, 16, 65536, 7, 32768, 512, 256)) == 100300416);
  CHECK(bytes("I8.1", 0, convolution(forward, 4, true, 1, 512, 1, 1, 16, 25, 4, 8, 2)) == 86419);
  CHECK(bytes("I8.1", 0, convolution(forward, 4, true, 4, 240, 944, 16, 225, 16, 144, 30, 12)) == 1998720);
  CHECK(bytes("H8", 0, convolution(forward, 4, true, 256, 8, 16, 1, 3136, 225, 3136, 112, 56)) == 77192752);
  CHECK(bytes("H13", 0, convolution(forward, 4, false, 16, 768, 1023, 3, 49, 4, 9, 14, 3)) == 12288);
  CHECK(bytes("C14.5", 0, convolution(forward, 4, false, 18, 64, 640, 64, 900, 16, 841, 60, 29)) == 40960);
  CHECK(bytes("C8.7", 0, convolution(data, 4, false, 2, 512, 1640, 1, 65536, 6, 64770, 512, 254)) == 395520);
  CHECK(bytes("C8.7", 0, convolution(data, 4, true, 256, 720, 16, 16, 6, 9, 6, 5, 2)) == 2292480);
  CHECK(bytes("C14.7", 0, convolution(data, 4, true, 97, 2048, 217, 1, 9409, 9, 9409, 194, 97)) == 58752);
  CHECK(bytes("V13", 0, convolution(weight, 4, false, 2, 80, 416, 2, 64, 49, 16, 16, 4)) == 6944);
  CHECK(bytes("V14", 0, convolution(weight, 4, false, 32, 219, 1288, 1, 1264, 9, 1264, 95, 16)) == 20336);
  CHECK(bytes("E8.0", 0, convolution(weight, 4, false, 4, 320, 96, 1, 7225, 9, 1849, 170, 43)) == 6539);
  CHECK(bytes("E8.0", 0, convolution(weight, 4, false, 41, 480, 1000, 4, 3136, 121, 529, 112, 23)) == 334581376);
  CHECK(bytes("E8.1", 0, convolution(weight, 4, false, 5, 320, 191, 1, 36, 16, 9, 12, 3)) == 17971);
  CHECK(bytes("E8.1", 0, convolution(weight, 4, false, 32, 384, 297, 3, 121, 9, 25, 22, 5)) == 6909552);
  CHECK(bytes("C9.6", 0, convolution(data, 2, true, 8, 16, 432, 16, 1036, 4, 304, 88, 38)) == 11112976);
  CHECK(bytes("C0.7", 0, convolution(data, 2, true, 188, 1328, 1005, 1, 7, 49, 7, 8, 7)) == 133840528);
  CHECK(bytes("A12.0", 0, convolution(weight, 2, false, 2, 512, 53, 1, 9, 9, 2, 6, 1)) == 1051575);
  CHECK(bytes("A12.0", 0, convolution(weight, 2, false, 64, 128, 512, 2, 441, 9, 441, 42, 21)) == 37307104);
  CHECK(bytes("A12.1", 0, convolution(weight, 2, false, 1, 449, 112, 1, 203401, 16, 16950, 902, 150)) == 192567647);
  CHECK(bytes("A12.1", 0, convolution(weight, 2, false, 512, 790, 638, 2, 336, 9, 36, 62, 2)) == 308061472);
  CHECK(bytes("J", 0, convolution(weight, 2, true, 4, 1, 1, 1, 18496, 49, 18496, 272, 136)) == 200704);
  CHECK(bytes("J", 0, convolution(weight, 2, true, 40, 48, 48, 48, 2704, 9, 2704, 104, 52)) == 737280);
  CHECK(bytes("C1.6", 0, convolution(data, 4, true, 512, 256, 517, 1, 2058, 9, 480, 119, 10)) == 515982096);
}

// Answers of cuDNN 9.19 for a B200.
TEST_CASE("persistent engines' split and shared tiles have the sizes that cuDNN says") {
  CHECK(bytes("X7.4", 1, convolution(forward, 4, true, 32, 318, 566, 1, 3481, 81, 2601)) == 400537296);
  CHECK(bytes("X7.12", 1, convolution(forward, 2, false, 264, 154, 570, 1, 225, 81, 117)) == 84726352);
  CHECK(bytes("X4.12", 1, convolution(data, 4, true, 8, 480, 838, 1, 16, 9, 16)) == 21236944);
  CHECK(bytes("X8.9", 1, convolution(data, 2, false, 256, 1070, 528, 1, 23, 49, 23)) == 93186256);
  CHECK(bytes("X0.1", 1, convolution(weight, 4, false, 32, 16, 8, 1, 3136, 7, 3136)) == 12259024);
  CHECK(bytes("X4.1", 1, convolution(weight, 2, true, 1, 926, 96, 1, 65536, 9, 65024)) == 127957456);
  CHECK(bytes("Y8.5", 2, convolution(weight, 4, false, 2, 937, 474, 1, 4096, 10, 4032)) == 85025616);
  CHECK(bytes("Y0.0", 13, convolution(weight, 4, true, 128, 7, 64, 1, 441, 9, 361)) == 3741904);
  CHECK(bytes("Y3.7", 6, convolution(weight, 2, false, 512, 32, 1, 1, 4, 4, 1)) == 1714384);
}

// Answers of cuDNN 9.19 for an H100.
TEST_CASE("clusters that share the last wave's tiles have the sizes that cuDNN says") {
  CHECK(bytes("P0.0", 0, convolution(weight, 4, true, 35, 1024, 64, 1, 2916, 1, 2916)) == 1048767);
  CHECK(bytes("P0.0", 0, convolution(weight, 4, true, 88, 512, 599, 1, 5929, 15, 1521)) ==
        339667347);  // nothing shared
  CHECK(bytes("P0.0", 0, convolution(forward, 2, true, 4, 594, 388, 1, 262144, 1, 262144)) == 2081893971);
  CHECK(bytes("P0.1", 0, convolution(weight, 2, false, 3, 319, 1024, 1, 67081, 9, 16900)) == 239576147);
  CHECK(bytes("P0.24", 0, convolution(data, 4, false, 4, 160, 858, 1, 64, 9, 64)) == 7046863);
  CHECK(bytes("P0.25", 0, convolution(data, 2, false, 4, 768, 896, 1, 6272, 1, 6272)) == 84541651);
  CHECK(bytes("Q0.0", 0, convolution(data, 4, true, 4, 516, 222, 1, 12544, 4, 12321)) == 46007955);  // a counter
  CHECK(bytes("Q0.2", 0, convolution(weight, 2, false, 11, 80, 256, 1, 256, 9, 256)) == 2261008);    // not even that
  // bfloat16 shares from eight times as many steps on
  Sizes s = convolution(forward, 2, false, 2, 734, 512, 1, 1230, 9, 1230);
  s.bfloat16 = true;
  CHECK(bytes("P0.1", 0, s) == 13971923);
  s = convolution(forward, 2, false, 1, 316, 320, 1, 50176, 1, 12544);
  s.bfloat16 = true;
  CHECK(bytes("P0.0", 0, s) == 40345747);
}

TEST_CASE("a kind that no table has is refused") {
  for (const char* text : {"", "C15.0", "C0.8", "T0.8", "U0.19", "G3.19", "X9.0", "Y0.16", "P14.0", "Q0.64", "V0.1",
                           "E8.2", "Cx", "C0.", "C-1.0"})
    CHECK_THROWS(kind_of(text));
}

TEST_CASE("there is an end to what rules expect") {
  const Sizes s = convolution(ConvPass::forward, 2, false, 1, 112, 48, 1, 133 * 133, 9, 133 * 133);
  CHECK(seldom_more_than(s) > (64 << 20) + 4 * 5757200);
  CHECK(seldom_more_than(s) < (64 << 20) + 8 * 5757200);
}

TEST_CASE("sizes that overflow are refused, not wrapped") {
  const std::int64_t huge = std::int64_t{1} << 40;
  const Sizes s = convolution(ConvPass::forward, 4, true, huge, huge, huge, 1, huge, huge, huge);
  for (const char* text : {"C0.0", "U0.0", "R0", "O"}) CHECK_THROWS(bytes_of_kind(kind_of(text), 8, s));
}

TEST_CASE("rules say something of every architecture, and own up to those of another one") {
  const ConvProblem p = images(DType::float16, false, 24, 72, 75, 104, 3);
  for (const int sm : {75, 80, 86, 89, 90, 100, 120})
    for (const ConvPass pass : {ConvPass::forward, ConvPass::data_gradient, ConvPass::weight_gradient})
      for (const bool near_table : {false, true}) {
        const auto rule = ruled_workspace(p, pass, sm, near_table);
        REQUIRE(rule);
        CHECK(rule->least <= rule->usual);
        CHECK(rule->usual <= rule->most);
        CHECK(rule->own_card);
      }
  for (const auto& [sm, taken] : {std::pair(70, 75), std::pair(103, 100)}) {
    REQUIRE(ruled_workspace(p, ConvPass::forward, sm));
    CHECK_FALSE(ruled_workspace(p, ConvPass::forward, sm)->own_card);
    CHECK(ruled_workspace(p, ConvPass::forward, sm)->usual == ruled_workspace(p, ConvPass::forward, taken)->usual);
  }
}

TEST_CASE("a convolution without elements or with more groups than channels has no rule") {
  ConvProblem p = images(DType::float32, false, 0, 8, 9, 8, 3);
  CHECK_FALSE(ruled_workspace(p, ConvPass::forward, 90));
  p = images(DType::float32, false, 2, 8, 9, 8, 3);
  p.groups = 16;
  CHECK_FALSE(ruled_workspace(p, ConvPass::forward, 90));
}

TEST_CASE("the tables are carried cut by card") {
  const std::vector<int> all{75, 80, 86, 89, 90, 100, 120};
  for (const std::string_view file : {"workspaces", "differences-9.24", "differences-9.26", "rules"}) {
    CHECK(cudnn_parts::cards_of(file) == all);
    for (const int sm : all) {
      const std::string start = (file == "rules" ? "tree " : "") + std::to_string(sm) + " ";
      const std::string_view text = cudnn_parts::part(file, sm);
      CHECK(text.starts_with(start));
      CHECK(text.ends_with('\n'));
      // another card's lines would follow or stand before
      const auto last = text.substr(0, text.size() - 1).rfind(file == "rules" ? "\ntree " : "\n");
      CHECK(text.substr(last + 1).starts_with(start));
    }
  }
  CHECK(cudnn_parts::cards_of("differences-9.10") == std::vector<int>{75, 80, 86, 89, 90, 120});
  CHECK_THROWS(cudnn_parts::part("workspaces", 70));
  CHECK_THROWS(cudnn_parts::part("rules", 70));
}
