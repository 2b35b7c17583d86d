// Lines of the exported program that an ONNX file carries at its nodes, where its optimizer changed the nodes.
#include <doctest/doctest.h>

#include <algorithm>

#include "onnx_builder.h"

using namespace memplan;
using namespace memplan::test;
using Ops = std::vector<std::string>;

namespace {

void line(::onnx::NodeProto& n, const std::string& name, const std::string& call) {
  auto* entry = n.add_metadata_props();
  entry->set_key("pkg.torch.onnx.fx_node");
  entry->set_value("%" + name + " : [num_users=1] = call_function[target=torch.ops.aten." + call + ", kwargs = {})");
}

/// relu(m) of 7 numbers, then attention without a mask; its line says that the relu's result is the mask.
Builder misfit() {
  Builder b;
  b.input("m", {7});
  for (const char* name : {"q", "k", "v"}) b.input(name, {-1, 4, 16, 64});
  line(b.node("Relu", {"m"}, {"relu"}), "relu", "relu.default](args = (%m,)");
  const std::string sdpa = "scaled_dot_product_attention";
  const std::string text = sdpa + ".default](args = (%q, %k, %v, %relu)";
  b.real("s", 0.35355339f);
  auto& turn = b.node("Transpose", {"k"}, {"kt"});
  Builder::attribute(turn, "perm", {0, 1, 3, 2});
  line(turn, sdpa, text);
  line(b.node("Mul", {"q", "s"}, {"qs"}), sdpa, text);
  line(b.node("Mul", {"kt", "s"}, {"ks"}), sdpa, text);
  line(b.node("MatMul", {"qs", "ks"}, {"scores"}), sdpa, text);
  line(b.node("Softmax", {"scores"}, {"weights"}), sdpa, text);
  line(b.node("MatMul", {"weights", "v"}, {sdpa}), sdpa, text);
  b.output("relu").output(sdpa);
  return b;
}

bool has_note(const Tape& tape, const std::string& code) {
  return std::any_of(tape.notes.begin(), tape.notes.end(), [&](const Note& n) { return n.code == code; });
}

}  // namespace

TEST_CASE("lines that cannot run make way for the nodes") {
  const auto tape = misfit().tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::relu", "aten::scaled_dot_product_attention"});
  CHECK(tape->calls[1].args[3].is_none());
  REQUIRE(has_note(*tape, "MP023"));
}

TEST_CASE("one line that does not fit its nodes leaves the others alone") {
  // A name that nothing makes: the file is told line by line where lines and nodes agree.
  Builder b = misfit();
  b.input("x", {3});
  auto& lost = b.node("Exp", {"x"}, {"exp"});
  line(lost, "exp", "exp.default](args = (%gone,)");
  b.output("exp");
  const auto tape = b.tape(with_batch(2));
  REQUIRE(tape.ok());
  CHECK(ops_of(*tape) == Ops{"aten::relu", "aten::scaled_dot_product_attention", "aten::exp"});
  CHECK(tape->calls[1].args[3].is_none());
  CHECK_FALSE(has_note(*tape, "MP023"));
}
