#include "estimators/frontends/torch_export/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "estimators/base/error.h"
#include "estimators/base/whole_number.h"
#include "estimators/frontends/torch_export/json_text.h"
#include "estimators/frontends/torch_export/nodes.h"
#include "estimators/frontends/torch_export/stored_weights.h"
#include "estimators/frontends/torch_export/tied_constants.h"

namespace memplan::torch_export {

namespace {

using nlohmann::json;

constexpr std::int64_t max_extra_bytes = 1 << 20;

/// The union {"kind": {…}} with one key.
std::pair<std::string, const json*> union_of(const json& j) {
  if (!j.is_object() || j.size() != 1) return {};
  return {j.begin().key(), &j.begin().value()};
}

void check_version(const json& root, Program& p, const std::string& where) {
  const json& version = root.at("schema_version");
  p.schema_major = whole_number_of(version.at("major"), "the version of the graph");
  p.schema_minor = version.value("minor", std::int64_t{0});
  p.torch_version = root.value("torch_version", std::string("<=2.4"));
  // torch/_export/serde/schema.py: major version 8 in torch 2.5 to 2.15.
  if (p.schema_major > 8)
    fail_input(
        fmt::format(
            "the file has version {}.{} of the torch.export schema, which this memplan does not know (it knows 8)",
            p.schema_major, p.schema_minor),
        where, "use a newer memplan, or export the model as ONNX: torch.onnx.export(model, args, dynamo=True)");
  if (p.schema_major < 8)
    fail_input(fmt::format("the file has version {}.{} of the torch.export schema, from before torch 2.5",
                           p.schema_major, p.schema_minor),
               where, "export the model again with torch 2.6 or later");
}

void read_inputs(const json& specs, Reader& reader, Program& p) {
  for (const json& spec : specs) {
    const auto [kind, body] = union_of(spec);
    InputSpec out;
    if (!body) fail_input("an input of the signature has an unknown form", reader.where());
    if (kind == "user_input") {
      const Arg value = reader.argument(body->at("arg"), 0);
      if (const auto* id = std::get_if<ValueId>(&value.value)) out.name = id->index;
    } else if (kind == "parameter" || kind == "buffer" || kind == "tensor_constant") {
      out.kind = kind == "parameter" ? InputKind::parameter
                 : kind == "buffer"  ? InputKind::buffer
                                     : InputKind::constant;
      out.name = reader.intern(body->at("arg").at("name").get<std::string>());
      out.target = body->at(kind + "_name").get<std::string>();
    } else {
      out.kind = InputKind::other;  // tokens, custom objects, Python constants
    }
    p.inputs.push_back(std::move(out));
  }
}

void read_outputs(const json& specs, Reader& reader, Program& p) {
  for (const json& spec : specs) {
    const auto [kind, body] = union_of(spec);
    OutputSpec out;
    if (!body) fail_input("an output of the signature has an unknown form", reader.where());
    if (kind == "user_output") {
      out.value = reader.argument(body->at("arg"), 0);
    } else if (kind == "buffer_mutation") {
      out.kind = OutputKind::buffer_mutation;
      out.value.value = ValueId{reader.intern(body->at("arg").at("name").get<std::string>())};
      out.target = body->at("buffer_name").get<std::string>();
    } else {
      out.kind = kind == "loss_output" || kind.rfind("gradient_to", 0) == 0 ? OutputKind::joint
                 : kind == "user_input_mutation"                            ? OutputKind::input_mutation
                                                                            : OutputKind::other;
    }
    p.outputs.push_back(std::move(out));
  }
}

bool has_inplace_ops(const Program& p) {
  for (const Node& n : p.graphs.front().nodes) {
    if (n.target.rfind("torch.ops.aten.", 0) != 0) continue;
    const std::string_view op = std::string_view(n.target).substr(15);
    const std::string_view base = op.substr(0, op.find('.'));
    if (base.size() > 1 && base.back() == '_') return true;
    if (base == "linear" || base == "conv2d" || base == "batch_norm" || base == "layer_norm" || base == "dropout")
      return true;
  }
  return false;
}

Program convert(const json& root, std::string_view stored, const std::string& where) {
  Program p;
  check_version(root, p, where);
  const json& module = root.at("graph_module");
  Reader reader(p, where);
  reader.graph(module.at("graph"), 0);
  const json& signature = module.at("signature");
  read_inputs(signature.at("input_specs"), reader, p);
  read_outputs(signature.at("output_specs"), reader, p);
  if (const auto ranges = root.find("range_constraints"); ranges != root.end() && ranges->is_object())
    for (const auto& [symbol, range] : ranges->items()) {
      const json& limits = range;
      const auto bound = [&limits](const char* key) -> std::optional<std::int64_t> {
        const auto it = limits.find(key);
        return it != limits.end() && it->is_number_integer() ? std::optional(whole_number_of(*it, "a range of sizes"))
                                                             : std::nullopt;
      };
      p.ranges[symbol] = {bound("min_val"), bound("max_val")};
    }
  // The dialect of the verifier that the program passed: "TRAINING" keeps composite and in-place ops.
  bool training = false, told = false;
  if (const auto v = root.find("verifiers"); v != root.end() && v->is_array())
    for (const json& name : *v)
      if (name.is_string()) told = true, training = training || name == "TRAINING";
  if (!told) training = has_inplace_ops(p);
  p.decomposed = !training;
  read_stored_weights(stored, where, p);
  return p;
}

Graph dims_graph(const Program& p) {
  Graph g;
  g.name = "main";
  for (const InputSpec& spec : p.inputs) {
    if (spec.kind != InputKind::user || spec.name < 0) continue;
    const Name& name = p.names[static_cast<std::size_t>(spec.name)];
    if (!name.tensor) continue;
    GraphValue v;
    v.name = name.text;
    v.dtype = name.tensor->dtype;
    v.shape = name.tensor->sizes;
    g.inputs.push_back(static_cast<GraphValueId>(g.values.size()));
    g.values.push_back(std::move(v));
  }
  return g;
}

/// A program that was saved from fake tensors has one empty member that all weights point to, so it tells no ties.
void forget_empty_members(const Archive& archive, const std::string& data, Program& p) {
  for (InputSpec& spec : p.inputs)
    if (!spec.stored.empty())
      if (const auto* m = archive.find(data + spec.stored); m && m->bytes == 0) spec.stored.clear();
}

/// Buffers that no state_dict has, and tensors that the forward pass closed over.
void read_constants(const Archive& archive, const std::string& config, const std::string& path, Program& p) {
  const auto* m = archive.find(config);
  if (!m || m->bytes > max_json_bytes) return;
  std::string text = archive.read(*m, max_json_bytes);
  tame_json(text, 16, path);
  read_stored_constants(text, p);
}

/// What memplan.export wrote beside the program (docs/export.md). Other exporters write none, and what is not as
/// expected is left out.
json extra_of(const Archive& archive, const std::string& root, const std::string& path) {
  const auto* member = archive.find(root + "extra/memplan.json");
  if (!member || member->bytes > max_extra_bytes) return {};
  std::string text = archive.read(*member, max_extra_bytes);
  tame_json(text, 8, path);
  return json::parse(text, nullptr, false);
}

/// Names of one parameter, in place of the members that an archive without weights has not. All others are apart.
void read_ties(const json& extra, Program& p) {
  if (!extra.is_object() || !extra.contains("tied") || !extra["tied"].is_array()) return;
  std::map<std::string, std::string> first;
  for (const json& group : extra["tied"]) {
    if (!group.is_array()) continue;
    for (const json& name : group)
      if (name.is_string() && group[0].is_string()) first.emplace(name.get<std::string>(), group[0].get<std::string>());
  }
  for (InputSpec& spec : p.inputs) {
    if (spec.kind != InputKind::parameter || !spec.stored.empty()) continue;
    const auto found = first.find(spec.target);
    spec.stored = found == first.end() ? spec.target : found->second;
  }
}

/// Notes, which open dimensions are the batch and which the sequence, the sizes of the arguments, and the modules that
/// the model checkpoints.
void read_extra(const json& extra, Model& model) {
  if (!extra.is_object()) return;
  model.metadata["memplan.exported"] = "checkpoints seen";
  const auto each = [&](const char* key, const auto& row) {
    if (const auto found = extra.find(key); found != extra.end() && found->is_object())
      for (const auto& [name, value] : found->items()) row(name, value);
  };
  each("notes", [&](const std::string& code, const json& value) {
    if (value.is_string()) model.metadata["memplan.note." + code] = value.get<std::string>();
  });
  if (const auto found = extra.find("checkpointed"); found != extra.end() && found->is_array())
    for (const json& pattern : *found)
      if (pattern.is_string()) model.metadata["memplan.checkpointed"] += pattern.get<std::string>() + ' ';
  each("roles", [&](const std::string& name, const json& value) {
    if (value.is_string()) model.graphs.front().metadata["memplan.role." + name] = value.get<std::string>();
  });
  each("sizes", [&](const std::string& name, const json& value) {
    if (value.is_number_integer())
      model.graphs.front().metadata["memplan.size." + name] =
          std::to_string(whole_number_of(value, "the sizes of the file"));
  });
}

}  // namespace

Program parse_program(std::string text, std::string_view stored, const std::string& where) {
  tame_json(text, max_json_depth, where);
  try {
    const json root = json::parse(text);
    std::string().swap(text);
    return convert(root, stored, where);
  } catch (const json::exception& e) {
    fail_input(fmt::format("the graph's JSON is damaged or of an unknown form: {}", e.what()), where,
               "export the model again with torch.export.save");
  }
}

[[noreturn]] void fail_without_graph(const Archive& archive, const std::string& path) {
  const auto has = [&](std::string_view folder) {
    return std::any_of(archive.members().begin(), archive.members().end(),
                       [&](const auto& m) { return m.name.find(folder) != std::string::npos; });
  };
  if (has("data/weights/") && !has("data/aotinductor/"))
    fail_input(
        "the archive holds weights but no graph: torch.export.save stopped before it wrote one", path,
        "look at the error that it raised and save again; of an output that is a NamedTuple, return a tuple or a dict");
  fail_input("the archive holds compiled code (AOTInductor) but no graph", path,
             "save the program with torch.export.save as well; it is what can be estimated");
}

Model read_archive(const Archive& archive, const std::string& path) {
  const Archive::Member* found = archive.find("serialized_exported_program.json");
  std::string stored, data, constants, folder;
  if (!found) {
    std::string others;
    for (const auto& m : archive.members()) {
      const std::size_t at = m.name.find("models/");
      if (at == std::string::npos || (at > 0 && (m.name[at - 1] != '/' || m.name.find('/') != at - 1)) ||
          m.name.find('/', at + 7) != std::string::npos)
        continue;
      if (m.name.size() < at + 12 || m.name.substr(m.name.size() - 5) != ".json") continue;
      if (found)
        others += (others.empty() ? "" : ", ") + m.name;
      else
        found = &m;
    }
    if (!found) fail_without_graph(archive, path);
    if (!others.empty())
      fail_input(fmt::format("the archive holds several models: {}, {}", found->name, others), path,
                 "save each with torch.export.save and estimate one at a time");
    const std::size_t at = found->name.find("models/");
    const std::string root = found->name.substr(0, at), name = found->name.substr(at + 7, found->name.size() - at - 12);
    folder = root;
    data = root + "data/";
    constants = data + "constants/" + name + "_constants_config.json";
    for (const char* suffix : {"_weights_config.json", "_model_param_config.json"})
      if (const auto* m = archive.find(data + "weights/" + name + suffix); m && m->bytes <= max_json_bytes)
        stored = archive.read(*m, max_json_bytes);
    if (!stored.empty()) tame_json(stored, 16, path);
  }
  Model model;
  auto program =
      std::make_shared<Program>(parse_program(archive.read(*found, max_json_bytes), stored, path + ": " + found->name));
  if (!constants.empty()) read_constants(archive, constants, path, *program);
  forget_empty_members(archive, data, *program);
  tie_constants(archive, data, *program);
  const json extra = extra_of(archive, folder, path);
  read_ties(extra, *program);
  model.graphs.push_back(dims_graph(*program));
  model.format = fmt::format("PyTorch export {}.{}, torch {}{}", program->schema_major, program->schema_minor,
                             program->torch_version, program->decomposed ? ", core ATen" : "");
  model.producer = "pytorch";
  model.torch = program->torch_version.starts_with("<=") ? program->torch_version.substr(2) : program->torch_version;
  model.path = path;
  model.exported = std::move(program);
  read_extra(extra, model);
  return model;
}

}  // namespace memplan::torch_export
