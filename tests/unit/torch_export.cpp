// .pt2 archives made here member by member.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "estimators/frontends/torch_export/expression.h"
#include "estimators/frontends/torch_export/own_checkpoints.h"
#include "estimators/pipeline.h"
#include "estimators/restore/passes.h"
#include "tests/unit/scratch_archive.h"

using namespace memplan;
using nlohmann::json;

namespace {

json number(int n) { return {{"as_int", n}}; }
json symbol(const char* name) {
  return {
      {"as_expr", {{"expr_str", fmt::format("Symbol('{}', positive=True, integer=True)", name)}, {"hint", nullptr}}}};
}
json tensor(const char* name) { return {{"as_tensor", {{"name", name}}}}; }

json meta(json sizes, bool requires_grad = false, int dtype = 7) {
  return {{"dtype", dtype},
          {"sizes", std::move(sizes)},
          {"requires_grad", requires_grad},
          {"device", {{"type", "cpu"}, {"index", nullptr}}},
          {"strides", json::array()},
          {"storage_offset", number(0)},
          {"layout", 7}};
}

/// Lists of one element: what braces around one JSON value are differs between compilers.
json node(const char* target, const std::vector<json>& inputs, const std::vector<json>& outputs,
          const char* path = "") {
  json named = json::array();
  for (const json& in : inputs) named.push_back({{"name", "input"}, {"arg", in}, {"kind", 1}});
  return {{"target", target},
          {"inputs", named},
          {"outputs", outputs},
          {"metadata",
           {{"nn_module_stack",
             *path ? fmt::format("L__self__,,m.Net;L__self___{0},{0},torch.nn.modules.linear.Linear", path)
                   : "L__self__,,m.Net"},
            {"stack_trace",
             *path ? "File \"/x/u/net.py\", line 3, in forward\n    y = self.a(x)\n  File "
                     "\"site-packages/torch/nn/modules/linear.py\", line 9, in forward\n    return F.linear(input)"
                   : "File \"/x/u/net.py\", line 4, in forward\n    return y.relu_()"}}}};
}

json graph(const std::vector<json>& inputs, const std::vector<json>& outputs, const std::vector<json>& nodes,
           json values) {
  return {{"inputs", inputs},
          {"outputs", outputs},
          {"nodes", nodes},
          {"tensor_values", std::move(values)},
          {"sym_int_values", json::object()},
          {"sym_bool_values", json::object()},
          {"is_single_tensor_return", false}};
}

/// y = linear(x [s0, 4], w [3, 4]); returns relu_(y).
json program() {
  const json sizes = {symbol("s0"), number(3)};
  json g = graph({tensor("p_w"), tensor("x")}, {tensor("relu_")},
                 {node("torch.ops.aten.linear.default", {tensor("x"), tensor("p_w")}, {tensor("linear")}, "a"),
                  node("torch.ops.aten.relu_.default", {tensor("linear")}, {tensor("relu_")})},
                 {{"p_w", meta({number(3), number(4)}, true)},
                  {"x", meta({symbol("s0"), number(4)})},
                  {"linear", meta(sizes)},
                  {"relu_", meta(sizes)}});
  json signature = {{"input_specs",
                     {{{"parameter", {{"arg", {{"name", "p_w"}}}, {"parameter_name", "a.weight"}}}},
                      {{"user_input", {{"arg", tensor("x")}}}}}},
                    {"output_specs", {{{"user_output", {{"arg", tensor("relu_")}}}}}}};
  return {{"graph_module", {{"graph", g}, {"signature", signature}, {"module_call_graph", json::array()}}},
          {"opset_version", {{"aten", 10}}},
          {"range_constraints", {{"s0", {{"min_val", 2}, {"max_val", 64}}}}},
          {"schema_version", {{"major", 8}, {"minor", 17}}},
          {"verifiers", {"TRAINING"}},
          {"torch_version", "2.11.0"}};
}

Members archive(const json& p) {
  return {{"net/archive_format", "pt2"}, {"net/archive_version", "0"}, {"net/models/model.json", p.dump()}};
}

Tape tape_of(const Members& members, const TrainingSetup& setup = {}) {
  const ScratchArchive file(members);
  const auto model = load_model(file.path());
  REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().what));
  const auto tape = tape_of(*model, setup);
  REQUIRE_MESSAGE(tape.ok(), (tape.ok() ? "" : tape.error().what));
  return *tape;
}

Error error_of(const Members& members, const TrainingSetup& setup = {}) {
  const ScratchArchive file(members);
  const auto model = load_model(file.path());
  if (!model.ok()) return model.error();
  const auto tape = tape_of(*model, setup);
  REQUIRE_FALSE(tape.ok());
  return tape.error();
}

bool says(const Error& e, std::string_view text) { return e.what.find(text) != std::string::npos; }

TrainingSetup batch(std::int64_t n) {
  TrainingSetup s;
  s.batch = n;
  return s;
}

}  // namespace

TEST_CASE("a .pt2 archive becomes ATen calls with modules, lines and open dimensions") {
  const Tape t = tape_of(archive(program()), batch(5));
  REQUIRE(t.calls.size() == 2);
  CHECK(t.calls[0].op == "aten::linear");
  CHECK(t.calls[0].source == "torch/nn/modules/linear.py:9 return F.linear(input)");
  const Scope& scope = t.scopes.at(static_cast<std::size_t>(t.calls[0].scope));
  CHECK(scope.path == "a");
  CHECK(scope.module_class == "torch.nn.modules.linear.Linear");
  CHECK(scope.source == "u/net.py:3 y = self.a(x)");
  CHECK(t.calls[1].op == "aten::relu_");
  REQUIRE(t.inputs.size() == 1);
  CHECK(t.values.at(static_cast<std::size_t>(t.inputs[0].index)).sizes == std::vector<std::int64_t>{5, 4});
  REQUIRE(t.parameters.size() == 1);
  CHECK(t.values.at(static_cast<std::size_t>(t.parameters[0].index)).name == "a.weight");
}

TEST_CASE("the layout before torch 2.8, whose inputs do not say whether they are positional") {
  json p = program();
  p["schema_version"]["minor"] = 2;
  for (json& n : p["graph_module"]["graph"]["nodes"])
    for (json& in : n["inputs"]) in.erase("kind");
  p["graph_module"]["graph"]["nodes"][0]["inputs"][1]["name"] = "weight";
  const Tape t = tape_of(
      {{"version", "8.2"}, {"serialized_exported_program.json", p.dump()}, {"serialized_state_dict.pt", "never read"}},
      batch(2));
  REQUIRE(t.calls.size() == 2);
  CHECK(t.calls[0].args.size() == 2);
}

TEST_CASE("symbols are bound by name and checked against their range") {
  TrainingSetup s;
  s.dims["s0"] = 64;
  CHECK(tape_of(archive(program()), s).calls.size() == 2);
  s.dims["s0"] = 65;
  const Error e = error_of(archive(program()), s);
  CHECK(e.kind == ErrorKind::usage);
  CHECK(says(e, "the file allows 1 to 64"));
}

TEST_CASE("unknown minor versions are read, unknown major ones refused") {
  json p = program();
  p["schema_version"]["minor"] = 99;
  p["something_new"] = {1, 2, 3};
  CHECK(tape_of(archive(p), batch(2)).calls.size() == 2);
  p["schema_version"]["major"] = 9;
  CHECK(says(error_of(archive(p)), "9.99"));
  p["schema_version"]["major"] = 7;
  CHECK(says(error_of(archive(p)), "7.99"));
}

TEST_CASE("parameters stored as one tensor are tied") {
  json p = program();
  json& module = p["graph_module"];
  module["signature"]["input_specs"].push_back(
      {{"parameter", {{"arg", {{"name", "p_v"}}}, {"parameter_name", "b.weight"}}}});
  module["graph"]["tensor_values"]["p_v"] = meta({number(3), number(4)}, true);
  Members members = archive(p);
  CHECK(tape_of(members, batch(2)).parameters.size() == 2);
  const json one = {{"path_name", "weight_0"}};
  members["net/data/weights/model_weights_config.json"] =
      json{{"config", {{"a.weight", one}, {"b.weight", one}}}}.dump();
  CHECK(tape_of(members, batch(2)).parameters.size() == 1);
  members["net/data/weights/weight_0"] = "48 bytes of one weight, which both names stand for";
  CHECK(tape_of(members, batch(2)).parameters.size() == 1);
  // torch.export.save writes the weights of a program without memory (FakeTensorMode) as one empty member.
  members["net/data/weights/weight_0"] = "";
  CHECK(tape_of(members, batch(2)).parameters.size() == 2);
  // memplan.export says which names are one parameter.
  members["net/extra/memplan.json"] = R"({"tied": [["a.weight", "b.weight"]]})";
  CHECK(tape_of(members, batch(2)).parameters.size() == 1);
  members["net/extra/memplan.json"] = R"({"tied": []})";
  CHECK(tape_of(members, batch(2)).parameters.size() == 2);
  for (const char* damaged :
       {R"({"tied": 3})", R"({"tied": [3, [], [4, "b.weight"]]})", "[", R"({"tied": [["b.weight"]]})"}) {
    members["net/extra/memplan.json"] = damaged;
    CHECK(tape_of(members, batch(2)).parameters.size() == 2);
  }
}

// torch/nn/modules/module.py: _apply gives each module a copy of a buffer, and a module that two others have is one.
TEST_CASE("buffers of a module that stands in two places are one, and those of modules with weights of their own two") {
  for (const bool own : {false, true}) {
    json p = program();
    json& module = p["graph_module"];
    const auto add = [&](const char* kind, const char* key, const char* name, const char* target) {
      module["signature"]["input_specs"].push_back(
          {{kind, {{"arg", {{"name", name}}}, {key, target}, {"persistent", false}}}});
      module["graph"]["tensor_values"][name] = meta(json::array({number(5), number(3)}));
    };
    add("buffer", "buffer_name", "b_0", "first.rope.table");
    add("buffer", "buffer_name", "b_1", "second.rope.table");
    if (own) add("parameter", "parameter_name", "p_1", "second.rope.scale");
    Members members = archive(p);
    const json one = {{"path_name", "tensor_0"}}, other = {{"path_name", "weight_9"}};
    members["net/data/constants/model_constants_config.json"] =
        json{{"config", {{"first.rope.table", one}, {"second.rope.table", one}}}}.dump();
    members["net/data/weights/model_weights_config.json"] = json{{"config", {{"second.rope.scale", other}}}}.dump();
    CHECK(tape_of(members, batch(2)).buffers.size() == (own ? 2 : 1));
  }
}

TEST_CASE("weights of several shapes in one member are not tied") {
  json p = program();
  json& module = p["graph_module"];
  module["signature"]["input_specs"].push_back(
      {{"parameter", {{"arg", {{"name", "p_v"}}}, {"parameter_name", "b.weight"}}}});
  module["graph"]["tensor_values"]["p_v"] = meta(json::array({number(7)}), true);
  Members members = archive(p);
  const json one = {{"path_name", "weight_0"}};
  members["net/data/weights/model_weights_config.json"] =
      json{{"config", {{"a.weight", one}, {"b.weight", one}}}}.dump();
  members["net/data/weights/weight_0"] = "what torch.export.save writes for weights on the meta device";
  CHECK(tape_of(members, batch(2)).parameters.size() == 2);
}

namespace {

/// Nodes whose lines are those of a caller: the exporter notes frames of forward() alone.
json called(json n, const char* function) {
  n["metadata"]["torch_fn"] = fmt::format("{}_1;method_descriptor.{}", function, function);
  n["metadata"]["stack_trace"] = "File \"/x/u/net.py\", line 5, in forward\n    y = normalized(x)";
  return n;
}

std::int32_t argument(const Call& call, std::size_t i) { return std::get<ValueId>(call.args.at(i).value).index; }

}  // namespace

TEST_CASE("a conversion in a helper is kept, since the file names its method") {
  json p = program();
  json& g = p["graph_module"]["graph"];
  const json sizes = {symbol("s0"), number(3)};
  const json fp32 = {{"as_scalar_type", 7}};
  // y = linear(x).float(); z = sin(y).to(dtype); return z + linear(x), which the exporter takes for y.
  g["nodes"][1] = called(node("torch.ops.aten.to.dtype", {tensor("linear"), fp32}, {tensor("to")}), "float");
  g["nodes"].push_back(called(node("torch.ops.aten.sin.default", {tensor("to")}, {tensor("sin")}), "sin"));
  g["nodes"].push_back(called(node("torch.ops.aten.to.dtype", {tensor("sin"), fp32}, {tensor("to_1")}), "to"));
  for (const char* name : {"to", "sin", "to_1"}) g["tensor_values"][name] = meta(sizes);
  g["outputs"] = json::array({tensor("to")});
  p["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = tensor("to");
  const Tape t = tape_of(archive(p), batch(2));
  REQUIRE(t.calls.size() == 4);
  CHECK(t.calls[1].op == "aten::to.dtype");
  CHECK(std::get<DType>(t.calls[1].args.at(1).value) == DType::float32);
  // Back to what linear(x) was, whatever that is.
  CHECK(t.calls[3].op == "aten::type_as");
  CHECK(argument(t.calls[3], 0) == t.calls[2].outputs.at(0).index);
  CHECK(argument(t.calls[3], 1) == t.calls[0].outputs.at(0).index);
  // `return y` of another function than the one that converted it: the tensor itself.
  CHECK(t.outputs.at(0) == t.calls[0].outputs.at(0));
}

// x = linear(x).to(w.dtype) and back, sin(x).to(dtype), are two casts of one helper; the cast of another line is its
// own.
TEST_CASE("a helper casts back what it has cast, whatever other lines did") {
  json p = program();
  json& g = p["graph_module"]["graph"];
  const json fp32 = {{"as_scalar_type", 7}};
  g["nodes"][1] = called(node("torch.ops.aten.to.dtype", {tensor("linear"), fp32}, {tensor("to")}), "to");
  g["nodes"].push_back(called(node("torch.ops.aten.sin.default", {tensor("to")}, {tensor("sin")}), "sin"));
  g["nodes"].push_back(called(node("torch.ops.aten.to.dtype", {tensor("sin"), fp32}, {tensor("to_1")}), "to"));
  json other = called(node("torch.ops.aten.to.dtype", {tensor("to_1"), fp32}, {tensor("to_2")}), "to");
  other["metadata"]["stack_trace"] = "File \"/x/u/net.py\", line 6, in forward\n    y = widened(y)";
  g["nodes"].push_back(other);
  for (const char* name : {"to", "sin", "to_1", "to_2"}) g["tensor_values"][name] = meta({symbol("s0"), number(3)});
  g["outputs"] = json::array({tensor("to_2")});
  p["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = tensor("to_2");
  const Tape t = tape_of(archive(p), batch(2));
  REQUIRE(t.calls.size() == 5);
  CHECK(t.calls[1].op == "aten::to.dtype");
  CHECK(t.calls[3].op == "aten::type_as");
  CHECK(argument(t.calls[3], 1) == t.calls[0].outputs.at(0).index);
  CHECK(t.calls[4].op == "aten::to.dtype");
}

TEST_CASE("a parameter that a helper converts takes the type of what it is added to") {
  json p = program();
  json& g = p["graph_module"]["graph"];
  const json sizes = {symbol("s0"), number(3)};
  const json fp32 = {{"as_scalar_type", 7}};
  p["graph_module"]["signature"]["input_specs"].push_back(
      {{"parameter", {{"arg", {{"name", "p_b"}}}, {"parameter_name", "a.bias"}}}});
  g["tensor_values"]["p_b"] = meta(json::array({number(3)}), true);
  // linear(x) + self.bias.to(x.dtype)
  g["nodes"][1] = called(node("torch.ops.aten.to.dtype", {tensor("p_b"), fp32}, {tensor("to")}), "to");
  g["nodes"].push_back(node("torch.ops.aten.add.Tensor", {tensor("linear"), tensor("to")}, {tensor("add")}));
  g["tensor_values"]["to"] = meta(json::array({number(3)}));
  g["tensor_values"]["add"] = meta(sizes);
  g["outputs"] = json::array({tensor("add")});
  p["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = tensor("add");
  const Tape t = tape_of(archive(p), batch(2));
  REQUIRE(t.calls.size() == 3);
  CHECK(t.calls[1].op == "aten::type_as");
  CHECK(argument(t.calls[1], 1) == t.calls[0].outputs.at(0).index);
}

// transformers 5.23.0, models/deepseek_v4/modeling_deepseek_v4.py:72. In fp32 x.float() is x, so the file has the
// cast's result in both places.
TEST_CASE("a line that widens a tensor for one of its calls reads the tensor itself elsewhere") {
  json p = program();
  json& g = p["graph_module"]["graph"];
  const json fp32 = {{"as_scalar_type", 7}};
  const auto in_line = [](json n, const char* function) {
    n = called(std::move(n), function);
    n["metadata"]["stack_trace"] =
        "File \"/x/u/net.py\", line 5, in forward\n    return x * torch.rsqrt(x.float().square()).to(x.dtype)";
    return n;
  };
  g["nodes"][1] = in_line(node("torch.ops.aten.to.dtype", {tensor("linear"), fp32}, {tensor("to")}), "float");
  g["nodes"].push_back(in_line(node("torch.ops.aten.square.default", {tensor("to")}, {tensor("square")}), "square"));
  g["nodes"].push_back(
      in_line(node("torch.ops.aten.mul.Tensor", {tensor("to"), tensor("square")}, {tensor("mul")}), "mul"));
  for (const char* name : {"to", "square", "mul"}) g["tensor_values"][name] = meta({symbol("s0"), number(3)});
  g["outputs"] = json::array({tensor("mul")});
  p["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = tensor("mul");
  const Tape t = tape_of(archive(p), batch(2));
  REQUIRE(t.calls.size() == 4);
  CHECK(argument(t.calls[2], 0) == t.calls[1].outputs.at(0).index);
  CHECK(argument(t.calls[3], 0) == t.calls[0].outputs.at(0).index);
}

// A focal loss: targets = F.one_hot(labels, n).to(scores.dtype), where scores are half under autocast.
TEST_CASE("numbers that are converted to the type that a tensor has follow it") {
  const auto converted = [](const char* line) {
    json p = program();
    json& g = p["graph_module"]["graph"];
    const json sizes = {symbol("s0"), number(3)};
    g["tensor_values"]["argmax"] = meta(sizes);
    g["tensor_values"]["argmax"]["dtype"] = 5;
    g["tensor_values"]["to"] = meta(sizes);
    g["nodes"][1] = called(node("torch.ops.aten.argsort.default", {tensor("linear")}, {tensor("argmax")}), "argsort");
    json to =
        called(node("torch.ops.aten.to.dtype", {tensor("argmax"), {{"as_scalar_type", 7}}}, {tensor("to")}), "to");
    to["metadata"]["stack_trace"] = std::string("File \"/x/u/net.py\", line 6, in forward\n    ") + line;
    g["nodes"].push_back(to);
    g["outputs"] = json::array({tensor("to")});
    p["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = tensor("to");
    return tape_of(archive(p), batch(2)).calls.back().op;
  };
  CHECK(converted("y = i.to(scores.dtype)") == "memplan::to_default_dtype");
  CHECK(converted("y = i.to(torch.float32)") == "aten::to.dtype");
  CHECK(converted("y = i.float()") == "aten::to.dtype");
}

// `hidden_states.to(query.dtype)` after attention, in a function that the file has no lines of; `y.sin().to(dtype)`
// there may be either.
TEST_CASE("a helper converts what attention gives to its query's type, and other tensors to one that nothing tells") {
  json p = program();
  json& g = p["graph_module"]["graph"];
  const json fp32 = {{"as_scalar_type", 7}};
  g["nodes"][1] = called(node("torch.ops.aten.scaled_dot_product_attention.default",
                              {tensor("linear"), tensor("linear"), tensor("linear")}, {tensor("attention")}),
                         "scaled_dot_product_attention");
  g["nodes"].push_back(called(node("torch.ops.aten.to.dtype", {tensor("attention"), fp32}, {tensor("to")}), "to"));
  json other = called(node("torch.ops.aten.sin.default", {tensor("linear")}, {tensor("sin")}), "sin");
  json unseen = called(node("torch.ops.aten.to.dtype", {tensor("sin"), fp32}, {tensor("to_1")}), "to");
  for (json* n : {&other, &unseen}) {
    (*n)["metadata"]["stack_trace"] = "File \"/x/u/net.py\", line 6, in forward\n    y = angles(y)";
    g["nodes"].push_back(*n);
  }
  for (const char* name : {"attention", "to", "sin", "to_1"})
    g["tensor_values"][name] = meta({symbol("s0"), number(3)});
  g["nodes"].push_back(node("torch.ops.aten.add.Tensor", {tensor("to"), tensor("to_1")}, {tensor("add")}));
  g["tensor_values"]["add"] = meta({symbol("s0"), number(3)});
  g["outputs"] = json::array({tensor("add")});
  p["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = tensor("add");
  const Tape t = tape_of(archive(p), batch(2));
  REQUIRE(t.calls.size() == 6);
  CHECK(t.calls[2].op == "aten::type_as");
  CHECK(argument(t.calls[2], 1) == t.calls[0].outputs.at(0).index);
  CHECK(t.calls[4].op == "aten::to.dtype");
  REQUIRE(t.exported.unseen_casts.size() == 1);
  CHECK(t.exported.unseen_casts[0] == t.calls[4].outputs.at(0));
  Tape converts_nothing = t;
  leave_unseen_casts(converts_nothing);
  CHECK(converts_nothing.calls[4].op == "aten::type_as");
  CHECK(argument(converts_nothing.calls[4], 1) == argument(t.calls[4], 0));
}

// diffusers 0.42.1, models/normalization.py: RMSNorm. The exporter takes x in the second line for what the first made.
TEST_CASE("a conversion that its line uses up has no name") {
  for (const bool named : {false, true}) {
    json p = program();
    json& g = p["graph_module"]["graph"];
    const json fp32 = {{"as_scalar_type", 7}};
    const auto at = [](json n, const std::string& line) {
      n["metadata"]["torch_fn"] = "to_1;method_descriptor.to";
      n["metadata"]["stack_trace"] = "File \"/x/u/net.py\", line 5, in forward\n    " + line;
      return n;
    };
    const std::string cast = named ? "x = x.to(torch.float32)" : "variance = x.to(torch.float32).sin()";
    g["nodes"][1] = at(node("torch.ops.aten.to.dtype", {tensor("linear"), fp32}, {tensor("to")}), cast);
    g["nodes"].push_back(
        at(node("torch.ops.aten.sin.default", {tensor("to")}, {tensor("sin")}), named ? "variance = x.sin()" : cast));
    g["nodes"].push_back(
        at(node("torch.ops.aten.mul.Tensor", {tensor("to"), tensor("sin")}, {tensor("mul")}), "x = x * variance"));
    for (const char* name : {"to", "sin", "mul"}) g["tensor_values"][name] = meta({symbol("s0"), number(3)});
    g["outputs"] = json::array({tensor("mul")});
    p["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = tensor("mul");
    const Tape t = tape_of(archive(p), batch(2));
    REQUIRE(t.calls.size() == 4);
    CHECK(argument(t.calls[2], 0) == t.calls[1].outputs.at(0).index);
    CHECK(argument(t.calls[3], 0) == t.calls[named ? 1 : 0].outputs.at(0).index);
  }
}

TEST_CASE("a class token that a helper converts takes the type of what it is joined to") {
  json p = program();
  json& g = p["graph_module"]["graph"];
  const json fp32 = {{"as_scalar_type", 7}};
  p["graph_module"]["signature"]["input_specs"].push_back(
      {{"parameter", {{"arg", {{"name", "p_t"}}}, {"parameter_name", "token"}}}});
  g["tensor_values"]["p_t"] = meta(json::array({number(1), number(3)}), true);
  // torch.cat([self.token.to(x.dtype), x])
  g["nodes"][1] = called(node("torch.ops.aten.to.dtype", {tensor("p_t"), fp32}, {tensor("to")}), "to");
  const json list = {{"as_tensors", json::array({{{"name", "to"}}, {{"name", "linear"}}})}};
  g["nodes"].push_back(node("torch.ops.aten.cat.default", {list}, {tensor("cat")}));
  g["tensor_values"]["to"] = meta(json::array({number(1), number(3)}));
  g["tensor_values"]["cat"] = meta({symbol("s0"), number(3)});
  g["outputs"] = json::array({tensor("cat")});
  p["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = tensor("cat");
  const Tape t = tape_of(archive(p), batch(2));
  REQUIRE(t.calls.size() == 3);
  CHECK(t.calls[1].op == "aten::type_as");
  CHECK(argument(t.calls[1], 1) == t.calls[0].outputs.at(0).index);
}

TEST_CASE("a conversion to a device alone is none") {
  json p = program();
  json& g = p["graph_module"]["graph"];
  g["nodes"][1] = called(node("torch.ops.aten.to.dtype_layout", {tensor("linear")}, {tensor("relu_")}), "to");
  CHECK(tape_of(archive(p), batch(2)).calls.size() == 1);
}

TEST_CASE("a batch norm that is called twice counts no batches in inference") {
  json p = program();
  json& module = p["graph_module"];
  json& g = module["graph"];
  module["signature"]["input_specs"].push_back(
      {{"buffer", {{"arg", {{"name", "b_n"}}}, {"buffer_name", "a.num_batches_tracked"}, {"persistent", true}}}});
  g["tensor_values"]["b_n"] = meta(json::array(), false, 5);
  for (const char* name : {"add_", "add__1"}) g["tensor_values"][name] = meta(json::array(), false, 5);
  g["nodes"].push_back(node("torch.ops.aten.add_.Tensor", {tensor("b_n"), number(1)}, {tensor("add_")}));
  g["nodes"].push_back(node("torch.ops.aten.add_.Tensor", {tensor("add_"), number(1)}, {tensor("add__1")}));
  TrainingSetup inference = batch(2);
  inference.mode = Mode::inference;
  CHECK(tape_of(archive(p), inference).calls.size() == 2);
  CHECK(tape_of(archive(p), batch(2)).calls.size() == 4);
}

TEST_CASE("regions without gradients are inlined on detached values") {
  json p = program();
  json& g = p["graph_module"]["graph"];
  const json sizes = {symbol("s0"), number(3)};
  const json inner =
      graph({tensor("a")}, {tensor("neg")}, {node("torch.ops.aten.neg.default", {tensor("a")}, {tensor("neg")})},
            {{"a", meta(sizes)}, {"neg", meta(sizes)}});
  json wrap =
      node("torch.ops.higher_order.wrap_with_set_grad_enabled",
           {json{{"as_bool", false}}, json{{"as_graph", {{"name", "sub"}, {"graph", inner}}}}, tensor("linear")},
           {tensor("hop")});
  g["nodes"][1] = wrap;
  g["tensor_values"]["hop"] = meta(sizes);
  g["outputs"] = json::array({tensor("hop")});
  p["graph_module"]["signature"]["output_specs"][0]["user_output"]["arg"] = tensor("hop");
  const Tape t = tape_of(archive(p), batch(2));
  REQUIRE(t.calls.size() == 3);
  CHECK(t.calls[1].op == "aten::detach");
  CHECK(t.calls[2].op == "aten::neg");
  CHECK(std::get<ValueId>(t.calls[2].args.at(0).value) == t.calls[1].outputs.at(0));

  SUBCASE("a region that switches gradients on is not") {
    g["nodes"][1]["inputs"][0]["arg"] = {{"as_bool", true}};
    const Tape on = tape_of(archive(p), batch(2));
    REQUIRE(on.calls.size() == 2);
    CHECK(on.calls[1].op == "aten::neg");
  }

  SUBCASE("a loop is named and counted by its outputs") {
    g["nodes"][1]["target"] = "torch.ops.higher_order.scan";
    const Tape loop = tape_of(archive(p), batch(2));
    REQUIRE(loop.calls.size() == 2);
    CHECK(loop.calls[1].unknown);
    CHECK(loop.calls[1].known_shapes.at(0).second == std::vector<std::int64_t>{2, 3});
    CHECK(std::any_of(loop.notes.begin(), loop.notes.end(),
                      [](const Note& n) { return n.text.find("'scan'") != std::string::npos; }));
  }
}

// own code: `for i, layer in enumerate(self.proc): m = checkpoint(layer, m) if i > 1 else layer(m)` in a method
TEST_CASE("checkpoints of a method end with the modules that it calls") {
  torch_export::Subgraph graph;
  const auto add = [&](const std::string& path, bool mark = false, std::string target = "torch.ops.aten.exp.default") {
    torch_export::Node n;
    n.target = mark ? "torch.ops.aten.empty.memory_format" : std::move(target);
    n.in_checkpoint = mark;
    n.lines = {"m.py:9 y = self.step(x)"};
    n.paths = {""};
    n.classes = {"Model"};
    if (!path.empty()) {
      n.paths.push_back(path);
      n.classes.push_back(path.starts_with("proc") ? "Layer" : "Head");
      n.lines.push_back("m.py:3 return x.exp()");
    }
    graph.nodes.push_back(std::move(n));
  };
  const auto marked = [&] {
    std::int32_t applications = 0;
    return torch_export::checkpointed_nodes(graph, applications);
  };
  for (int turn = 0; turn < 2; ++turn) {
    add("proc.0");
    add("", true);
    add("proc.1");
    add("", false, "torch.ops.aten.select.int");  // an argument of the next one
    add("", true);
    add("proc.2");
    add("head");
  }
  CHECK(marked() == std::vector<std::int32_t>{-1, -1, 0, -1, -1, 1, -1, -1, -1, 2, -1, -1, 3, -1});
  graph.nodes.clear();
  add("", true);  // a function that does more than the module it begins with
  add("proc.0");
  add("");
  add("", true);
  add("proc.1");
  add("");
  CHECK(marked() == std::vector<std::int32_t>{-1, 0, 0, -1, 1, 1});
}

TEST_CASE("functional graphs change buffers in place again") {
  json p = program();
  p["verifiers"] = {"ATEN"};
  json& module = p["graph_module"];
  json& g = module["graph"];
  module["signature"]["input_specs"].push_back(
      {{"buffer", {{"arg", {{"name", "b_n"}}}, {"buffer_name", "n"}, {"persistent", true}}}});
  g["tensor_values"]["b_n"] = meta(json::array(), false, 5);
  g["tensor_values"]["add"] = meta(json::array(), false, 5);
  g["nodes"].push_back(node("torch.ops.aten.add.Tensor", {tensor("b_n"), json{{"as_int", 1}}}, {tensor("add")}));
  module["signature"]["output_specs"].push_back(
      {{"buffer_mutation", {{"arg", {{"name", "add"}}}, {"buffer_name", "n"}}}});
  const Tape t = tape_of(archive(p), batch(2));
  REQUIRE_FALSE(t.calls.empty());
  CHECK(std::any_of(t.calls.begin(), t.calls.end(), [](const Call& c) { return c.op == "aten::add_.Tensor"; }));
}

TEST_CASE("sizes in sympy's notation") {
  using torch_export::infix;
  CHECK(infix("Symbol('s77', positive=True, integer=True)") == "s77");
  CHECK(infix("Mul(Integer(2), Symbol('s77', positive=True))") == "(2*s77)");
  CHECK(infix("Add(Symbol('s0'), Integer(-1))") == "(s0+(-1))");
  CHECK(infix("FloorDiv(Symbol('s0', integer=True), Integer(2))") == "floor(s0/2)");
  CHECK(infix("2*s0 + 1") == "2*s0 + 1");
  CHECK(infix("Mystery(Symbol('s0'))").empty());
  CHECK(infix(std::string(1000, '(') + "Symbol('s0')").empty());
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "Add(";
  CHECK(infix(deep + "Symbol('s0')").empty());
}

TEST_CASE("damaged and hostile archives are refused") {
  const std::string good = program().dump();
  CHECK(says(error_of({{"net/archive_format", "pt2"}, {"net/models/model.json", good.substr(0, good.size() / 2)}}),
             "JSON"));
  CHECK(says(error_of({{"net/archive_format", "pt2"}, {"net/models/model.json", "{}"}}), "JSON"));
  CHECK(says(error_of({{"net/archive_format", "pt2"}, {"net/models/model.json", std::string(100'000, '[')}}),
             "nested deeper"));
  CHECK(says(error_of({{"net/archive_format", "pt2"}, {"net/models/model.json", std::string(65 << 20, ' ')}}),
             "bytes long"));
  CHECK(says(
      error_of({{"net/archive_format", "pt2"}, {"net/models/model.json", "[" + std::string(11'000'000, ',') + "]"}}),
      "ten million"));
  CHECK(says(error_of({{"net/archive_format", "pt2"}, {"net/data/aotinductor/model/a.so", "x"}}), "no graph"));
  CHECK(says(error_of({{"net/archive_format", "pt2"}, {"net/models/a.json", good}, {"net/models/b.json", good}}),
             "several models"));
  CHECK(says(error_of({{"net/archive_format", "pt2"}, {"../../etc/x", "x"}, {"net/models/model.json", good}}),
             "outside"));
  CHECK(says(error_of({{"net/archive_format", "pt2"}, {"/etc/x", "x"}, {"net/models/model.json", good}}), "outside"));
  json p = program();
  p["graph_module"]["graph"]["tensor_values"]["x"]["sizes"] = {number(-4), number(4)};
  CHECK(says(error_of(archive(p)), "negative"));
  p = program();
  p["graph_module"]["graph"]["nodes"].erase(0);
  CHECK(says(error_of(archive(p)), "before anything made it"));
  p = program();
  p["graph_module"]["signature"]["output_specs"][0] = {{"loss_output", {{"arg", {{"name", "relu_"}}}}}};
  CHECK(says(error_of(archive(p)), "joint"));
}

TEST_CASE("a truncated archive is refused") {
  const ScratchArchive whole(archive(program()));
  REQUIRE(truncate(whole.path().c_str(), 300) == 0);
  const auto model = load_model(whole.path());
  REQUIRE_FALSE(model.ok());
  CHECK(model.error().kind == ErrorKind::input);
  CHECK(says(model.error(), "zip"));
}

TEST_CASE("files of weights say how many bytes they hold and that a graph is missing") {
  const Error saved = error_of({{"w/data.pkl", "cposix\nsystem\n(S'false'\ntR."},
                                {"w/data/0", std::string(2048, 'x')},
                                {"w/data/1", std::string(1024, 'x')}});
  CHECK(saved.kind == ErrorKind::input);
  CHECK(says(saved, "3.00 KiB of parameters in 2 tensors"));
  CHECK(says(saved, "12.0 KiB"));
  CHECK(says(error_of({{"readme.txt", "hello"}}), "not one that PyTorch wrote"));
  // What unpacks to much is only counted, and nothing leads out of the archive.
  CHECK(says(error_of({{"w/data.pkl", "x"}, {"w/data/0", std::string(300 << 20, '\0')}}),
             "300.0 MiB of parameters in 1 tensors"));
  CHECK(says(error_of({{"w/data.pkl", "x"}, {"w/data/../../../etc/x", "x"}}), "outside"));

  auto plain = [](const std::string& bytes) {
    const ScratchFile file(bytes);
    const auto model = load_model(file.path());
    REQUIRE_FALSE(model.ok());
    return model.error();
  };
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[256,4],"data_offsets":[0,4096]},"b":{"dtype":"BF16","shape":[],"data_offsets":[4096,4098]}})";
  auto length = [](std::uint64_t n) {
    std::string out;
    for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(n >> (8 * i) & 255));
    return out;
  };
  const Error tensors = plain(length(header.size()) + header);
  CHECK(says(tensors, "4.00 KiB of parameters in 2 tensors"));
  CHECK(says(plain(length(3) + "{[}"), "JSON"));
  const auto safetensors = [&](const std::string& text) { return plain(length(text.size()) + text); };
  CHECK(says(safetensors("{\"a\":" + std::string(100'000, '[')), "nested deeper"));
  CHECK(says(safetensors("{\"a\":[" + std::string(11'000'000, ',') + "]}"), "ten million"));
  CHECK(says(safetensors(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,1]}})"),
             "more elements"));
  CHECK(says(safetensors(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,1]}})"), "no number"));
  CHECK(says(safetensors(R"({"a":{"dtype":"os.system","shape":[4],"data_offsets":[0,1]}})"), "element type"));
  CHECK(says(safetensors(R"({"a":7,"b":{}})"), "does not describe"));
  {
    const ScratchFolder folder;  // a file that claims a header of 90 MB and has none
    std::ofstream(folder.path() + "/model.safetensors", std::ios::binary) << length(90'000'000) << "{}";
    const auto model = load_model(folder.path());
    REQUIRE_FALSE(model.ok());
    CHECK(says(model.error(), "shorter than its header"));
  }
  CHECK(says(plain(std::string("\x80\x02}q\x00.", 6)), "pickle"));
  CHECK(says(plain("GGUF\x03 and more"), "GGUF"));
}
