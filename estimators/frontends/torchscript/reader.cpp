#include "estimators/frontends/torchscript/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "estimators/base/error.h"
#include "estimators/companion/companion.h"
#include "estimators/frontends/torch_export/program.h"
#include "estimators/setup/field.h"

namespace memplan::torchscript {

namespace {

bool takes_tensor(const ScriptInput& in) { return in.type == "Tensor" || in.type == "Optional[Tensor]"; }

std::string shape_text(const std::vector<Dim>& sizes) {
  std::string out;
  for (const Dim& d : sizes) out += (out.empty() ? "" : ",") + (d.open() ? d.symbol : std::to_string(d.size));
  return out;
}

/// "x:float32:batch,3,224,224" for every input, with what is known filled in.
std::string example_inputs(const Script& script, const Graph& given) {
  std::string out;
  for (const ScriptInput& in : script.inputs) {
    const auto known =
        std::find_if(given.values.begin(), given.values.end(), [&](const GraphValue& v) { return v.name == in.name; });
    if (known != given.values.end())
      out += " " + setting(Field::inputs,
                           fmt::format("{}:{}:{}", in.name, name_of(*known->dtype), shape_text(*known->shape)));
    else if (!in.standard)
      out += " " + setting(Field::inputs, fmt::format("{}:{}", in.name,
                                                      in.name.find("ids") != std::string::npos ||
                                                              in.name.find("tok") != std::string::npos
                                                          ? "int64:batch,512"
                                                          : "float32:batch,3,224,224"));
  }
  return out;
}

Graph bind_inputs(Script& script, const std::vector<GivenInput>& inputs, const std::string& path) {
  Graph g;
  g.name = "main";
  std::vector<bool> taken(script.inputs.size(), false);
  for (const GivenInput& given : inputs) {
    std::size_t at = 0;
    while (at < script.inputs.size() && (taken[at] || (given.name.empty() ? !takes_tensor(script.inputs[at])
                                                                          : script.inputs[at].name != given.name)))
      ++at;
    if (at == script.inputs.size()) {
      std::string names;
      for (const ScriptInput& in : script.inputs)
        names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", in.name, in.type);
      fail(ErrorKind::usage,
           given.name.empty() ? "there are more " + setting(Field::inputs) + " than the model has tensors"
                              : fmt::format("the model has no input '{}' left", given.name),
           setting(Field::inputs), "its inputs are " + names);
    }
    ScriptInput& in = script.inputs[at];
    if (!takes_tensor(in))
      fail(ErrorKind::usage, fmt::format("the input '{}' is no tensor but {}", in.name, in.type),
           setting(Field::inputs, in.name), "only tensors can be described");
    taken[at] = true;
    in.dtype = given.dtype;
    GraphValue v;
    v.name = in.name;
    v.dtype = given.dtype;
    v.shape = given.sizes;
    g.values.push_back(std::move(v));
  }
  // In the order of the signature, whatever the order of the flags.
  for (const ScriptInput& in : script.inputs)
    for (std::size_t i = 0; i < g.values.size(); ++i)
      if (g.values[i].name == in.name) g.inputs.push_back(static_cast<GraphValueId>(i));
  std::string missing;
  for (const ScriptInput& in : script.inputs) {
    if (in.dtype || in.standard) continue;
    if (!takes_tensor(in) && in.type.rfind("Optional[", 0) != 0)
      fail_input(fmt::format("the model takes '{}' of type {}, which cannot be described with {}", in.name, in.type,
                             setting(Field::inputs)),
                 path, "export it with torch.export.save, which keeps its inputs");
    if (in.type == "Tensor") missing += (missing.empty() ? "" : ", ") + in.name;
  }
  if (!missing.empty())
    fail_input(fmt::format("a TorchScript file does not say the shapes of its inputs: {}", missing), path,
               fmt::format("describe them, for example: memplan {}{} {}", path, example_inputs(script, g),
                           setting(Field::batch, "8")));
  return g;
}

}  // namespace

void check_archive(const torch_export::Archive& archive, const std::string& path) {
  std::int64_t program = 0;
  for (const auto& m : archive.members()) {
    const std::size_t slash = m.name.find('/');
    const std::string_view inner = std::string_view(m.name).substr(slash == std::string::npos ? 0 : slash + 1);
    if (inner.substr(0, 5) == "data/" || inner.substr(0, 10) == "constants/") {
      if (m.stored != m.bytes)
        fail_input("a tensor of the archive is compressed, which PyTorch never does",
                   fmt::format("{}: {}", path, m.name),
                   "it may be a zip bomb; save the file again with torch.jit.save");
      continue;
    }
    if (inner.substr(0, 6) == "extra/") continue;  // of the user, and not read
    program += std::min(m.bytes, max_program_bytes + 1);
    if (program > max_program_bytes)
      fail_input(fmt::format("the program in the archive is longer than {} bytes", max_program_bytes),
                 fmt::format("{}: {}", path, m.name), "it may be a zip bomb; save the file again with torch.jit.save");
  }
}

Model read_script(const torch_export::Archive& archive, const std::string& path,
                  const std::vector<GivenInput>& inputs) {
  check_archive(archive, path);
  CompanionCall call;
  call.sub_command = "read-torchscript";
  call.limits.time = std::chrono::seconds(120);
  Script script = parse_script(ask_companion(call, {{"path", path}}));
  Model model;
  model.path = path;
  model.producer = "pytorch";
  model.format = fmt::format("TorchScript, read by torch {}", script.torch_version);
  model.graphs.push_back(bind_inputs(script, inputs, path));
  auto program = std::make_shared<torch_export::Program>();
  program->script = std::make_shared<const Script>(std::move(script));
  model.exported = std::move(program);
  return model;
}

}  // namespace memplan::torchscript
