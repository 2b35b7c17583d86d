// Files that hold weights but no graph: what can be said of them without reading a weight.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "estimators/base/bytes.h"
#include "estimators/base/error.h"
#include "estimators/frontends/detect.h"
#include "estimators/frontends/gguf.h"
#include "estimators/frontends/safetensors.h"
#include "estimators/frontends/torch_export/archive.h"

namespace memplan::frontends {

namespace {

constexpr const char* advice =
    "activations need the model's graph: memplan takes a Hugging Face folder with its config.json, a function of yours "
    "(train.py:make_model), timm:NAME or torchvision:NAME (docs/export.md)";

std::string human(double bytes) { return to_human(Bytes{static_cast<std::int64_t>(std::min(bytes, 9e18))}); }

/// torch.save stores one member <root>/data/<number> per storage.
WeightsInventory saved_storages(const std::string& path) {
  const torch_export::Archive archive(path);
  WeightsInventory out;
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
std::string figures(const WeightsInventory& i) {
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
  WeightsInventory total;
  bool config = false, pickles = false;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(path, ec)) {
    const std::string name = entry.path().filename().string();
    config = config || name == "config.json";
    const std::string extension = entry.path().extension().string();
    if (extension == ".safetensors")
      total.add(read_safetensors(entry.path().string()));
    else if (extension == ".bin" || extension == ".pt" || extension == ".pth")
      pickles = true;
  }
  if (ec) fail_input("the folder cannot be read: " + ec.message(), path);
  if (total.tensors > 0) fail_input(fmt::format("the folder holds {}, but no graph", figures(total)), path, advice);
  if (pickles || config) fail_input("the folder holds a model of transformers without a graph", path, advice);
  fail_input("this is a folder without a model", path,
             "give an .onnx or .pt2 file, or a folder of transformers with its config.json");
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
      fail_input(
          fmt::format("this is a safetensors file with weights but no graph: {}", figures(read_safetensors(path))),
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
