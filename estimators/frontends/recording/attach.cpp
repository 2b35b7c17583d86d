#include "estimators/frontends/recording/attach.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zip.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "estimators/base/bytes.h"
#include "estimators/base/error.h"
#include "estimators/base/text_file.h"
#include "estimators/base/unwrap.h"
#include "estimators/frontends/onnx/wire.h"
#include "estimators/frontends/recording/attached.h"
#include "estimators/frontends/recording/recording.h"
#include "estimators/frontends/torch_export/archive.h"
#include "estimators/frontends/torch_export/program.h"
#include "estimators/pipeline.h"

namespace memplan::recording {

namespace {

namespace fs = std::filesystem;

/// A file beside `path` that takes its place when it is whole.
class Replacement {
 public:
  explicit Replacement(const std::string& path) : path_(path), temporary_(fmt::format("{}.{}.tmp", path, ::getpid())) {}
  ~Replacement() {
    std::error_code ignored;
    fs::remove(temporary_, ignored);
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  const std::string& temporary() const { return temporary_; }

  void take_place() {
    std::error_code error;
    fs::permissions(temporary_, fs::status(path_).permissions(), error);
    fs::rename(temporary_, path_, error);
    if (error) cannot_write(error.message());
  }
  [[noreturn]] void cannot_write(const std::string& why) const {
    fail_input(fmt::format("the file cannot be written: {}", why), path_,
               "is its folder writable, and is there room on the disk?");
  }

 private:
  std::string path_, temporary_;
};

// --- ONNX: messages of protobuf may be written one behind the other (protobuf.dev/programming-guides/encoding) -------

constexpr std::uint64_t length_delimited = 2, metadata_props = 14;

void put_number(std::string& out, std::uint64_t n) {
  for (; n >= 128; n >>= 7) out += static_cast<char>((n & 127) | 128);
  out += static_cast<char>(n);
}

void put_field(std::string& out, std::uint64_t field, std::string_view bytes) {
  put_number(out, field << 3 | length_delimited);
  put_number(out, bytes.size());
  out += bytes;
}

std::string entry_of(std::string_view key, std::string_view value) {
  std::string entry, out;
  put_field(entry, 1, key);
  put_field(entry, 2, value);
  put_field(out, metadata_props, entry);
  return out;
}

std::uint64_t take_number(std::string_view bytes, std::size_t& at) {
  std::uint64_t n = 0;
  for (int shift = 0; at < bytes.size() && shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[at++]);
    n |= static_cast<std::uint64_t>(byte & 127) << shift;
    if (byte < 128) return n;
  }
  fail_input("the ONNX file is damaged");
}

/// The bytes behind the field that begins at `at`, and whether that is an earlier recording.
std::size_t end_of_field(std::string_view bytes, std::size_t at, std::string_view key, bool& earlier) {
  const std::uint64_t tag = take_number(bytes, at);
  std::uint64_t size = 0;
  if ((tag & 7) == length_delimited)
    size = take_number(bytes, at);
  else if ((tag & 7) == 0)
    take_number(bytes, at);
  else
    size = (tag & 7) == 1 ? 8 : (tag & 7) == 5 ? 4 : UINT64_MAX;
  if (size > bytes.size() - at) fail_input("the ONNX file is damaged");
  std::string begin;
  put_field(begin, 1, key);
  earlier = tag >> 3 == metadata_props && bytes.substr(at, size).starts_with(begin);
  return at + size;
}

void write_onnx(const std::string& path, std::string_view text) {
  Replacement file(path);
  std::ofstream out(file.temporary(), std::ios::binary);
  const onnx_format::MappedFile mapped(path);
  const std::string_view bytes = mapped.bytes();
  std::size_t kept = 0;  // up to where the file was written
  for (std::size_t at = 0; at < bytes.size();) {
    bool earlier = false;
    const std::size_t end = end_of_field(bytes, at, attached_key, earlier);
    if (earlier) {
      out.write(bytes.data() + kept, static_cast<std::streamsize>(at - kept));
      kept = end;
    }
    at = end;
  }
  out.write(bytes.data() + kept, static_cast<std::streamsize>(bytes.size() - kept));
  const std::string entry = entry_of(attached_key, text);
  out.write(entry.data(), static_cast<std::streamsize>(entry.size()));
  if (!out.flush()) file.cannot_write("the disk may be full");
  out.close();
  file.take_place();
}

void write_archive(const std::string& path, const std::string& text) {
  Replacement file(path);
  std::error_code error;
  fs::copy_file(path, file.temporary(), error);
  if (error) file.cannot_write(error.message());
  const torch_export::Archive archive(path);
  // Beside what memplan.export writes, in the one folder of the archive.
  const std::string& any = archive.members().front().name;
  const std::string name = any.substr(0, any.find('/') + 1) + std::string(attached_member);
  int code = 0;
  zip_t* zip = zip_open(file.temporary().c_str(), 0, &code);
  if (!zip) file.cannot_write("it is no archive that can be added to");
  zip_source_t* source = zip_source_buffer(zip, text.data(), text.size(), 0);
  if (!source || zip_file_add(zip, name.c_str(), source, ZIP_FL_OVERWRITE | ZIP_FL_ENC_UTF_8) < 0) {
    zip_discard(zip);
    file.cannot_write("the member cannot be added");
  }
  if (zip_close(zip) != 0) {
    const std::string why = zip_strerror(zip);
    zip_discard(zip);
    file.cannot_write(why);
  }
  file.take_place();
}

std::int64_t elements(const std::vector<std::int64_t>& sizes) {
  std::int64_t n = 1;
  for (const std::int64_t size : sizes) n = checked_mul(n, size);
  return n;
}

/// Elements of the weights of a file, by name.
std::map<std::string, std::int64_t, std::less<>> weights_of(const Model& model) {
  std::map<std::string, std::int64_t, std::less<>> out;
  for (const auto& [id, t] : model.graphs.front().initializers) out.emplace(t.name, elements(t.sizes));
  if (!model.exported) return out;
  for (const torch_export::InputSpec& input : model.exported->inputs) {
    if (input.target.empty() || input.name < 0) continue;
    const auto& tensor = model.exported->names[static_cast<std::size_t>(input.name)].tensor;
    if (!tensor || std::any_of(tensor->sizes.begin(), tensor->sizes.end(), [](const Dim& d) { return d.open(); }))
      continue;
    std::vector<std::int64_t> sizes;
    for (const Dim& d : tensor->sizes) sizes.push_back(d.size);
    out.emplace(input.target, elements(sizes));
  }
  return out;
}

/// Exporters fold some weights and rename others; those that bear the same name are as large.
void check_same_module(const Model& graph, const Recording& recording, const std::string& path) {
  const auto weights = weights_of(graph);
  bool any = recording.parameters.empty();
  for (const StoredValue& v : recording.parameters) {
    const auto found = weights.find(v.name);
    if (found == weights.end()) continue;
    if (found->second != elements(v.sizes))
      fail_input(fmt::format("'{}' is of another size in the recording of {}", v.name, recording.module_class), path,
                 "record the module that this file was exported from");
    any = true;
  }
  if (!any)
    fail_input(fmt::format("the recording is of {}, none of whose parameters is in the file", recording.module_class),
               path, "record the module that this file was exported from");
}

}  // namespace

void attach(const std::string& from, const std::string& to) {
  const Model recorded = unwrap(load_model(from));
  if (!recorded.recorded || recorded.recorded->plain)
    fail_input("the file is no recording", from, "make one with memplan record, or memplan.record in Python");
  Model model = unwrap(load_model(to));
  if (model.recorded && model.recorded->plain) model = Model(*model.recorded->plain);
  if (model.recorded || (model.exported && model.exported->script))
    fail_input("a recording goes into an ONNX file or a .pt2 archive", to, "export the module first");
  check_same_module(model, *recorded.recorded, to);
  const std::string text = attached_text(model, text_of_file(from, ErrorKind::input));
  if (static_cast<std::int64_t>(text.size()) > most_attached)
    fail_input(fmt::format("the recording takes more than {} MiB as text", most_attached >> 20), from,
               "record fewer setups, or without calls");
  if (model.exported)
    write_archive(to, text);
  else
    write_onnx(to, text);
}

}  // namespace memplan::recording
