// Names and conversions inside of functions that are known step by step.
#include "estimators/restore/function_names.h"

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "estimators/facts/libraries.h"
#include "estimators/restore/casts.h"
#include "estimators/restore/names.h"
#include "estimators/tape/tape_text.h"
#include "lives.h"

using namespace memplan;
using memplan::test::gone_after;
using Steps = std::vector<std::int32_t>;

namespace {

/// A module whose calls, "%y = aten::exp(%x)", all stand at one line.
std::string calls_at(std::initializer_list<const char*> calls, const std::string& line) {
  std::string text = "input %x float32 [2, 4]\nscope 0 \"\" M\n";
  for (const char* call : calls) text += call + line + "\n";
  return text;
}

}  // namespace

TEST_CASE("a function's steps are read from a line") {
  const auto steps = parse_function("x=< a=mul ( b=pad c,list+=^pad ) { d=add~ sub } [ e=exp ] ~conv1d f=clone^");
  REQUIRE(steps.size() == 8);
  CHECK(steps[0].argument == "x");
  CHECK(steps[0].op == "mul");
  CHECK(steps[1].bound_at == 2);  // with the tuple
  CHECK(steps[2].names == std::vector<std::string_view>{"c", "list"});
  CHECK(steps[2].appends);
  CHECK(steps[2].converts == Conversion::first_to_fp32);
  CHECK(steps[3].converts == Conversion::second_like_first);
  CHECK(steps[3].op == "add");
  CHECK(steps[4].again == 3);
  CHECK(steps[5].inner == 1);
  CHECK(steps[6].converts == Conversion::first_like_second);
  CHECK(steps[6].inner == 0);
  CHECK(steps[7].converts == Conversion::result_to_fp32);
}

TEST_CASE("steps are matched in order, and as few left out as can be") {
  const auto steps = parse_function("a=mul b=add { c=sub d=add } e=mul");
  CHECK(match_steps(steps, {"mul", "add", "sub", "add", "mul"}) == Steps{0, 1, 2, 3, 4});
  // Turns of a loop, an op that is no step, and a step that did not run.
  CHECK(match_steps(steps, {"mul", "view", "sub", "add", "sub", "add", "mul"}) == Steps{0, -1, 2, 3, 2, 3, 4});
  // Not the loop's last step: the turn would leave one out.
  CHECK(match_steps(parse_function("{ a=add sub b=add }"), {"add", "sub", "add", "add", "sub"}) ==
        Steps{0, 1, 2, 0, 1});
  CHECK(match_steps(steps, {}).empty());
  CHECK(match_steps({}, {"mul"}) == Steps{-1});
}

// transformers 5.23.0, models/mamba/modeling_mamba.py:174, mamba_selective_scan.
TEST_CASE("names inside of a known function hold their results until it returns") {
  const std::string line = R"( in 0 at "transformers/models/mamba/modeling_mamba.py:459 y = mamba_selective_scan(")";
  std::string text =
      calls_at({"%soft = aten::softplus(%x)", "%p = aten::mul.Tensor(%soft, %soft)", "%discrete = aten::exp(%p)",
                "%b = aten::mul.Tensor(%discrete, %x)", "%u = aten::mul.Tensor(%b, %x)", "%state = aten::zeros([2, 4])",
                "%t = aten::mul.Tensor(%discrete, %state)", "%s = aten::add.Tensor(%t, %u)",
                "%o = aten::matmul(%s, %x)", "%out = aten::stack([%o, %o], -1)"},
               line);
  text += "%after = aten::relu(%out) in 0 at \"m.py:2 z = relu(y)\"\nreturn %after\n";
  const Tape tape = from_text(text);
  constexpr int returns = 9;
  CHECK(gone_after(tape, "p") == 2);  // no name has it
  CHECK(gone_after(tape, "t") == 7);
  CHECK(gone_after(tape, "soft") == returns);      // dt
  CHECK(gone_after(tape, "discrete") == returns);  // discrete_A
  CHECK(gone_after(tape, "b") == returns);         // discrete_B
  CHECK(gone_after(tape, "state") == 7);           // ssm_state, bound again
  CHECK(gone_after(tape, "o") == returns);         // scan_outputs
  // Of another function nothing is known.
  std::string other = text;
  for (auto at = other.find("mamba_selective_scan"); at != other.npos; at = other.find("mamba_selective_scan", at))
    other.replace(at, 20, "some_selective_scan_");
  CHECK(gone_after(from_text(other), "discrete") == 6);
}

// transformers 5.23.0, models/mamba2/modeling_mamba2.py:145: F.conv1d(hidden_states.to(weight.dtype), weight, …)
TEST_CASE("conversions inside of a known function come back where the file has none") {
  Tape tape = from_text(R"tape(
input %x float32 [2, 4, 8]
input %w float32 [4, 1, 3]
scope 0 "" M
%conv = aten::conv1d(%x, %w) in 0 at "transformers/models/mamba2/modeling_mamba2.py:9 x = causal_conv1d_fn("
return %conv
)tape");
  bind_names(tape);
  Tape kept = tape;
  convert_in_functions(tape);
  REQUIRE(tape.calls.size() == 2);
  CHECK(tape.calls[0].op == "aten::type_as");
  CHECK(std::get<ValueId>(tape.calls[1].args[0].value) == tape.calls[0].outputs[0]);
  CHECK(tape.calls[0].binding == tape.calls[1].binding);
  REQUIRE(tape.recovered.size() == 1);
  kept.exported.keeps_casts = true;
  convert_in_functions(kept);
  CHECK(kept.calls.size() == 1);
}

TEST_CASE("all functions of the table can be read") {
  const auto& known = library_facts("statements");
  CHECK(known.size() >= 7);
  for (const LibraryFact& f : known) {
    const auto steps = parse_function(f.detail);
    CAPTURE(f.subject);
    CHECK(f.function);
    CHECK(steps.size() >= 3);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      CHECK(!steps[i].op.empty());
      CHECK(steps[i].op.find_first_of("=^~<(){}[]") == std::string_view::npos);
      CHECK(steps[i].bound_at >= static_cast<std::int32_t>(i));
    }
  }
}

// timm 1.0.31, models/swin_transformer.py:603: x = x + self.drop_path1(self._attn(self.norm1(x)))
TEST_CASE("a method of that name is known in the library's own code alone") {
  const auto gone = [](const std::string& file) {
    const std::string text =
        calls_at({"%first = aten::roll(%x, [1])", "%pad = aten::pad(%first, [0, 0])", "%v = aten::view(%pad, [4, 2])",
                  "%p = aten::permute(%v, [1, 0])", "%c = aten::contiguous(%p)", "%w = aten::view(%c, [8])",
                  "%u = aten::view(%w, [4, 2])", "%q = aten::permute(%u, [1, 0])", "%d = aten::contiguous(%q)",
                  "%back = aten::roll(%d, [1])"},
                 " in 0 at \"" + file + ":1 x = x + self._attn(x)\"");
    return gone_after(from_text(text + "return %back\n"), "pad");
  };
  CHECK(gone("timm/models/swin_transformer.py") == 8);
  CHECK(gone("m.py") == 2);
}
