// Files that people name where a model is meant: said by what they are, with the command that is meant.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "estimators/base/error.h"
#include "estimators/base/shell.h"
#include "estimators/frontends/detect.h"

namespace memplan::frontends {

namespace {

using namespace std::string_view_literals;

/// How a file begins that is none, and what to do with it. No ONNX file begins so: as protobuf, each would be a field
/// with a wire type that ONNX does not use, or one that ModelProto does not have.
struct Other {
  std::string_view magic;
  const char* what;
  const char* hint;
};

constexpr const char* give_a_model = "give an .onnx or .pt2 file; docs/export.md says how to make one";

constexpr Other others[] = {
    {"version https://git-lfs"sv, "a pointer of Git LFS, not the file itself", "fetch it with `git lfs pull`"},
    {"\x89PNG\r\n"sv, "an image (PNG)", give_a_model},
    {"\xff\xd8\xff"sv, "an image (JPEG)", give_a_model},
    {"%PDF-"sv, "a PDF", give_a_model},
    {"\x7f"
     "ELF"sv,
     "a program (ELF)", give_a_model},
    {"<!DOCTYPE"sv, "a web page", "the download gave a page in place of the file; download the file itself"},
    {"<!doctype"sv, "a web page", "the download gave a page in place of the file; download the file itself"},
    {"<html"sv, "a web page", "the download gave a page in place of the file; download the file itself"},
    {"\x93NUMPY"sv, "an array of NumPy", give_a_model},
    {"\x89HDF\r\n"sv, "an HDF5 file (Keras)",
     "memplan reads PyTorch's and ONNX's graphs; tf2onnx makes an ONNX file of it"},
};

bool is_script(const std::string& path, std::string_view head) {
  return head.starts_with("#!") || (path.ends_with(".py") && !head.starts_with("\x08"));
}

[[noreturn]] void refuse_json(const std::string& path) {
  constexpr std::streamsize most = 8 << 20;
  std::string text(static_cast<std::size_t>(most), '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), most);
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  const bool deep = std::count(text.begin(), text.end(), '[') + std::count(text.begin(), text.end(), '{') > 1'000'000;
  const auto json = deep ? nlohmann::json() : nlohmann::json::parse(text, nullptr, false);
  const auto has = [&](const char* key) { return json.is_object() && json.contains(key); };
  if (has("schema_version"))
    fail_input("this is a report of memplan, not a model", path,
               fmt::format("show it with `memplan report {}`, or compare two with `memplan diff`", shell_word(path)));
  if (has("model_type") || has("architectures"))
    fail_input("this is the configuration of a model of transformers; it names classes and sizes, and has no graph",
               path, "memplan exports it by itself where it is called *.json; `memplan export` does as well");
  fail_input("this is a JSON file, not a model", path, give_a_model);
}

}  // namespace

void refuse_what_is_no_model(const std::string& path, std::string_view head) {
  for (const Other& o : others)
    if (head.starts_with(o.magic)) fail_input(fmt::format("this is {}", o.what), path, o.hint);
  if (is_script(path, head))
    fail_input(
        "this is a script, not a model", path,
        path.ends_with(".py")
            ? fmt::format("`memplan observe -- python {0}` runs it on an emulated GPU and says what it needs; `memplan "
                          "{0}:NAME` estimates the model that its function NAME returns (docs/export.md)",
                          shell_word(path))
            : fmt::format("`memplan observe -- sh {}` runs it on an emulated GPU and says what it needs",
                          shell_word(path)));
  if (head.starts_with("{") || head.starts_with("[{")) refuse_json(path);
}

std::string what_to_do_without_file(const std::string& path) {
  // "Qwen/Qwen3-0.6B": two words as the Hugging Face Hub has them, and no suffix of a file.
  const std::size_t slash = path.find('/');
  const auto word = [](std::string_view w) {
    return !w.empty() && std::all_of(w.begin(), w.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '-' || c == '_' || c == '.';
    }) && w.front() != '.';
  };
  static constexpr std::string_view suffixes[] = {".onnx", ".pt2",  ".pt", ".pth", ".gz",
                                                  ".zst",  ".json", ".ts", ".py",  ".memplan"};
  const bool named_file =
      std::any_of(std::begin(suffixes), std::end(suffixes), [&](std::string_view s) { return path.ends_with(s); });
  if (slash != std::string::npos && !named_file && word(std::string_view(path).substr(0, slash)) &&
      word(std::string_view(path).substr(slash + 1)))
    return "check the path; a model of the Hugging Face Hub is named hf:" + path;
  return "check the path";
}

}  // namespace memplan::frontends
