#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "estimators/restore/frozen.h"
#include "estimators/tape/tape_text.h"

using namespace memplan;

namespace {

/// Which parameters are trained as the tape's reading has it.
std::vector<bool> trained_in(Tape tape) {
  freeze_by_name(tape);
  std::vector<bool> out;
  for (const ValueId id : tape.parameters) out.push_back(tape.values[static_cast<std::size_t>(id.index)].requires_grad);
  return out;
}

/// Which parameters are trained where what may have come trained is not.
std::vector<bool> trained(const std::string& parameters, const std::string& root = "mine.Model") {
  Tape tape = from_text("input %x float32 [4, 8]\n" + parameters + "scope 0 \"\" " + root + R"tape(
scope 1 words torch.nn.modules.sparse.Embedding in 0
%y = aten::tanh(%x) in 1
return %y
)tape");
  tape.exported.tells_frozen = false;
  tape.reading.pretrained = true;
  const bool some = has_pretrained(tape);
  std::vector<bool> out = trained_in(std::move(tape));
  CHECK(some == (std::vector<bool>(out.size(), true) != out));
  return out;
}

}  // namespace

TEST_CASE("an encoder of convolutions beside layers without any may have come trained") {
  const std::string encoder = "parameter %encoder.features.0.weight float32 [64, 3, 3, 3]\n";
  const std::string head = "parameter %head.weight float32 [10, 64]\n";
  CHECK(trained(encoder + head) == std::vector{false, true});
  // Autoencoders and segmenters train both halves.
  CHECK(trained(encoder + "parameter %decoder.0.weight float32 [64, 3, 3, 3]\n") == std::vector{true, true});
  CHECK(
      trained("parameter %backbone.0.weight float32 [64, 3, 3, 3]\nparameter %head.0.weight float32 [8, 64, 3, 3]\n") ==
      std::vector{false, true});
  CHECK(trained("parameter %encoder.layer.weight float32 [64, 64]\n" + head) == std::vector{true, true});
  CHECK(trained(encoder + head, "torchvision.models.Model") == std::vector{true, true});
}

TEST_CASE("tables as wide as those of GloVe, and positions, may not be trained") {
  const std::string head = "parameter %head.weight float32 [300, 300]\n";
  CHECK(trained("parameter %words.weight float32 [1000, 300]\n" + head) == std::vector{false, true});
  CHECK(trained("parameter %words.weight float32 [1000, 256]\n" + head) == std::vector{true, true});
  CHECK(trained("parameter %pos_embed float32 [1, 64, 256]\n" + head) == std::vector{false, true});
}

TEST_CASE("a network that stays in evaluation mode while others train came trained") {
  const auto tape_of = [](const char* first, const char* second) {
    const auto norm = [](const std::string& out, const std::string& in, const std::string& module, const char* mode,
                         int scope) {
      return "%" + out + " = aten::batch_norm(%" + in + ", %" + module + ".weight, None, None, None, " + mode +
             ", 0.1, 1e-05, True) in " + std::to_string(scope) + "\n";
    };
    Tape tape = from_text(
        "input %x float32 [4, 8, 2, 2]\nparameter %trunk.norm.weight float32 [8]\n"
        "parameter %trunk.conv.weight float32 [8, 8]\nparameter %head.norm.weight float32 [8]\n"
        "scope 0 \"\" M\nscope 1 trunk T in 0\nscope 2 trunk.norm N in 1\nscope 3 head H in 0\n"
        "scope 4 head.norm N in 3\n" +
        norm("y", "x", "trunk.norm", first, 2) + norm("z", "y", "head.norm", second, 4) + "return %z\n");
    tape.exported.tells_frozen = false;
    return tape;
  };
  const Tape mixed = tape_of("False", "True");
  CHECK(has_evaluated_networks(mixed));
  CHECK(trained_in(mixed) == std::vector{false, false, true});
  Tape otherwise = mixed;
  otherwise.reading.evaluated_frozen = false;
  CHECK(trained_in(otherwise) == std::vector{true, true, true});
  // A model that was exported in evaluation mode as a whole says nothing of its training.
  CHECK_FALSE(has_evaluated_networks(tape_of("False", "False")));
  CHECK_FALSE(has_evaluated_networks(tape_of("True", "True")));
}

TEST_CASE("a network that reads what another one makes, and what the model is given, judges it") {
  const auto tape_of = [](const std::string& second) {
    Tape tape = from_text(
        "input %x float32 [4, 8]\ninput %goal float32 [4, 8]\nparameter %net.weight float32 [8, 8]\n"
        "parameter %look.weight float32 [8, 8]\nscope 0 \"\" M\nscope 1 net N in 0\n"
        "scope 2 look L in 0\nscope 3 look L in 0 call 1\n"
        "%made = aten::mm(%x, %net.weight) in 1\n"
        "%mine = aten::mm(%made, %look.weight) in 2\n"
        "%theirs = aten::mm(%" +
        second + ", %look.weight) in 3\n%d = aten::sub.Tensor(%mine, %theirs) in 0\nreturn %d\n");
    tape.exported.tells_frozen = false;
    tape.reading.frozen_names = true;
    return tape;
  };
  CHECK(has_frozen_names(tape_of("goal")));
  CHECK(trained_in(tape_of("goal")) == std::vector{true, false});
  // Layers that are called again on their own results, or twice on those of others, train.
  CHECK_FALSE(has_frozen_names(tape_of("mine")));
  CHECK_FALSE(has_frozen_names(tape_of("made")));
}
