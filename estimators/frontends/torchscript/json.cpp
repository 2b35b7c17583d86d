// parse_script: JSON of memplan_torch/read_torchscript.cpp.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "estimators/base/error.h"
#include "estimators/base/whole_number.h"
#include "estimators/frontends/torchscript/reader.h"

namespace memplan::torchscript {

namespace {

using nlohmann::json;

constexpr int max_depth = 200;

DType dtype_of(const std::string& name) {
  // c10/core/ScalarType.h
  static const std::map<std::string, DType> known{{"Byte", DType::uint8},
                                                  {"Char", DType::int8},
                                                  {"Short", DType::int16},
                                                  {"Int", DType::int32},
                                                  {"Long", DType::int64},
                                                  {"Half", DType::float16},
                                                  {"Float", DType::float32},
                                                  {"Double", DType::float64},
                                                  {"ComplexFloat", DType::complex64},
                                                  {"ComplexDouble", DType::complex128},
                                                  {"Bool", DType::boolean},
                                                  {"BFloat16", DType::bfloat16},
                                                  {"Float8_e5m2", DType::float8_e5m2},
                                                  {"Float8_e4m3fn", DType::float8_e4m3fn},
                                                  {"QInt8", DType::int8},
                                                  {"QUInt8", DType::uint8},
                                                  {"QInt32", DType::int32},
                                                  {"UInt16", DType::uint16},
                                                  {"UInt32", DType::uint32},
                                                  {"UInt64", DType::uint64}};
  const auto it = known.find(name);
  if (it == known.end())
    fail_input(fmt::format("a tensor of the file has an element type that memplan does not know: {}", name));
  return it->second;
}

constexpr const char* program = "the program";

class Parser {
 public:
  explicit Parser(Script& script) : script_(script) {}

  Literal literal(const json& j, int depth = 0) {
    if (depth > max_depth) fail_input("a constant of the program is nested too deeply");
    if (j.is_null()) return {};
    if (j.is_boolean()) return {j.get<bool>()};
    if (j.is_number_integer()) return {whole_number_of(j, program)};
    if (j.is_number()) return {j.get<double>()};
    if (j.is_string()) return {j.get<std::string>()};
    if (!j.is_object() || j.size() != 1) fail_input("a constant of the program is of no form that memplan knows");
    const std::string key = j.begin().key();
    const json& v = j.begin().value();
    if (key == "f") return {v == "nan" ? std::nan("") : v == "inf" ? INFINITY : -INFINITY};
    if (key == "t") return {Literal::TensorNo{index_of(v, program)}};
    if (key == "training") return {Literal::Training{v.get<bool>()}};
    if (key == "device") return {Literal::Device{v.get<std::string>()}};
    if (key == "o") return {Literal::Object{v.get<std::string>()}};
    if (key == "d") {
      Literal::Dictionary out;
      for (const json& item : v) {
        out.keys.push_back(literal(item.at(0), depth + 1));
        out.values.push_back(literal(item.at(1), depth + 1));
      }
      return {std::move(out)};
    }
    Literal::List out;
    out.tuple = key == "u";
    for (const json& item : v) out.items.push_back(literal(item, depth + 1));
    return {std::move(out)};
  }

  void block(const json& nodes, Block& out, int depth = 0) {
    if (depth > max_depth) fail_input("blocks of the program are nested too deeply");
    out.nodes.resize(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) node(nodes[i], out.nodes[i], depth);
  }

  ValueNo number(const json& j) {
    const ValueNo n = index_of(j, program);
    if (n < 0 || n > 100'000'000) fail_input("a value of the program has an impossible number");
    script_.values = std::max(script_.values, n + 1);
    return n;
  }

  std::vector<ValueNo> numbers(const json& j) {
    std::vector<ValueNo> out;
    for (const json& n : j) out.push_back(number(n));
    return out;
  }

 private:
  void node(const json& j, Node& out, int depth) {
    out.op = j.at("op").get<std::string>();
    out.outputs = numbers(j.at("out"));
    if (const auto v = j.find("value"); v != j.end()) out.constant = literal(*v);
    if (const auto in = j.find("in"); in != j.end()) out.inputs = numbers(*in);
    if (const auto name = j.find("name"); name != j.end()) out.name = name->get<std::string>();
    if (const auto types = j.find("types"); types != j.end()) out.types = types->get<std::vector<std::string>>();
    if (const auto at = j.find("at"); at != j.end()) out.stack = index_of(*at, program);
    if (out.stack >= static_cast<std::int32_t>(script_.stacks.size()))
      fail_input("a node of the program names a stack that is not there");
    if (const auto blocks = j.find("blocks"); blocks != j.end()) {
      out.blocks.resize(blocks->size());
      for (std::size_t i = 0; i < blocks->size(); ++i) {
        const json& b = (*blocks)[i];
        out.blocks[i].inputs = numbers(b.at("in"));
        block(b.at("nodes"), out.blocks[i], depth + 1);
        out.blocks[i].outputs = numbers(b.at("out"));
      }
    }
  }

  Script& script_;
};

}  // namespace

Script parse_script(const json& reply) {
  try {
    Script s;
    Parser parser(s);
    s.torch_version = reply.at("torch").get<std::string>();
    s.bytes_read = whole_number_of(reply.at("bytes_read"), program);
    for (const json& j : reply.at("stacks"))
      s.stacks.push_back({j.at("paths").get<std::vector<std::string>>(),
                          j.at("classes").get<std::vector<std::string>>(),
                          j.at("lines").get<std::vector<std::string>>()});
    for (const json& j : reply.at("tensors")) {
      ScriptTensor t;
      t.name = j.at("name").get<std::string>();
      const auto kind = j.at("kind").get<std::string>();
      t.kind = kind == "parameter" ? TensorKind::parameter
               : kind == "buffer"  ? TensorKind::buffer
                                   : TensorKind::constant;
      t.dtype = dtype_of(j.at("dtype").get<std::string>());
      for (const json& n : j.at("sizes")) t.sizes.push_back(whole_number_of(n, program));
      t.requires_grad = j.at("grad").get<bool>();
      if (!j.at("number").is_null()) t.number = parser.literal(j["number"]);
      if (const auto also = j.find("also"); also != j.end()) t.also = also->get<std::vector<std::string>>();
      s.tensors.push_back(std::move(t));
    }
    for (const auto& [op, arguments] : reply.at("schemas").items())
      for (const json& a : arguments) {
        SchemaArgument argument{a.at(0).get<std::string>(), a.at(1).get<std::string>(), a.at(2).get<bool>(),
                                std::nullopt};
        if (a.size() > 3) argument.standard = parser.literal(a[3]);
        s.schemas[op].push_back(std::move(argument));
      }
    for (const json& j : reply.at("inputs")) {
      ScriptInput in;
      in.id = parser.number(j.at("id"));
      in.name = j.at("name").get<std::string>();
      in.type = j.at("type").get<std::string>();
      if (const auto d = j.find("default"); d != j.end()) in.standard = parser.literal(*d);
      s.inputs.push_back(std::move(in));
    }
    parser.block(reply.at("nodes"), s.body);
    s.body.outputs = parser.numbers(reply.at("outputs"));
    return s;
  } catch (const json::exception& e) {
    fail(ErrorKind::usage, fmt::format("memplan-torch sent a program of another form: {}", e.what()), {},
         "memplan and memplan-torch must be of the same version");
  }
}

}  // namespace memplan::torchscript
