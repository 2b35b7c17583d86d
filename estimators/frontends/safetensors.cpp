#include "estimators/frontends/safetensors.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "estimators/base/dtype.h"
#include "estimators/base/error.h"
#include "estimators/frontends/torch_export/json_text.h"

namespace memplan::frontends {

namespace {

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

}  // namespace

WeightsInventory read_safetensors(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::error_code ec;
  const auto bytes = std::filesystem::file_size(path, ec);
  return read_safetensors(in, ec ? 0 : bytes, path);
}

WeightsInventory read_safetensors(std::istream& in, std::uint64_t bytes, const std::string& path) {
  unsigned char length[8] = {};
  if (!in.read(reinterpret_cast<char*>(length), 8)) fail_input("the safetensors file is shorter than its header", path);
  std::uint64_t n = 0;
  for (int i = 7; i >= 0; --i) n = n << 8 | length[i];
  // The format's own limit.
  if (n > 100'000'000)
    fail_input(fmt::format("the safetensors header claims {} bytes; at most 100,000,000 are allowed", n), path,
               "the file is damaged");
  if (bytes < 8 || n > bytes - 8)
    fail_input("the safetensors file is shorter than its header", path, "download it again");
  std::string text(static_cast<std::size_t>(n), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(n)))
    fail_input("the safetensors file is shorter than its header", path, "download it again");
  torch_export::tame_json(text, 8, path);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) fail_input("the safetensors header is not valid JSON", path, "the file is damaged");
  WeightsInventory out;
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
    if (!(elements <= 1e15))  // infinity times nothing is no number
      fail_input(fmt::format("the tensor '{}' has more elements than any device holds", name.substr(0, 200)), path,
                 "the file is damaged");
    ++out.tensors;
    out.elements += elements;
    out.bytes += elements * bits_of(dtype_of(tensor["dtype"].get<std::string>(), path)) / 8;
  }
  return out;
}

}  // namespace memplan::frontends
