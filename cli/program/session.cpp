#include "cli/program/session.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

namespace memplan::cli {

namespace {

using OrtOptions = std::vector<std::pair<std::string, std::string>>;

std::string python_of(const OrtOptions& all) {
  std::string options, entries, provider, arena;
  for (const auto& [name, value] : all) switch (place_of_ort_option(name)) {
      case OrtPlace::member:
        options += fmt::format("options.{} = {}\n", name, value == "0" ? "False" : "True");
        break;
      case OrtPlace::session_entry:
        options += fmt::format("options.add_session_config_entry(\"{}\", \"{}\")\n", name, value);
        break;
      case OrtPlace::run_entry:
        entries += fmt::format("run_options.add_run_config_entry(\"{}\", \"{}\")\n", name, value);
        break;
      case OrtPlace::arena:
        arena += fmt::format("# {}={} is an option of OrtArenaCfg, which the C API takes\n", name, value);
        break;
      case OrtPlace::provider:
        provider += fmt::format("{}\"{}\": \"{}\"", provider.empty() ? "" : ", ", name, value);
    }
  return fmt::format(
      "options = ort.SessionOptions()\n{}{}session = ort.InferenceSession(MODEL, options, "
      "providers=[(\"CUDAExecutionProvider\", {{{}}})])\nrun_options = ort.RunOptions()\n{}",
      options, arena, provider, entries);
}

std::string cpp_of(const OrtOptions& all) {
  std::string out =
      "# C++ (api is Ort::GetApi()):\n#   OrtCUDAProviderOptionsV2* cuda = nullptr;\n#   "
      "api.CreateCUDAProviderOptions(&cuda);\n";
  std::string keys, values;
  for (const auto& [name, value] : all) {
    if (name == "enable_mem_pattern")
      out += fmt::format("#   options.{}MemPattern();\n", value == "0" ? "Disable" : "Enable");
    if (place_of_ort_option(name) == OrtPlace::session_entry)
      out += fmt::format("#   options.AddConfigEntry(\"{}\", \"{}\");\n", name, value);
    if (place_of_ort_option(name) == OrtPlace::run_entry)
      out += fmt::format("#   run_options.AddConfigEntry(\"{}\", \"{}\");\n", name, value);
    if (place_of_ort_option(name) != OrtPlace::provider) continue;
    keys += fmt::format("{}\"{}\"", keys.empty() ? "" : ", ", name);
    values += fmt::format("{}\"{}\"", values.empty() ? "" : ", ", value);
  }
  if (!keys.empty())
    out += fmt::format(
        "#   const char *keys[] = {{{}}}, *values[] = {{{}}};\n#   api.UpdateCUDAProviderOptions(cuda, keys, "
        "values, std::size(keys));\n",
        keys, values);
  return out + "#   options.AppendExecutionProvider_CUDA_V2(*cuda);\n";
}

/// The options that Triton's backend of ONNX Runtime takes.
std::string triton_of(const OrtOptions& all) {
  std::string parameters, provider;
  for (const auto& [name, value] : all) {
    if (place_of_ort_option(name) == OrtPlace::provider)
      provider += fmt::format(" parameters {{ key: \"{}\" value: \"{}\" }}", name, value);
    if (name == "enable_mem_pattern" || place_of_ort_option(name) == OrtPlace::run_entry)
      parameters += fmt::format("#   parameters {{ key: \"{}\" value {{ string_value: \"{}\" }} }}\n", name, value);
  }
  if (!provider.empty())
    parameters += fmt::format(
        "#   optimization {{ execution_accelerators {{ gpu_execution_accelerator: [ {{ name: "
        "\"cuda\"{} }} ] }} }}\n",
        provider);
  return parameters.empty() ? parameters : "# Triton Inference Server (config.pbtxt):\n" + parameters;
}

}  // namespace

std::string session_program(const std::string& model, const OrtSetup& setup) {
  const OrtOptions options = ort_options(setup);
  std::string text =
      "# The session whose memory `memplan --runtime ort` estimates. It needs onnxruntime-gpu and a GPU.\n"
      "import onnxruntime as ort\n\n";
  std::string quoted;
  for (const char c : model) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 32 ? '?' : c;
  }
  text += fmt::format("MODEL = \"{}\"\n{}", quoted, python_of(options));
  text += "for _ in range(3):\n    session.run(None, inputs, run_options)  # inputs: numpy arrays by name\n";
  return text + "\n" + cpp_of(options) + triton_of(options);
}

}  // namespace memplan::cli
