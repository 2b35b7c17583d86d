#include "estimators/frontends/unpack.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <memory>

#include "estimators/base/bytes.h"
#include "estimators/base/error.h"

namespace memplan::frontends {

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
    if (got < 0) fail_input(fmt::format("the gzip file is damaged: {}", why), path, "download or pack it again");
    out.resize(had + static_cast<std::size_t>(got));
    if (out.size() > most)
      fail_input(
          fmt::format("more than {} come out of the gzip file", to_human(Bytes(static_cast<std::int64_t>(most)))), path,
          "unpack it with `gzip -dk` and name the model that comes out; weights are not read from there");
    if (static_cast<std::size_t>(got) < step) break;
  }
  // gzread ends in the middle of a member without a word; the stream's own state knows.
  int code = Z_OK;
  gzerror(file.get(), &code);
  if (code == Z_BUF_ERROR) fail_input("the gzip file ends in the middle", path, "download or pack it again");
  return out;
}

}  // namespace memplan::frontends
