// TorchScript programs as memplan-torch sends them, without LibTorch.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "estimators/frontends/torch_export/program.h"
#include "estimators/frontends/torchscript/reader.h"
#include "estimators/pipeline.h"
#include "estimators/unroll/values.h"
#include "tests/unit/scratch_archive.h"

using namespace memplan;
using namespace memplan::torchscript;
using nlohmann::json;

namespace {

json constant(int out, json value) { return {{"op", "prim::Constant"}, {"out", {out}}, {"value", std::move(value)}}; }
json op_node(const char* op, json in, json out) {
  return {{"op", op}, {"in", std::move(in)}, {"out", std::move(out)}, {"at", 0}};
}
/// What braces around one JSON value are differs between compilers, so nodes are lists of C++.
using Nodes = std::vector<json>;
json block(json in, const Nodes& nodes, json out) {
  return {{"in", std::move(in)}, {"nodes", nodes}, {"out", std::move(out)}};
}

/// forward(x): `nodes` may use 0 (x), 1 (weight [4, 4]) and make 10; returns 10.
json reply(Nodes nodes) {
  nodes.insert(nodes.begin(), constant(1, {{"t", 0}}));
  return {{"torch", "2.11"},
          {"bytes_read", 0},
          {"inputs", {{{"id", 0}, {"name", "x"}, {"type", "Tensor"}}}},
          {"nodes", nodes},
          {"outputs", {10}},
          {"stacks", {{{"paths", {""}}, {"classes", {"m.Net"}}, {"lines", json::array()}}}},
          {"schemas", json::object()},
          {"tensors",
           {{{"name", "w"},
             {"kind", "parameter"},
             {"dtype", "Float"},
             {"sizes", {4, 4}},
             {"grad", true},
             {"number", nullptr}}}}};
}

Model model_of(Nodes nodes) {
  Model model;
  auto program = std::make_shared<torch_export::Program>();
  program->script = std::make_shared<const Script>(parse_script(reply(std::move(nodes))));
  model.exported = program;
  Graph g;
  GraphValue x;
  x.name = "x";
  x.dtype = DType::float32;
  x.shape = std::vector<Dim>{{-1, "batch"}, {4, ""}};
  g.values = {x};
  g.inputs = {0};
  model.graphs = {g};
  return model;
}

std::vector<std::string> ops(Nodes nodes, std::int64_t batch = 3, Mode mode = Mode::training) {
  TrainingSetup setup;
  setup.batch = batch;
  setup.mode = mode;
  const auto tape = tape_of(model_of(std::move(nodes)), setup);
  REQUIRE_MESSAGE(tape.ok(), (tape.ok() ? "" : tape.error().what));
  std::vector<std::string> out;
  for (const Call& call : tape->calls) out.push_back(call.op);
  return out;
}

std::string error(Nodes nodes) {
  TrainingSetup setup;
  setup.batch = 3;
  const auto tape = tape_of(model_of(std::move(nodes)), setup);
  REQUIRE_FALSE(tape.ok());
  CHECK(tape.error().kind == ErrorKind::input);
  return tape.error().what;
}

using Ops = std::vector<std::string>;

}  // namespace

TEST_CASE("conditions on sizes are decided") {
  // if x.size(0) > 2: relu(x) else: tanh(x)
  json choice = op_node("prim::If", {4}, {10});
  choice["blocks"] = Nodes{block(json::array(), {op_node("aten::relu", {0}, {5})}, {5}),
                           block(json::array(), {op_node("aten::tanh", {0}, {6})}, {6})};
  const Nodes nodes = {constant(2, 0), op_node("aten::size.int", {0, 2}, {3}), constant(7, 2),
                       op_node("aten::gt.int", {3, 7}, {4}), choice};
  CHECK(ops(nodes, 3) == Ops{"aten::relu"});
  CHECK(ops(nodes, 2) == Ops{"aten::tanh"});
}

TEST_CASE("loops are written out and lists carried through") {
  // parts = []; for i in range(x.size(0)): parts.append(relu(x)); cat(parts)
  json loop = op_node("prim::Loop", {3, 4}, json::array());
  loop["blocks"] = Nodes{block({5}, {op_node("aten::relu", {0}, {6}), op_node("aten::append.t", {8, 6}, {9})}, {4})};
  const Nodes nodes = {constant(2, 0),
                       op_node("aten::size.int", {0, 2}, {3}),
                       constant(4, true),
                       op_node("prim::ListConstruct", json::array(), {8}),
                       loop,
                       op_node("aten::cat", {8, 2}, {10})};
  CHECK(ops(nodes, 2) == Ops{"aten::relu", "aten::relu", "aten::cat"});
  CHECK(ops(nodes, 4).size() == 5);
}

TEST_CASE("a branch that raises is not taken where the condition is unknown") {
  json check = op_node("prim::If", {4}, json::array());
  check["blocks"] = Nodes{block(json::array(), {op_node("prim::RaiseException", {5, 5}, json::array())}, json::array()),
                          block(json::array(), {}, json::array())};
  const Nodes nodes = {constant(5, "no"), op_node("aten::sum", {0}, {3}), op_node("aten::Bool.Tensor", {3}, {4}), check,
                       op_node("aten::relu", {0}, {10})};
  CHECK(ops(nodes) == Ops{"aten::sum", "aten::relu"});
  CHECK(error({constant(5, "too small"), op_node("prim::RaiseException", {5, 5}, json::array())}).find("too small") !=
        std::string::npos);
}

TEST_CASE("Module.training follows the setup") {
  json choice = op_node("prim::If", {2}, {10});
  choice["blocks"] = Nodes{block(json::array(), {op_node("aten::relu", {0}, {5})}, {5}),
                           block(json::array(), {op_node("aten::tanh", {0}, {6})}, {6})};
  const Nodes nodes = {constant(2, {{"training", true}}), choice};
  CHECK(ops(nodes) == Ops{"aten::relu"});
  CHECK(ops(nodes, 3, Mode::inference) == Ops{"aten::tanh"});
  Nodes saved = nodes;
  saved[0] = constant(2, {{"training", false}});
  CHECK(ops(saved) == Ops{"aten::tanh"});
}

TEST_CASE("what is not followed is named") {
  CHECK(error({op_node("prim::fork", {0}, {10})}).find("prim::fork") != std::string::npos);
  CHECK(error({op_node("aten::Int.Tensor", {0}, {2}), op_node("prim::ListConstruct", {2}, {3}),
               op_node("aten::zeros", {3}, {10})})
            .find("only data decide") != std::string::npos);
  json endless = op_node("prim::Loop", {3, 4}, json::array());
  endless["blocks"] = Nodes{block({5}, {op_node("aten::dim", {0}, {6})}, {4})};
  CHECK(error({constant(3, std::int64_t{1} << 62), constant(4, true), endless, op_node("aten::relu", {0}, {10})})
            .find("more steps") != std::string::npos);
}

TEST_CASE("replies of another form are defects, not crashes") {
  for (const json& wrong : {json::object(), json{{"torch", 1}}, json::array()})
    CHECK_THROWS_AS(parse_script(wrong), Failure);
  json deep = constant(1, 1);
  for (int i = 0; i < 400;
       ++i) {  // twice the limit; copies of JSON recurse, and take kilobytes of stack a level under sanitizers
    json outer = op_node("prim::If", {1}, json::array());
    outer["blocks"] = Nodes{block(json::array(), {deep}, json::array())};
    deep = std::move(outer);
  }
  CHECK_THROWS_AS(parse_script(reply({deep})), Failure);
}

TEST_CASE("Python's numbers") {
  const auto number = [](std::string_view op, std::vector<V> args) {
    return python_op(op, args)->integer().value_or(-999);
  };
  CHECK(number("aten::floordiv", {std::int64_t{-7}, std::int64_t{2}}) == -4);
  CHECK(number("aten::remainder", {std::int64_t{-7}, std::int64_t{3}}) == 2);
  CHECK(number("aten::__range_length", {std::int64_t{1}, std::int64_t{10}, std::int64_t{4}}) == 3);
  CHECK(number("aten::__range_length", {std::int64_t{10}, std::int64_t{1}, std::int64_t{-4}}) == 3);
  CHECK(number("aten::__derive_index", {std::int64_t{2}, std::int64_t{10}, std::int64_t{-4}}) == 2);
  CHECK(number("aten::sub", {std::int64_t{7}, std::int64_t{2}, std::int64_t{3}}) == 1);
  CHECK_THROWS_AS(python_op("aten::mul", {std::int64_t{1} << 62, std::int64_t{4}}), Failure);
  CHECK_THROWS_AS(python_op("aten::floordiv", {std::int64_t{1}, std::int64_t{0}}), Failure);
  CHECK_THROWS_AS(python_op("aten::__getitem__", {make_list({V(1.0)}), std::int64_t{1}}), Failure);
}

TEST_CASE("archives that LibTorch should not see") {
  const Members plain{{"m/data.pkl", "x"}, {"m/constants.pkl", "x"}, {"m/code/__torch__.py", "x"}};
  const auto refused = [](const Members& members) {
    const ScratchArchive file(members);
    try {
      check_archive(torch_export::Archive(file.path()), file.path());
      return std::string();
    } catch (const Failure& f) {
      CHECK(f.error().kind == ErrorKind::input);
      return f.error().what;
    }
  };
  CHECK(refused(plain) == "");
  Members packed = plain;
  packed["m/data/0"] = std::string(100'000, 'w');  // libzip compresses what shrinks
  CHECK(refused(packed).find("compressed") != std::string::npos);
  Members bomb = plain;
  bomb["m/code/bomb.py"] = std::string((256u << 20) + 1, ' ');
  CHECK(refused(bomb).find("longer than") != std::string::npos);
}
