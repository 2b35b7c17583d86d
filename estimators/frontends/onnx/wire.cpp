#include "estimators/frontends/onnx/wire.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "estimators/base/error.h"

namespace memplan::onnx_format {

namespace {

constexpr std::size_t small_file = std::size_t{32} << 20;

#ifndef MADV_POPULATE_READ
constexpr int MADV_POPULATE_READ = 22;  // since Linux 5.14, newer than some headers; older kernels refuse it
#endif

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_input(fmt::format("cannot open the model: {}", std::strerror(errno)), path, "check the path");
  struct stat info {};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (!regular || info.st_size == 0) {
    ::close(fd);
    if (!regular) fail_input("the model is not a regular file", path, "give the path of an .onnx file");
    fail_input("the file is empty", path, "export the model again");
  }
  size_ = static_cast<std::size_t>(info.st_size);
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (mapped == MAP_FAILED) fail_input(fmt::format("cannot map the model: {}", std::strerror(error)), path);
  // Of a large file only the bytes between weights are read, so reading ahead would fetch weights for nothing. A small
  // one is read whole, and its pages come quicker at once.
  ::madvise(mapped, size_, size_ > small_file ? MADV_RANDOM : MADV_POPULATE_READ);
  data_ = static_cast<const char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<char*>(data_), size_);
}

namespace {

enum class Message : std::uint8_t { model, graph, node, attribute, function, sparse, tensor, skipped, opaque };

/// What a length-delimited field of a message holds, as far as tensors can be below it (onnx-ml.proto).
Message child(Message parent, std::uint32_t field) {
  switch (parent) {
    case Message::model:
      if (field == 7) return Message::graph;
      if (field == 20) return Message::skipped;  // training_info: memplan makes its own training step
      if (field == 25) return Message::function;
      return Message::opaque;
    case Message::graph:
      if (field == 1) return Message::node;
      if (field == 5) return Message::tensor;
      if (field == 15) return Message::sparse;
      return Message::opaque;
    case Message::node:
      return field == 5 ? Message::attribute : Message::opaque;
    case Message::attribute:
      if (field == 5 || field == 10) return Message::tensor;
      if (field == 6 || field == 11) return Message::graph;
      if (field == 22 || field == 23) return Message::sparse;
      return Message::opaque;
    case Message::function:
      if (field == 7) return Message::node;
      if (field == 11) return Message::attribute;
      return Message::opaque;
    case Message::sparse:
      return field == 1 || field == 2 ? Message::tensor : Message::opaque;
    default:
      return Message::opaque;
  }
}

/// Fields of TensorProto that hold contents: float, int32, string, int64, raw, double, uint64.
bool holds_contents(std::uint32_t field) {
  return field == 4 || field == 5 || field == 6 || field == 7 || field == 9 || field == 10 || field == 11;
}

struct Field {
  std::uint32_t number = 0;
  std::uint32_t wire_type = 0;
  std::size_t begin = 0;    ///< of the tag
  std::size_t payload = 0;  ///< of the value (after the length)
  std::size_t end = 0;
};

class Walker {
 public:
  Walker(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  void copy(Message type, std::size_t begin, std::size_t end, int depth, std::string& out) const {
    if (depth > max_nesting) damaged(begin, fmt::format("messages are nested deeper than {} levels", max_nesting));
    if (type == Message::tensor) return copy_tensor(begin, end, out);
    for (std::size_t at = begin; at < end;) {
      const Field f = next(at, end);
      at = f.end;
      const Message kind = f.wire_type == 2 ? child(type, f.number) : Message::opaque;
      if (kind == Message::skipped) continue;
      // Nothing in a message shorter than the limit can be dropped, so it is copied without a look inside.
      if (kind == Message::opaque || f.end - f.payload <= kept_tensor_bytes) {
        out.append(bytes_.substr(f.begin, f.end - f.begin));
        continue;
      }
      out.append(bytes_.substr(f.begin, tag_length(f)));
      const std::size_t length_at = out.size();
      out.append(5, '\0');
      copy(kind, f.payload, f.end, depth + 1, out);
      write_padded(out, length_at, out.size() - length_at - 5);
    }
  }

  /// Whether copy() would leave something out.
  bool drops(Message type, std::size_t begin, std::size_t end, int depth) const {
    if (depth > max_nesting) damaged(begin, fmt::format("messages are nested deeper than {} levels", max_nesting));
    if (type == Message::tensor) return contents_of(begin, end).drop;
    for (std::size_t at = begin; at < end;) {
      const Field f = next(at, end);
      at = f.end;
      const Message kind = f.wire_type == 2 ? child(type, f.number) : Message::opaque;
      if (kind == Message::skipped) return true;
      if (kind != Message::opaque && f.end - f.payload > kept_tensor_bytes && drops(kind, f.payload, f.end, depth + 1))
        return true;
    }
    return false;
  }

  void check(Message type, std::size_t begin, std::size_t end, int depth) const {
    if (depth > max_nesting) damaged(begin, fmt::format("messages are nested deeper than {} levels", max_nesting));
    for (std::size_t at = begin; at < end;) {
      const Field f = next(at, end);
      at = f.end;
      const Message kind = f.wire_type == 2 ? child(type, f.number) : Message::opaque;
      if (kind != Message::opaque && kind != Message::skipped) check(kind, f.payload, f.end, depth + 1);
    }
  }

 private:
  /// No tool writes a model that begins so; this only chooses the words.
  bool begins_as_text() const {
    const std::string_view head = bytes_.substr(0, 64);
    return std::all_of(head.begin(), head.end(),
                       [](unsigned char c) { return std::isprint(c) || std::isspace(c) || c >= 0x80; });
  }

  [[noreturn]] void damaged(std::size_t offset, std::string what) const {
    if (begins_as_text())
      fail_input("this is text, not a model", where_,
                 "give an .onnx or .pt2 file; docs/export.md says how to make one");
    fail_input(fmt::format("the file is damaged or not an ONNX model: at byte {}, {}", offset, what), where_,
               "check the file with onnx.checker, or export the model again");
  }

  std::uint64_t varint(std::size_t& at, std::size_t end) const {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at >= end) damaged(at, "a number is cut off");
      const auto byte = static_cast<unsigned char>(bytes_[at++]);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
    damaged(at, "a number has more than ten bytes");
  }

  Field next(std::size_t at, std::size_t end) const {
    Field f;
    f.begin = at;
    const std::uint64_t tag = varint(at, end);
    f.number = static_cast<std::uint32_t>(tag >> 3);
    f.wire_type = static_cast<std::uint32_t>(tag & 7);
    if (f.number == 0 || tag > 0xffffffffu) damaged(f.begin, "a field has an impossible number");
    std::size_t length = 0;
    switch (f.wire_type) {
      case 0: {
        f.payload = at;
        varint(at, end);
        f.end = at;
        return f;
      }
      case 1:
        length = 8;
        break;
      case 5:
        length = 4;
        break;
      case 2: {
        const std::uint64_t claimed = varint(at, end);
        if (claimed > end - at)
          damaged(f.begin, fmt::format("a field claims {} bytes where {} are left", claimed, end - at));
        length = static_cast<std::size_t>(claimed);
        break;
      }
      default:
        damaged(f.begin, fmt::format("a field has the unknown wire type {}", f.wire_type));
    }
    if (length > end - at) damaged(f.begin, "a field is cut off");
    f.payload = at;
    f.end = at + length;
    return f;
  }

  std::size_t tag_length(const Field& f) const {
    std::size_t at = f.begin;
    varint(at, f.end);
    return at - f.begin;
  }

  /// A length as a varint of exactly five bytes, so that it can be filled in after the contents are known.
  static void write_padded(std::string& out, std::size_t at, std::size_t length) {
    for (int i = 0; i < 5; ++i) {
      out[at + i] = static_cast<char>((length & 0x7f) | (i < 4 ? 0x80 : 0));
      length >>= 7;
    }
  }

  struct Contents {
    std::size_t bytes = 0;
    bool drop = false;
  };

  Contents contents_of(std::size_t begin, std::size_t end) const {
    std::uint64_t dtype = 0;
    Contents contents;
    for (std::size_t at = begin; at < end;) {
      const Field f = next(at, end);
      at = f.end;
      if (f.number == 2 && f.wire_type == 0) {
        std::size_t p = f.payload;
        dtype = varint(p, f.end);
      } else if (holds_contents(f.number)) {
        contents.bytes += f.end - f.payload;
      }
    }
    // UINT8 2 … INT64 7, BOOL 9, UINT32 12, UINT64 13.
    const bool integer = (dtype >= 2 && dtype <= 7) || dtype == 9 || dtype == 12 || dtype == 13;
    contents.drop = contents.bytes > (integer ? kept_integer_bytes : kept_tensor_bytes);
    return contents;
  }

  void copy_tensor(std::size_t begin, std::size_t end, std::string& out) const {
    const auto [contents, drop] = contents_of(begin, end);
    for (std::size_t at = begin; at < end;) {
      const Field f = next(at, end);
      at = f.end;
      if (!drop || !holds_contents(f.number)) out.append(bytes_.substr(f.begin, f.end - f.begin));
    }
    if (!drop) return;
    const std::string length = std::to_string(contents);
    const std::size_t entry = 2 + dropped_key.size() + 2 + length.size();
    out += static_cast<char>(0x82);  // field 16 (metadata_props), length-delimited: tag 130 as a varint
    out += static_cast<char>(0x01);
    out += static_cast<char>(entry);
    out += static_cast<char>(0x0a);  // StringStringEntryProto.key
    out += static_cast<char>(dropped_key.size());
    out.append(dropped_key);
    out += static_cast<char>(0x12);  // StringStringEntryProto.value
    out += static_cast<char>(length.size());
    out.append(length);
  }

  std::string_view bytes_;
  const std::string& where_;
};

}  // namespace

bool is_slim(std::string_view bytes, const std::string& where) {
  return !Walker(bytes, where).drops(Message::model, 0, bytes.size(), 0);
}

std::string slim_model(std::string_view bytes, const std::string& where) {
  std::string out;
  Walker(bytes, where).copy(Message::model, 0, bytes.size(), 0, out);
  return out;
}

void check_model(std::string_view bytes, const std::string& where) {
  Walker(bytes, where).check(Message::model, 0, bytes.size(), 0);
}

}  // namespace memplan::onnx_format
