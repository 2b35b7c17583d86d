#include "estimators/frontends/unpack.h"

#include <fmt/format.h>
#include <zlib.h>
#ifdef MEMPLAN_ZSTD
#include <zstd.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "estimators/base/bytes.h"
#include "estimators/base/error.h"
#include "estimators/frontends/detect.h"

namespace memplan::frontends {

namespace {

constexpr const char* again = "download or pack it again";

[[noreturn]] void refuse_more(const std::string& path, std::size_t most, const char* packing, const char* command) {
  fail_input(
      fmt::format("more than {} come out of the {} file", to_human(Bytes(static_cast<std::int64_t>(most))), packing),
      path,
      fmt::format("unpack it with `{}` and name the model that comes out; weights are not read from there", command));
}

/// zlib's state for gzip's members; its own reader of files takes an interrupted read for damage.
class Inflate {
 public:
  Inflate() {
    if (inflateInit2(&stream_, MAX_WBITS + 16) != Z_OK) throw std::bad_alloc();
  }
  ~Inflate() { inflateEnd(&stream_); }
  Inflate(const Inflate&) = delete;
  Inflate& operator=(const Inflate&) = delete;

  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

std::string unpack_gzip(const std::string& path, std::size_t most) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_input("cannot open the model", path, "check the path");
  Inflate inflate;
  z_stream& z = inflate.stream();
  std::array<char, 65536> packed{};
  std::string out;
  std::size_t had = 0;  // of `out`, which is larger
  int state = Z_OK;
  while (file.read(packed.data(), packed.size()), file.gcount() > 0) {
    z.next_in = reinterpret_cast<Bytef*>(packed.data());
    z.avail_in = static_cast<uInt>(file.gcount());
    do {
      if (state == Z_STREAM_END) {
        // Another member may follow; anything else behind the last one is passed over, as gzip does.
        if (z.avail_in == 0 || *z.next_in != 0x1F) break;
        inflateReset(&z);
      }
      if (had == out.size()) out.resize(std::min(std::max<std::size_t>(had * 2, 1 << 20), most + 1));
      z.next_out = reinterpret_cast<Bytef*>(out.data() + had);
      z.avail_out = static_cast<uInt>(out.size() - had);
      state = ::inflate(&z, Z_NO_FLUSH);
      had = out.size() - z.avail_out;
      if (state == Z_MEM_ERROR) throw std::bad_alloc();
      if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
        fail_input(fmt::format("the gzip file is damaged: {}", z.msg ? z.msg : "unknown"), path, again);
      if (had > most) refuse_more(path, most, "gzip", "gzip -dk");
    } while (z.avail_in > 0 || z.avail_out == 0);
  }
  if (file.bad()) fail_input(fmt::format("the file cannot be read: {}", std::strerror(errno)), path, again);
  if (state != Z_STREAM_END) fail_input("the gzip file ends in the middle", path, again);
  out.resize(had);
  return out;
}

#ifdef MEMPLAN_ZSTD
std::string unpack_zstandard(const std::string& path, std::size_t most) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_input("cannot open the model", path, "check the path");
  // The window, and with it the memory, is bounded by the library: 128 MiB, as in the command zstd.
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(), &ZSTD_freeDStream);
  std::vector<char> read(ZSTD_DStreamInSize()), written(ZSTD_DStreamOutSize());
  std::string out;
  std::size_t left = 0;  // 0 at the end of a frame
  while (file) {
    file.read(read.data(), static_cast<std::streamsize>(read.size()));
    ZSTD_inBuffer in{read.data(), static_cast<std::size_t>(file.gcount()), 0};
    for (bool full = false; in.pos < in.size || full;) {
      ZSTD_outBuffer part{written.data(), written.size(), 0};
      left = ZSTD_decompressStream(stream.get(), &part, &in);
      if (ZSTD_isError(left))
        fail_input(fmt::format("the Zstandard file is damaged: {}", ZSTD_getErrorName(left)), path, again);
      if (out.size() + part.pos > most) refuse_more(path, most, "Zstandard", "zstd -dk");
      out.append(written.data(), part.pos);
      full = part.pos == part.size && left != 0;
    }
  }
  if (left != 0) fail_input("the Zstandard file ends in the middle", path, again);
  return out;
}
#endif

}  // namespace

std::optional<std::string> unpack(const std::string& path, std::size_t most) {
  if (is_gzip(path)) return unpack_gzip(path, most);
#ifdef MEMPLAN_ZSTD
  if (is_zstandard(path)) return unpack_zstandard(path, most);
#endif
  return std::nullopt;
}

}  // namespace memplan::frontends
