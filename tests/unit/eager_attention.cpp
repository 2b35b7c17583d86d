// What eager code does where a plain export shows traced code: masks, biases, dtypes that lines ask for.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "estimators/base/unwrap.h"
#include "estimators/pipeline.h"
#include "estimators/restore/casts.h"
#include "estimators/restore/names.h"
#include "estimators/restore/passes.h"
#include "estimators/tape/tape_text.h"

using namespace memplan;

namespace {

const std::string line = R"tape( in 0 at "transformers/x.py:1 mask = make("
)tape";

/// What transformers' masking_utils.py: sdpa_mask does when it is traced, on a line that calls it by another name.
std::string mask_of(const std::string& comparison) {
  return R"tape(
input %q float32 [2, 2, 4, 8]
input %tokens bool [2, 4]
parameter %bias float32 [1, 2, 4, 4]
scope 0 model M
%sample = aten::arange(2))tape" +
         line + "%head = aten::arange(1)" + line + "%row = aten::arange(4)" + line + "%column = aten::arange(4)" +
         line + "%rows = aten::unsqueeze(%row, 1)" + line + "%columns = aten::unsqueeze(%column, 0)" + line +
         comparison + line;
}

int count(const Tape& tape, std::string_view op) {
  return static_cast<int>(
      std::count_if(tape.calls.begin(), tape.calls.end(), [&](const Call& c) { return c.op == op; }));
}

const Call& last(const Tape& tape) { return tape.calls.back(); }

}  // namespace

TEST_CASE("a mask is known by what its line does, whatever the function's name is") {
  Tape tape = from_text(mask_of("%mask = aten::ge.Scalar(%rows, 0)") +
                        "%scores = aten::mul.Tensor(%q, %bias) in 0\n"
                        "%sum = aten::add.Tensor(%scores, %mask) in 0\n"
                        "%out = aten::softmax.int(%sum, -1) in 0\nreturn %out\n");
  recover_causal_masks(tape);
  CHECK(count(tape, "aten::ge.Scalar") == 0);
  CHECK(count(tape, "aten::add.Tensor") == 0);
  CHECK(std::get<ValueId>(last(tape).args[0].value) == tape.calls[tape.calls.size() - 2].outputs[0]);
}

// integrations/sdpa_attention.py: create_position_bias_mask returns the bias where there is no mask.
TEST_CASE("a position bias is attention's mask by itself where eager code makes no other one") {
  const std::string attention = R"tape(
%joined = aten::where.ScalarOther(%mask, %bias, -1.0) in 0 at "transformers/x.py:2 out = attend("
%dense = aten::contiguous(%joined) in 0 at "transformers/x.py:2 out = attend("
%out = aten::scaled_dot_product_attention(%q, %q, %q, %dense) in 0 at "transformers/x.py:2 out = attend("
return %out
)tape";
  Tape both = from_text(mask_of("%mask = aten::ge.Scalar(%rows, 0)") + attention);
  recover_causal_masks(both);
  CHECK(count(both, "aten::where.ScalarOther") == 0);
  const Call& joined = both.calls[both.calls.size() - 3];
  CHECK(joined.op == "aten::contiguous");
  CHECK(both.values[static_cast<std::size_t>(std::get<ValueId>(joined.args[0].value).index)].name == "bias");
  CHECK_FALSE(last(both).args[3].is_none());

  // A causal one it makes anew in each layer: arange(4)[:, None] >= arange(4)[None, :], of no batch.
  Tape causal = from_text(mask_of("%mask = aten::le.Tensor(%columns, %rows)") + attention);
  recover_causal_masks(causal);
  CHECK(count(causal, "aten::le.Tensor") == 0);
  CHECK(count(causal, "aten::ge.Tensor") == 1);
  CHECK(count(causal, "aten::unsqueeze") == 2);
  CHECK(count(causal, "aten::where.ScalarOther") == 1);
}

// The same function makes a mask in each layer. An exporter's optimizer leaves one, without `.contiguous()`, and works
// out what rests on no input.
TEST_CASE("layers whose masks an optimizer has merged make their own") {
  const std::string layers = R"tape(
%joined = aten::where.ScalarOther(%mask, %bias, -1.0) in 0 at "transformers/x.py:2 out = attend("
%first = aten::scaled_dot_product_attention(%q, %q, %q, %joined) in 0 at "transformers/x.py:2 out = attend("
%out = aten::scaled_dot_product_attention(%first, %q, %q, %joined) in 0 at "transformers/x.py:2 out = attend("
return %out
)tape";
  Tape both = from_text(mask_of("%mask = aten::ge.Scalar(%rows, 0)") + layers);
  recover_causal_masks(both);
  CHECK(count(both, "aten::where.ScalarOther") == 0);
  CHECK(count(both, "aten::contiguous") == 2);

  Tape causal = from_text(mask_of("%mask = aten::le.Tensor(%columns, %rows)") + layers);
  recover_causal_masks(causal);
  CHECK(count(causal, "aten::where.ScalarOther") == 2);
  CHECK(count(causal, "aten::contiguous") == 2);
  CHECK(count(causal, "aten::le.Tensor") == 0);

  const auto folded = [&](const char* sizes, const char* source) {
    Tape tape = from_text(std::string("input %q float32 [2, 2, 4, 8]\nparameter %bias float32 [1, 2, 4, 4]\n") +
                          "scope 0 model M\n%mask = aten::empty.memory_format(" + sizes + ", dtype=bool) in 0 at \"" +
                          source + "\"" + layers);
    recover_causal_masks(tape);
    return std::pair{count(tape, "aten::where.ScalarOther"), count(tape, "aten::ge.Tensor")};
  };
  CHECK(folded("[1, 1, 4, 4]", "transformers/x.py:1 mask = create_causal_mask(") == std::pair{2, 2});
  // Of queries and other keys: no mask. One of as many as that says nothing of how it was made stays.
  CHECK(folded("[2, 1, 4, 6]", "transformers/x.py:2 out = attend(") == std::pair{0, 0});
  CHECK(folded("[2, 1, 4, 4]", "transformers/x.py:2 out = attend(") == std::pair{2, 0});
}

// masking_utils.py: find_packed_sequence_indices returns None where no sequence is packed, unless it is traced.
TEST_CASE("the comparison of packed sequences is traced code alone") {
  const std::string packed = "%steps = aten::diff(%tokens)" + line + "%numbers = aten::cumsum(%steps, -1)" + line +
                             "%of_row = aten::index.Tensor(%numbers, [%sample, %row])" + line +
                             "%of_column = aten::index.Tensor(%numbers, [%sample, %column])" + line +
                             "%same = aten::eq.Tensor(%of_row, %of_column)" + line +
                             "%causal = aten::le.Tensor(%columns, %rows)" + line +
                             "%mask = aten::__and__.Tensor(%causal, %same)";
  Tape tape = from_text(mask_of(packed) +
                        "%scores = aten::mul.Tensor(%q, %bias) in 0\n"
                        "%out = aten::add.Tensor(%scores, %mask) in 0\nreturn %out\n");
  recover_causal_masks(tape);
  CHECK(count(tape, "aten::eq.Tensor") == 0);
  CHECK(count(tape, "aten::__and__.Tensor") == 0);
  CHECK(count(tape, "aten::le.Tensor") == 1);
}

// The same in an ONNX file whose optimizer worked out the numbers of queries and keys: the line does nothing else that
// tells what it is, and calls the function by another name.
TEST_CASE("a line that counts sequences and compares them builds a mask") {
  const std::string numbers = "%row = aten::empty.memory_format([1, 1, 4, 1], dtype=int64)" + line +
                              "%column = aten::empty.memory_format([1, 1, 1, 4], dtype=int64)" + line +
                              "%steps = aten::diff(%tokens)" + line + "%numbers = aten::cumsum(%steps, -1)" + line;
  const auto two = [&](const std::string& of, const std::string& what) {
    return "%" + what + "row = aten::index.Tensor(%" + of + ", [%row])" + line + "%" + what +
           "column = aten::index.Tensor(%" + of + ", [%column])" + line;
  };
  Tape tape = from_text("input %q float32 [2, 2, 4, 8]\ninput %tokens bool [2, 4]\nscope 0 model M\n" + numbers +
                        two("numbers", "sequence_") + "%same = aten::eq.Tensor(%sequence_row, %sequence_column)" +
                        line + two("tokens", "token_") + "%causal = aten::le.Tensor(%token_column, %token_row)" + line +
                        "%mask = aten::bitwise_and.Tensor(%causal, %same)" + line +
                        "%out = aten::scaled_dot_product_attention(%q, %q, %q, %mask) in 0 at \"transformers/x.py:2 "
                        "out = attend(\"\nreturn %out\n");
  recover_causal_masks(tape);
  REQUIRE(count(tape, "aten::scaled_dot_product_attention") == 1);
  CHECK(count(tape, "aten::eq.Tensor") == 0);
}

TEST_CASE("a new tensor takes the dtype of the tensor that its line names") {
  const auto asked = [](const char* source) {
    Tape tape = from_text(std::string(R"tape(
input %in float32 [4]
scope 0 "" M
scope 1 drop Drop in 0
%x = aten::relu(%in) in 0
%noise = aten::rand([4], dtype=float32) in 1 at "m.py:1 )tape") +
                          source + R"tape("
%out = aten::mul.Tensor(%x, %noise) in 1 at "m.py:2 return x * noise"
return %out
)tape");
    bind_names(tape);
    follow_asked_dtypes(tape);
    const Arg& dtype = tape.calls[1].kwargs.at(0).second;
    return std::holds_alternative<ValueId>(dtype.value) && std::get<ValueId>(dtype.value) == tape.calls[0].outputs[0];
  };
  CHECK(asked("noise = torch.rand(shape, dtype=x.dtype)"));
  CHECK_FALSE(asked("noise = torch.rand(shape, dtype=torch.float32)"));
  CHECK_FALSE(asked("noise = torch.rand(shape, dtype=other.dtype)"));
}

// native/transformers/sdp_utils_cpp.h: check_batch_size_and_num_heads_dense. What the fused kernels refuse computes the
// scores: 2 · 4 · 64 · 64 of them, and twice, before and after the softmax.
TEST_CASE("attention of heads that broadcast computes its scores") {
  const auto peak = [](const char* heads) {
    const Tape tape = from_text(std::string("input %q float32 [2, 4, 64, 8]\ninput %k float32 [2, ") + heads +
                                ", 64, 8]\nscope 0 \"\" M\n"
                                "%out = aten::scaled_dot_product_attention(%q, %k, %k) in 0\nreturn %out\n");
    TrainingSetup setup;
    setup.mode = Mode::inference;
    return memplan::unwrap(estimate_tape(tape, setup, choose_device("h100-80gb").device)).peak.requested.count;
  };
  constexpr std::int64_t scores = 2 * 4 * 64 * 64 * 4;
  CHECK(peak("4") < scores);
  CHECK(peak("1") > 2 * scores);
}

// torch.result_type: integers stay integers, and a real number makes them the default dtype. A step holds the output of
// the one before, and both numbers become tensors.
TEST_CASE("where of two numbers is of their kind") {
  const auto bytes = [](const char* numbers) {
    const Tape tape = from_text(std::string("input %x bool [1000]\nscope 0 \"\" M\n%y = aten::where.Scalar(%x, ") +
                                numbers + ") in 0\nreturn %y\n");
    TrainingSetup setup;
    setup.mode = Mode::inference;
    return memplan::unwrap(estimate_tape(tape, setup, choose_device("h100-80gb").device)).peak.requested.count;
  };
  CHECK(bytes("0, -1") - bytes("0.0, 1.0") == 2 * 1000 * (8 - 4) + 2 * (8 - 4));
  CHECK(bytes("0, 1.0") == bytes("0.0, 1.0"));
}
