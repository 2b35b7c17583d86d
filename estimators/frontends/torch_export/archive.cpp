#include "estimators/frontends/torch_export/archive.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>

#include "estimators/base/error.h"

namespace memplan::torch_export {

namespace {

zip_t* handle(const std::shared_ptr<void>& zip) { return static_cast<zip_t*>(zip.get()); }

bool leaves_archive(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != std::string_view::npos ||
      name.find('\0') != std::string_view::npos)
    return true;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t slash = std::min(name.find('/', at), name.size());
    if (name.substr(at, slash - at) == "..") return true;
    at = slash + 1;
  }
  return false;
}

}  // namespace

Archive::Archive(const std::string& path) : path_(path) {
  int code = 0;
  zip_t* zip = zip_open(path.c_str(), ZIP_RDONLY, &code);
  if (!zip) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string why = zip_error_strerror(&error);
    zip_error_fini(&error);
    fail_input(fmt::format("the file is not a complete zip archive: {}", why), path,
               "it may be truncated; copy or download it again");
  }
  zip_ = std::shared_ptr<void>(zip, [](void* z) { zip_discard(static_cast<zip_t*>(z)); });
  list();
}

Archive::Archive(std::string_view bytes, const std::string& where) : path_(where) {
  auto kept = std::make_shared<std::string>(bytes);
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(kept->data(), kept->size(), 0, &error);
  zip_t* zip = source ? zip_open_from_source(source, ZIP_RDONLY, &error) : nullptr;
  if (!zip) {
    const std::string why = zip_error_strerror(&error);
    zip_source_free(source);
    zip_error_fini(&error);
    fail_input(fmt::format("it is not a complete zip archive: {}", why), where);
  }
  zip_ = std::shared_ptr<void>(zip, [kept](void* z) { zip_discard(static_cast<zip_t*>(z)); });
  list();
}

void Archive::list() {
  zip_t* const zip = handle(zip_);
  const std::string& path = path_;
  const zip_int64_t count = zip_get_num_entries(zip, 0);
  if (count > max_members)
    fail_input(fmt::format("the archive lists {} members, more than any model has", count), path);
  members_.reserve(static_cast<std::size_t>(count));
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t s;
    if (zip_stat_index(zip, static_cast<zip_uint64_t>(i), ZIP_FL_ENC_RAW, &s) != 0 || !(s.valid & ZIP_STAT_NAME) ||
        !(s.valid & ZIP_STAT_SIZE))
      fail_input(fmt::format("member {} of the archive has no readable name or size", i), path);
    if (leaves_archive(s.name))
      fail_input("the archive has a member whose name points outside of it", fmt::format("{}: '{}'", path, s.name),
                 "no exporter writes such a file; do not unpack it");
    const auto bytes = static_cast<std::int64_t>(std::min<zip_uint64_t>(s.size, INT64_MAX));
    members_.push_back({s.name, bytes,
                        s.valid & ZIP_STAT_COMP_SIZE
                            ? static_cast<std::int64_t>(std::min<zip_uint64_t>(s.comp_size, INT64_MAX))
                            : bytes,
                        i, s.valid & ZIP_STAT_CRC ? s.crc : 0});
  }
  std::sort(members_.begin(), members_.end(), [](const Member& a, const Member& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(members_.begin(), members_.end(),
                                        [](const Member& a, const Member& b) { return a.name == b.name; });
  if (twice != members_.end())
    fail_input("the archive has two members of one name", fmt::format("{}: '{}'", path, twice->name));
}

const Archive::Member* Archive::find(std::string_view name) const {
  const auto it = std::lower_bound(members_.begin(), members_.end(), name,
                                   [](const Member& m, std::string_view n) { return m.name < n; });
  return it != members_.end() && it->name == name ? &*it : nullptr;
}

std::string Archive::read(const Member& member, std::int64_t limit) const {
  const std::string where = path_ + ": " + member.name;
  if (member.bytes > limit)
    fail_input(
        fmt::format("a member of the archive is {} bytes long where at most {} are expected", member.bytes, limit),
        where);
  zip_file_t* file = zip_fopen_index(handle(zip_), static_cast<zip_uint64_t>(member.index), 0);
  if (!file) fail_input(fmt::format("a member of the archive cannot be read: {}", zip_strerror(handle(zip_))), where);
  const std::shared_ptr<zip_file_t> closer(file, [](zip_file_t* f) { zip_fclose(f); });
  std::string out(static_cast<std::size_t>(member.bytes), '\0');
  std::size_t at = 0;
  while (at < out.size()) {
    const zip_int64_t n = zip_fread(file, out.data() + at, out.size() - at);
    if (n <= 0) break;
    at += static_cast<std::size_t>(n);
  }
  // One byte more than the directory promises: libzip checks length and CRC when the end is read.
  char extra = 0;
  const zip_int64_t rest = at == out.size() ? zip_fread(file, &extra, 1) : -1;
  if (rest != 0)
    fail_input("a member of the archive is damaged: its contents do not match its length or checksum", where,
               "copy or download the file again");
  return out;
}

}  // namespace memplan::torch_export
