#include "estimators/frontends/unpack.h"

#include <fmt/format.h>
#include <zlib.h>
#ifdef MEMPLAN_ZSTD
#include <zstd.h>
#endif

#include <algorithm>
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

std::string unpack_gzip(const std::string& path, std::size_t most) {
  struct Close {
    void operator()(gzFile_s* f) const { gzclose(f); }
  };
  const std::unique_ptr<gzFile_s, Close> file(gzopen(path.c_str(), "rbe"));
  if (!file) fail_input("cannot open the model", path, "check the path");
  gzbuffer(file.get(), 256 << 10);
  std::string out;
  for (;;) {
    const std::size_t had = out.size();
    const std::size_t step = std::min<std::size_t>(std::max<std::size_t>(had, 1 << 20), most + 1 - had);
    out.resize(had + step);
    const int got = gzread(file.get(), out.data() + had, static_cast<unsigned>(step));
    int code = Z_OK;
    const char* why = got < 0 ? gzerror(file.get(), &code) : nullptr;
    if (got < 0) fail_input(fmt::format("the gzip file is damaged: {}", why), path, again);
    out.resize(had + static_cast<std::size_t>(got));
    if (out.size() > most) refuse_more(path, most, "gzip", "gzip -dk");
    if (static_cast<std::size_t>(got) < step) break;
  }
  // gzread ends in the middle of a member without a word; the stream's own state knows.
  int code = Z_OK;
  gzerror(file.get(), &code);
  if (code == Z_BUF_ERROR) fail_input("the gzip file ends in the middle", path, again);
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
