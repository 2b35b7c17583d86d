#include "estimators/tape/tape_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "estimators/base/error.h"
#include "estimators/base/whole_number.h"

namespace memplan {

using nlohmann::json;

namespace {

constexpr const char* kind_names[] = {"user_input", "parameter", "buffer", "constant", "computed"};

json arg_to_json(const Arg& arg) {
  struct Visitor {
    json operator()(Arg::None) const { return nullptr; }
    json operator()(ValueId id) const { return json{{"v", id.index}}; }
    json operator()(std::int64_t n) const { return n; }
    json operator()(double d) const {
      // JSON has no infinities; they appear as fill values of masks.
      if (std::isfinite(d)) return d;
      return json{{"float", std::isnan(d) ? "nan" : d > 0 ? "inf" : "-inf"}};
    }
    json operator()(bool b) const { return b; }
    json operator()(const std::string& s) const { return s; }
    json operator()(DType d) const { return json{{"dtype", name_of(d)}}; }
    json operator()(const Arg::List& list) const {
      json out = json::array();
      for (const Arg& a : list) out.push_back(arg_to_json(a));
      return out;
    }
  };
  return std::visit(Visitor{}, arg.value);
}

constexpr const char* in_tape = "the tape";

std::int32_t index_or(const json& j, const char* key, std::int32_t standard) {
  const auto it = j.find(key);
  return it == j.end() ? standard : index_of(*it, in_tape);
}

std::vector<std::int64_t> sizes_from_json(const json& j) {
  std::vector<std::int64_t> out;
  for (const json& n : j) out.push_back(whole_number_of(n, in_tape));
  return out;
}

DType read_dtype(const json& j) {
  const auto name = j.get<std::string>();
  if (auto d = dtype_from_name(name)) return *d;
  fail_input(fmt::format("unknown dtype '{}' in a tape", name));
}

Arg arg_from_json(const json& j, std::size_t values) {
  if (j.is_null()) return {};
  if (j.is_boolean()) return {j.get<bool>()};
  if (j.is_number_integer()) return {whole_number_of(j, in_tape)};
  if (j.is_number_float()) return {j.get<double>()};
  if (j.is_string()) return {j.get<std::string>()};
  if (j.is_array()) {
    Arg::List list;
    for (const json& item : j) list.push_back(arg_from_json(item, values));
    return {std::move(list)};
  }
  if (j.contains("dtype")) return {read_dtype(j["dtype"])};
  if (j.contains("float")) return {j["float"] == "nan" ? NAN : j["float"] == "inf" ? INFINITY : -INFINITY};
  const auto index = index_of(j.at("v"), in_tape);
  if (index < 0 || static_cast<std::size_t>(index) >= values)
    fail_input(fmt::format("a tape refers to value {} of {}", index, values));
  return {ValueId{index}};
}

json ids_to_json(const std::vector<ValueId>& ids) {
  json out = json::array();
  for (ValueId id : ids) out.push_back(id.index);
  return out;
}

/// `least`: -1 where nobody has to take a value.
std::vector<ValueId> ids_from_json(const json& j, std::size_t values, std::int32_t least = 0) {
  std::vector<ValueId> ids;
  for (const json& item : j) {
    const auto index = index_of(item, in_tape);
    if (index < least || index >= static_cast<std::int64_t>(values))
      fail_input(fmt::format("a tape refers to value {} of {}", index, values));
    ids.push_back({index});
  }
  return ids;
}

json to_json(const TapeValue& v) {
  json j{{"name", v.name}, {"kind", kind_names[static_cast<int>(v.kind)]}};
  if (v.kind != ValueKind::computed) {
    j["dtype"] = name_of(v.dtype);
    j["sizes"] = v.sizes;
  }
  if (v.requires_grad) j["requires_grad"] = true;
  if (v.same_storage_as.valid()) j["same_storage_as"] = v.same_storage_as.index;
  if (v.number) j["number"] = *v.number;
  if (v.on_host) j["on_host"] = true;
  if (v.keeps_dtype) j["keeps_dtype"] = true;
  return j;
}

json to_json(const Call& c) {
  json args = json::array(), kwargs = json::array();
  for (const Arg& a : c.args) args.push_back(arg_to_json(a));
  for (const auto& [name, a] : c.kwargs) kwargs.push_back({name, arg_to_json(a)});
  json j{{"op", c.op}, {"args", args}, {"outputs", ids_to_json(c.outputs)}};
  if (!kwargs.empty()) j["kwargs"] = kwargs;
  if (c.scope >= 0) j["scope"] = c.scope;
  if (!c.source.empty()) j["source"] = c.source;
  if (c.unknown) j["unknown"] = true;
  if (c.no_autocast) j["no_autocast"] = true;
  if (!c.known_shapes.empty()) {
    json shapes = json::array();
    for (const auto& [dtype, sizes] : c.known_shapes) shapes.push_back({name_of(dtype), sizes});
    j["known_shapes"] = shapes;
  }
  if (!c.last_uses.empty()) j["last_uses"] = ids_to_json(c.last_uses);
  return j;
}

json to_json(const Scope& s) {
  json j{{"path", s.path}, {"class", s.module_class}, {"parent", s.parent}, {"call", s.call}};
  if (!s.source.empty()) j["source"] = s.source;
  return j;
}

}  // namespace

json to_json(const Tape& tape) {
  json values = json::array(), calls = json::array(), scopes = json::array();
  for (const TapeValue& v : tape.values) values.push_back(to_json(v));
  for (const Call& c : tape.calls) calls.push_back(to_json(c));
  for (const Scope& s : tape.scopes) scopes.push_back(to_json(s));
  json recovered = json::array(), notes = json::array();
  for (const Recovery& r : tape.recovered)
    recovered.push_back({{"op", r.op},
                         {"from", r.from},
                         {"count", r.count},
                         {"evidence", name_of(r.evidence)},
                         {"about", name_of(r.about)}});
  for (const Fact& n : tape.notes)
    notes.push_back({{"code", n.code},
                     {"text", n.text},
                     {"evidence", name_of(n.evidence)},
                     {"about", name_of(n.about)},
                     {"op", n.op},
                     {"module", n.module},
                     {"count", n.count}});
  json checkpoints = json::array();
  for (const CheckpointRegion& r : tape.checkpoints) checkpoints.push_back({r.first, r.last, r.scope});
  return json{{"values", values},
              {"calls", calls},
              {"scopes", scopes},
              {"inputs", ids_to_json(tape.inputs)},
              {"parameters", ids_to_json(tape.parameters)},
              {"buffers", ids_to_json(tape.buffers)},
              {"outputs", ids_to_json(tape.outputs)},
              {"checkpoints", checkpoints},
              {"recovered", recovered},
              {"notes", notes}};
}

namespace {

template <class Table>
auto read_name(const Table& table, const json& object, const char* member) {
  const auto value = value_in(table, object.at(member).get<std::string>());
  if (!value) fail_input(fmt::format("a note of a tape has an unknown {}", member));
  return *value;
}

TapeValue value_from_json(const json& j, std::size_t count) {
  TapeValue v;
  v.name = j.at("name").get<std::string>();
  const auto kind = j.at("kind").get<std::string>();
  std::size_t k = 0;
  while (k < std::size(kind_names) && kind != kind_names[k]) ++k;
  if (k == std::size(kind_names)) fail_input(fmt::format("unknown kind of value '{}' in a tape", kind));
  v.kind = static_cast<ValueKind>(k);
  if (j.contains("dtype")) v.dtype = read_dtype(j["dtype"]);
  if (j.contains("sizes")) v.sizes = sizes_from_json(j["sizes"]);
  v.requires_grad = j.value("requires_grad", false);
  v.same_storage_as.index = index_or(j, "same_storage_as", -1);
  if (v.same_storage_as.index >= static_cast<std::int64_t>(count))
    fail_input("a tape ties a value to one that it does not have");
  if (j.contains("number")) v.number = whole_number_of(j["number"], in_tape);
  v.on_host = j.value("on_host", false);
  v.keeps_dtype = j.value("keeps_dtype", false);
  return v;
}

Call call_from_json(const json& j, std::size_t values, std::size_t scopes) {
  Call c;
  c.op = j.at("op").get<std::string>();
  for (const json& a : j.at("args")) c.args.push_back(arg_from_json(a, values));
  for (const json& a : j.value("kwargs", json::array()))
    c.kwargs.emplace_back(a.at(0).get<std::string>(), arg_from_json(a.at(1), values));
  c.outputs = ids_from_json(j.at("outputs"), values, -1);
  c.scope = index_or(j, "scope", -1);
  if (c.scope >= static_cast<std::int64_t>(scopes)) fail_input("a call of a tape is in a scope that it does not have");
  c.source = j.value("source", "");
  c.unknown = j.value("unknown", false);
  c.no_autocast = j.value("no_autocast", false);
  for (const json& s : j.value("known_shapes", json::array()))
    c.known_shapes.emplace_back(read_dtype(s.at(0)), sizes_from_json(s.at(1)));
  c.last_uses = ids_from_json(j.value("last_uses", json::array()), values);
  return c;
}

CheckpointRegion checkpoint_from_json(const json& j, std::size_t calls) {
  const CheckpointRegion r{index_of(j.at(0), in_tape), index_of(j.at(1), in_tape), index_of(j.at(2), in_tape), {}};
  if (r.first < 0 || r.last < r.first || r.last >= static_cast<std::int64_t>(calls))
    fail_input("a tape checkpoints calls that it does not have");
  return r;
}

}  // namespace

Tape tape_from_json(const json& root) try {
  Tape tape;
  const std::size_t n = root.at("values").size();
  for (const json& j : root.at("values")) tape.values.push_back(value_from_json(j, n));
  for (const json& j : root.value("scopes", json::array()))
    tape.scopes.push_back({j.at("path").get<std::string>(), j.at("class").get<std::string>(), index_or(j, "parent", -1),
                           index_or(j, "call", 0), j.value("source", "")});
  for (const json& j : root.at("calls")) tape.calls.push_back(call_from_json(j, n, tape.scopes.size()));
  tape.inputs = ids_from_json(root.at("inputs"), n);
  tape.parameters = ids_from_json(root.at("parameters"), n);
  tape.buffers = ids_from_json(root.at("buffers"), n);
  tape.outputs = ids_from_json(root.at("outputs"), n);
  for (const json& j : root.value("checkpoints", json::array()))
    tape.checkpoints.push_back(checkpoint_from_json(j, tape.calls.size()));
  for (const json& j : root.value("recovered", json::array()))
    tape.recovered.push_back({j.at("op").get<std::string>(), j.at("from").get<std::string>(),
                              whole_number_of(j.at("count"), in_tape), read_name(evidence_names, j, "evidence"),
                              read_name(about_names, j, "about")});
  for (const json& j : root.value("notes", json::array()))
    tape.notes.push_back({j.at("code").get<std::string>(),
                          j.at("text").get<std::string>(),
                          read_name(evidence_names, j, "evidence"),
                          read_name(about_names, j, "about"),
                          j.value("op", ""),
                          j.value("module", ""),
                          -1,
                          j.value("count", std::int64_t{1}),
                          {}});
  return tape;
} catch (const json::exception& e) {
  fail_input(fmt::format("a tape's JSON is not as expected: {}", e.what()));
}

}  // namespace memplan
