// Files that were packed for the way: said by name, with the command that unpacks them. Most are not read through,
// because what comes out has no size until it is out, and the readers want to skip weights, not to unpack them; gzip
// and Zstandard, which graphs without weights are packed with, are (unpack.h).
#include <fmt/format.h>

#include <array>
#include <fstream>

#include "estimators/base/error.h"
#include "estimators/base/shell.h"
#include "estimators/frontends/detect.h"

namespace memplan::frontends {

namespace {

struct Packing {
  const char* name;
  std::string_view magic;
  const char* command;  ///< writes to stdout what is in its input file; or, where it ends in a blank, unpacks beside it
  std::array<const char*, 2> endings;
};

using namespace std::string_view_literals;

/// RFC 1952; RFC 8878; the xz file format 1.1.0; bzip2's header with the magic of its first block; the LZ4 frame
/// format 1.6; 7zFormat.txt. No ONNX file, zip, pickle or safetensors file begins with these bytes.
constexpr Packing packings[] = {
    {"gzip", "\x1f\x8b\x08"sv, "gzip -dc", {".gz", ".tgz"}},
    {"Zstandard", "\x28\xb5\x2f\xfd"sv, "zstd -dc", {".zst", ".zstd"}},
    {"xz",
     "\xfd"
     "7zXZ\0"sv,
     "xz -dc",
     {".xz", ".txz"}},
    {"bzip2", "BZh"sv, "bzip2 -dc", {".bz2", ".tbz2"}},
    {"LZ4", "\x04\x22\x4d\x18"sv, "lz4 -dc", {".lz4", ".lz4"}},
    {"7-Zip", "7z\xbc\xaf\x27\x1c"sv, "7z x ", {".7z", ".7z"}},
};

const Packing* packing_of(std::string_view head) {
  for (const Packing& p : packings)
    if (head.starts_with(p.magic) && (p.magic != "BZh" || head.substr(4, 6) == "1AY&SY"sv)) return &p;
  return nullptr;
}

bool begins_with(const std::string& path, std::string_view magic) {
  std::array<char, 8> head{};
  std::ifstream in(path, std::ios::binary);
  in.read(head.data(), static_cast<std::streamsize>(magic.size()));
  return std::string_view(head.data(), magic.size()) == magic;
}

}  // namespace

bool is_packed(std::string_view head) { return packing_of(head) != nullptr; }

bool is_gzip(const std::string& path) { return begins_with(path, packings[0].magic); }
bool is_zstandard(const std::string& path) { return begins_with(path, packings[1].magic); }

void refuse_packed(const std::string& path) {
  std::array<char, 16> head{};
  std::ifstream in(path, std::ios::binary);
  in.read(head.data(), head.size());
  const Packing* p = packing_of({head.data(), static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0))});
  if (!p) fail_input("the file changed while it was read", path);
  std::string inner = path + ".unpacked";
  for (const std::string ending : p->endings)
    if (path.size() > ending.size() && path.ends_with(ending)) inner = path.substr(0, path.size() - ending.size());
  const std::string_view command = p->command;
  const bool folder = command.ends_with(' ') || inner.ends_with(".tar") || path.ends_with(".tgz") ||
                      path.ends_with(".txz") || path.ends_with(".tbz2");
  const std::string unpack = command.ends_with(' ') ? p->command + shell_word(path)
                             : folder               ? "tar -xf " + shell_word(path)
                                      : fmt::format("{} {} > {}", command, shell_word(path), shell_word(inner));
  fail_input(fmt::format("the file is compressed with {}", p->name), path,
             fmt::format("unpack it with `{}` and name the model that comes out", unpack));
}

}  // namespace memplan::frontends
