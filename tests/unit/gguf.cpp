#include "estimators/frontends/gguf.h"

#include <doctest/doctest.h>

#include "estimators/base/error.h"
#include "estimators/frontends/detect.h"
#include "scratch_archive.h"

using namespace memplan;
using namespace memplan::frontends;

namespace {

std::string little(std::uint64_t n, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(i < 8 ? n >> (8 * i) & 255 : 0));
  return out;
}

std::string text(const std::string& s) { return little(s.size(), 8) + s; }

/// A file by the format's specification: magic, version, counts, pairs of a key and a value, then the tensors.
struct Gguf {
  std::string pairs, tensors;
  std::uint64_t pair_count = 0, tensor_count = 0, version = 3;

  Gguf& pair(const std::string& key, std::uint32_t kind, const std::string& value) {
    pairs += text(key) + little(kind, 4) + value;
    ++pair_count;
    return *this;
  }
  Gguf& tensor(const std::string& name, std::vector<std::uint64_t> sizes, std::uint32_t type) {
    tensors += text(name) + little(sizes.size(), 4);
    for (std::uint64_t s : sizes) tensors += little(s, 8);
    tensors += little(type, 4) + little(0, 8);
    ++tensor_count;
    return *this;
  }
  std::string bytes() const {
    return "GGUF" + little(version, 4) + little(tensor_count, 8) + little(pair_count, 8) + pairs + tensors;
  }
};

std::string error_of(const std::string& bytes) {
  const ScratchFile file(bytes);
  try {
    refuse_without_graph(FileKind::gguf, file.path());
  } catch (const Failure& failure) {
    CHECK(failure.error().kind == ErrorKind::input);
    return failure.error().what;
  }
}

}  // namespace

TEST_CASE("bits per weight of GGUF's formats") {
  // Of the block structures: for q4_K, 256 weights of 4 bits, 8 scales and 8 minima of 6 bits, two fp16 factors.
  const std::pair<const char*, double> bits[] = {
      {"f32", 32},         {"f16", 16},        {"bf16", 16},      {"q4_0", 4.5},       {"q4_1", 5.0},
      {"q5_0", 5.5},       {"q5_1", 6.0},      {"q8_0", 8.5},     {"q2_K", 2.625},     {"q3_K", 3.4375},
      {"q4_K", 4.5},       {"q5_K", 5.5},      {"q6_K", 6.5625},  {"iq1_s", 1.5625},   {"iq1_m", 1.75},
      {"iq2_xxs", 2.0625}, {"iq2_xs", 2.3125}, {"iq2_s", 2.5625}, {"iq3_xxs", 3.0625}, {"iq3_s", 3.4375},
      {"iq4_nl", 4.5},     {"iq4_xs", 4.25},   {"tq1_0", 1.6875}, {"tq2_0", 2.0625},   {"mxfp4", 4.25},
      {"nvfp4", 4.5}};
  for (const auto& [spelled, expected] : bits) {
    const auto name = spelled;  // clang 14 captures no names of a structured binding
    CAPTURE(name);
    const GgufType* type = gguf_type(std::string(name));
    REQUIRE(type);
    CHECK(type->bits() == expected);
    CHECK(gguf_type(type->id) == type);
  }
  CHECK((256 * 4 + 8 * 6 + 8 * 6 + 2 * 16) / 256.0 == gguf_type("q4_K")->bits());
}

TEST_CASE("a GGUF file says how many bytes its weights take") {
  Gguf file;
  file.pair("general.architecture", 8, text("llama"))
      .pair("tokenizer.ggml.tokens", 9, little(8, 4) + little(2, 8) + text("a") + text("bc"))
      .pair("tokenizer.ggml.scores", 9, little(6, 4) + little(2, 8) + little(0, 8))
      .pair("llama.block_count", 4, little(32, 4))
      .tensor("blk.0.attn_q.weight", {4096, 4096}, 12)
      .tensor("blk.0.ffn_down.weight", {14336, 4096}, 14)
      .tensor("output_norm.weight", {4096}, 0);
  const ScratchFile scratch(file.bytes());
  CHECK(detect(scratch.path()) == FileKind::gguf);
  const GgufInventory found = read_gguf(scratch.path());
  CHECK(found.tensors == 3);
  CHECK(found.by_type.at("q4_K") == 4096.0 * 4096 * 4.5 / 8);
  CHECK(found.by_type.at("q6_K") == 14336.0 * 4096 * 6.5625 / 8);
  CHECK(found.bytes == 4096.0 * 4096 * 4.5 / 8 + 14336.0 * 4096 * 6.5625 / 8 + 4096 * 4);
  const std::string said = error_of(file.bytes());
  CHECK(said.find("55.0 MiB") != std::string::npos);  // 57,622,528 bytes
  CHECK(said.find("q6_K 45.9 MiB") != std::string::npos);
  CHECK(said.find("no graph") != std::string::npos);
}

TEST_CASE("damaged GGUF headers and unknown formats are errors, never zero bytes") {
  CHECK(error_of("GGUF").find("ends within its header") != std::string::npos);
  CHECK(error_of(Gguf{}.tensor("a", {32, 2}, 99).bytes()).find("number 99") != std::string::npos);
  CHECK(error_of(Gguf{}.tensor("a", {33}, 2).bytes()).find("no whole blocks of 32") != std::string::npos);
  CHECK(error_of(Gguf{}.tensor("a", {1ull << 40, 1ull << 40}, 0).bytes()).find("more elements") != std::string::npos);
  CHECK(error_of(Gguf{}.pair("a", 77, "").bytes()).find("unknown kind (77)") != std::string::npos);
  CHECK(error_of(Gguf{}.pair("a", 9, little(9, 4) + little(1, 8)).bytes()).find("unknown kind (9)") !=
        std::string::npos);
  CHECK(error_of("GGUF" + little(9, 4) + little(0, 16)).find("version 9") != std::string::npos);
  const std::string whole = Gguf{}.pair("k", 8, text("v")).tensor("a", {256, 8}, 12).bytes();
  for (std::size_t n = 8; n < whole.size(); ++n) {
    CAPTURE(n);
    CHECK(error_of(whole.substr(0, n)).find("ends within its header") != std::string::npos);
  }
  CHECK(
      error_of("GGUF" + little(3, 4) + little(1, 8) + little(0, 8) + little(~0ull, 8)).find("ends within its header") !=
      std::string::npos);
  CHECK(error_of("GGUF" + little(3, 4) + little(~0ull, 8) + little(~0ull, 8)).find("ends within its header") !=
        std::string::npos);
}
