// Files that hold weights but no graph: what can be said of them without reading a weight.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "estimators/base/bytes.h"
#include "estimators/base/dtype.h"
#include "estimators/base/error.h"
#include "estimators/frontends/detect.h"
#include "estimators/frontends/gguf.h"
#include "estimators/frontends/torch_export/archive.h"
#include "estimators/frontends/torch_export/json_text.h"

namespace memplan::frontends {

namespace {

constexpr const char* advice =
    "activations need the model's graph: memplan takes a Hugging Face folder with its config.json, a function of yours "
    "(train.py:make_model), timm:NAME or torchvision:NAME (docs/export.md)";

/// Tensors of one or several files.
struct Inventory {
  std::int64_t tensors = 0;
  double elements = 0, bytes = 0;
  void add(const Inventory& o) { tensors += o.tensors, elements += o.elements, bytes += o.bytes; }
};

std::string human(double bytes) { return to_human(Bytes{static_cast<std::int64_t>(std::min(bytes, 9e18))}); }

DType dtype_of(const std::string& name, const std::string& where) {
  static const std::pair<const char*, DType> known[] = {
      {"F64", DType::float64},        {"F32", DType::float32},
      {"F16", DType::float16},        {"BF16", DType::bfloat16},
      {"I64", DType::int64},          {"I32", DType::int32},
      {"I16", DType::int16},          {"I8", DType::int8},
      {"U8", DType::uint8},           {"U16", DType::uint16},
      {"U32", DType::uint32},         {"U64", DType::uint64},
      {"BOOL", DType::boolean},       {"F8_E4M3", DType::float8_e4m3fn},
      {"F8_E5M2", DType::float8_e5m2}};
  for (const auto& [text, dtype] : known)
    if (name == text) return dtype;
  fail_input(
      fmt::format("the safetensors header names an element type that memplan does not know: '{}'", name.substr(0, 32)),
      where);
}

/// u64 length, then JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {…}}.
Inventory safetensors(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  unsigned char length[8] = {};
  if (!in.read(reinterpret_cast<char*>(length), 8)) fail_input("the safetensors file is shorter than its header", path);
  std::uint64_t n = 0;
  for (int i = 7; i >= 0; --i) n = n << 8 | length[i];
  // The format's own limit.
  if (n > 100'000'000)
    fail_input(fmt::format("the safetensors header claims {} bytes; at most 100,000,000 are allowed", n), path,
               "the file is damaged");
  std::error_code ec;
  const auto size = std::filesystem::file_size(path, ec);
  if (ec || size < 8 || n > size - 8)
    fail_input("the safetensors file is shorter than its header", path, "download it again");
  std::string text(static_cast<std::size_t>(n), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(n)))
    fail_input("the safetensors file is shorter than its header", path, "download it again");
  torch_export::tame_json(text, 8, path);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) fail_input("the safetensors header is not valid JSON", path, "the file is damaged");
  Inventory out;
  for (const auto& [name, tensor] : json.items()) {
    if (name == "__metadata__") continue;
    if (!tensor.is_object() || !tensor.contains("dtype") || !tensor["dtype"].is_string() || !tensor.contains("shape") ||
        !tensor["shape"].is_array())
      fail_input(fmt::format("the safetensors header does not describe the tensor '{}'", name.substr(0, 200)), path,
                 "the file is damaged");
    double elements = 1;
    for (const auto& size : tensor["shape"]) {
      if (!size.is_number_unsigned())
        fail_input(fmt::format("the tensor '{}' has a size that is no number", name.substr(0, 200)), path,
                   "the file is damaged");
      elements *= static_cast<double>(size.get<std::uint64_t>());
    }
    if (elements > 1e15)
      fail_input(fmt::format("the tensor '{}' has more elements than any device holds", name.substr(0, 200)), path,
                 "the file is damaged");
    ++out.tensors;
    out.elements += elements;
    out.bytes += elements * bits_of(dtype_of(tensor["dtype"].get<std::string>(), path)) / 8;
  }
  return out;
}

/// torch.save stores one member <root>/data/<number> per storage.
Inventory saved_storages(const std::string& path) {
  const torch_export::Archive archive(path);
  Inventory out;
  for (const auto& m : archive.members()) {
    const std::size_t at = m.name.find("/data/");
    if (at == std::string::npos || m.name.find('/') != at || at + 6 >= m.name.size()) continue;
    if (!std::all_of(m.name.begin() + static_cast<std::ptrdiff_t>(at) + 6, m.name.end(),
                     [](unsigned char c) { return std::isdigit(c); }))
      continue;
    ++out.tensors;
    out.bytes += static_cast<double>(m.bytes);
  }
  return out;
}

/// Training keeps weights, gradients and AdamW's two moments, each of the weights' size.
std::string figures(const Inventory& i) {
  return fmt::format("{} of parameters in {} tensors; with gradients and AdamW's state {}", human(i.bytes), i.tensors,
                     human(4 * i.bytes));
}

/// What inference needs at least: formats that nobody trains in take the bytes that the file has.
std::string figures(const GgufInventory& g) {
  std::vector<std::pair<double, std::string>> types;
  for (const auto& [name, bytes] : g.by_type) types.emplace_back(-bytes, name);
  std::sort(types.begin(), types.end());
  std::string parts;
  for (const auto& [bytes, name] : types)
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, human(-bytes));
  return fmt::format("{} of parameters in {} tensors{}, {:.2f} bits per weight", human(g.bytes), g.tensors,
                     parts.empty() ? "" : fmt::format(" ({})", parts), g.elements > 0 ? 8 * g.bytes / g.elements : 0.0);
}

[[noreturn]] void refuse_folder(const std::string& path) {
  namespace fs = std::filesystem;
  Inventory total;
  bool config = false, pickles = false;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(path, ec)) {
    const std::string name = entry.path().filename().string();
    config = config || name == "config.json";
    const std::string extension = entry.path().extension().string();
    if (extension == ".safetensors")
      total.add(safetensors(entry.path().string()));
    else if (extension == ".bin" || extension == ".pt" || extension == ".pth")
      pickles = true;
  }
  if (ec) fail_input("the folder cannot be read: " + ec.message(), path);
  if (total.tensors > 0) fail_input(fmt::format("the folder holds {}, but no graph", figures(total)), path, advice);
  if (pickles || config) fail_input("the folder holds a model of transformers without a graph", path, advice);
  fail_input("the model is not a regular file", path, "give the path of an .onnx or .pt2 file");
}

}  // namespace

void refuse_without_graph(FileKind kind, const std::string& path) {
  switch (kind) {
    case FileKind::state_dict:
      fail_input(
          fmt::format("this is a file of torch.save with weights but no graph: {}", figures(saved_storages(path))),
          path, advice);
    case FileKind::legacy_pickle: {
      std::error_code ec;
      const auto size = std::filesystem::file_size(path, ec);
      fail_input(fmt::format("this is a Python pickle of {}, which is never opened because pickles can run code; it "
                             "holds weights at best, and no graph",
                             human(ec ? 0 : static_cast<double>(size))),
                 path, advice);
    }
    case FileKind::safetensors:
      fail_input(fmt::format("this is a safetensors file with weights but no graph: {}", figures(safetensors(path))),
                 path, advice);
    case FileKind::gguf:
      fail_input(fmt::format("this is a GGUF file with weights but no graph: {}", figures(read_gguf(path))), path,
                 advice);
    case FileKind::folder:
      refuse_folder(path);
    case FileKind::packed:
      refuse_packed(path);
    case FileKind::other_zip:
    case FileKind::onnx:
    case FileKind::torch_export:
    case FileKind::torch_script:
    case FileKind::recording:
      break;
  }
  fail_input("this is a zip archive, but not one that PyTorch wrote", path, "name the .onnx or .pt2 file itself");
}

}  // namespace memplan::frontends
