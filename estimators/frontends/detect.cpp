#include "estimators/frontends/detect.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/frontends/recording/reader.h"
#include "estimators/frontends/torch_export/archive.h"

namespace memplan::frontends {

namespace {

using torch_export::Archive;

FileKind kind_of_zip(const std::string& path) {
  const Archive archive(path);
  if (archive.find(recording::index_member)) return FileKind::recording;
  if (archive.find("serialized_exported_program.json")) return FileKind::torch_export;
  bool pickle = false, script = false;
  for (const Archive::Member& m : archive.members()) {
    const std::string_view name = m.name;
    const std::size_t slash = name.find('/');
    // Everything of PyTorch's own archives lies in one folder named after the file.
    const std::string_view inner = slash == std::string_view::npos ? name : name.substr(slash + 1);
    if (inner == "archive_format" && m.bytes <= 16 && archive.read(m, 16).substr(0, 3) == "pt2")
      return FileKind::torch_export;
    pickle = pickle || inner == "data.pkl";
    script = script || inner == "constants.pkl" || inner.substr(0, 5) == "code/";
  }
  return script ? FileKind::torch_script : pickle ? FileKind::state_dict : FileKind::other_zip;
}

}  // namespace

FileKind detect(const std::string& path) {
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) return FileKind::folder;
  if (!std::filesystem::exists(path, ec) && !ec)
    fail_input("cannot open the model: No such file or directory", path, what_to_do_without_file(path));
  // Pipes and devices are refused by the reader.
  if (!std::filesystem::is_regular_file(path, ec)) return FileKind::onnx;
  std::array<char, 64> head{};
  std::ifstream in(path, std::ios::binary);
  in.read(head.data(), head.size());
  const std::string_view bytes(head.data(), static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  if (bytes.substr(0, 4) == std::string_view("PK\3\4", 4) || bytes.substr(0, 4) == std::string_view("PK\5\6", 4))
    return kind_of_zip(path);
  if (is_packed(bytes)) return FileKind::packed;
  if (bytes.substr(0, 4) == "GGUF") return FileKind::gguf;
  // Protocol 2 and later: PROTO, its number, then an opcode. An ONNX file cannot begin with 0x80.
  if (bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5) return FileKind::legacy_pickle;
  if (bytes.size() >= 10 && bytes[8] == '{') {
    std::uint64_t header = 0;
    for (int i = 7; i >= 0; --i) header = header << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
    const auto size = std::filesystem::file_size(path, ec);
    if (!ec && size >= 8 && (header <= size - 8 || path.ends_with(".safetensors"))) return FileKind::safetensors;
  }
  refuse_what_is_no_model(path, bytes);
  return FileKind::onnx;
}

}  // namespace memplan::frontends
