#include "estimators/runtime/torch/aten/cudnn_parts.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "estimators/base/error.h"

namespace memplan {

namespace embedded {
std::string_view cudnn_workspaces_txt();
std::string_view cudnn_zip();
}  // namespace embedded

namespace cudnn_parts {

namespace {

[[noreturn]] void broken_archive(std::string_view at) {
  fail(ErrorKind::internal, "the tables of data/cudnn cannot be unpacked", std::string(at));
}

constexpr std::string_view plain_file = "workspaces";

/// The lines of each compute capability in workspaces.txt, which is not packed; they stand together.
std::map<std::string, std::string_view, std::less<>> plain_parts() {
  std::map<std::string, std::string_view, std::less<>> out;
  std::string_view text = embedded::cudnn_workspaces_txt();
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    if (line[0] == '#') continue;
    const auto [at, first] = out.try_emplace(std::string(line.substr(0, line.find(' '))), line);
    at->second = {at->second.data(), static_cast<std::size_t>(line.end() - at->second.data())};
  }
  return out;
}

/// The archive, its list of files, and what was unpacked; searches ask from several threads.
class Parts {
 public:
  Parts() {
    const std::string_view bytes = embedded::cudnn_zip();
    zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, nullptr);
    zip_ = source ? zip_open_from_source(source, ZIP_RDONLY, nullptr) : nullptr;
    if (!zip_) {
      zip_source_free(source);
      broken_archive("not a zip archive");
    }
    const zip_int64_t count = zip_get_num_entries(zip_, 0);
    for (zip_int64_t i = 0; i < count; ++i) {
      const char* name = zip_get_name(zip_, static_cast<zip_uint64_t>(i), ZIP_FL_ENC_RAW);
      if (name) add(name);
    }
    for (const auto& [sm, text] : plain_) add(fmt::format("{}/{}", plain_file, sm));
    for (auto& [file, cards] : cards_) std::sort(cards.begin(), cards.end());
  }
  ~Parts() { zip_discard(zip_); }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  const std::vector<int>& cards(std::string_view file) const {
    const auto found = cards_.find(file);
    if (found == cards_.end()) broken_archive(file);
    return found->second;
  }

  std::string_view text(std::string_view file, std::string_view which) {
    if (file == plain_file) {
      const auto found = plain_.find(which);
      if (found == plain_.end()) broken_archive(which);
      return found->second;
    }
    const std::string name = fmt::format("{}/{}", file, which);
    const std::lock_guard lock(mutex_);
    const auto [at, missing] = texts_.try_emplace(name);
    if (missing) at->second = unpacked(name);
    return at->second;
  }

 private:
  void add(std::string_view name) {
    const auto slash = name.find('/');
    if (slash == name.npos) return;
    const std::string_view which = name.substr(slash + 1);
    int sm = 0;
    const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), sm);
    if (error == std::errc() && end == which.data() + which.size())
      cards_[std::string(name.substr(0, slash))].push_back(sm);
  }

  std::string unpacked(const std::string& name) {
    zip_stat_t about;
    if (zip_stat(zip_, name.c_str(), ZIP_FL_ENC_RAW, &about) != 0 || !(about.valid & ZIP_STAT_SIZE))
      broken_archive(name);
    std::string text(about.size, '\0');
    zip_file_t* file = zip_fopen_index(zip_, about.index, 0);
    const zip_int64_t had = file ? zip_fread(file, text.data(), text.size()) : -1;
    if (file) zip_fclose(file);
    if (had != static_cast<zip_int64_t>(text.size())) broken_archive(name);
    return text;
  }

  const std::map<std::string, std::string_view, std::less<>> plain_ = plain_parts();
  zip_t* zip_ = nullptr;
  std::map<std::string, std::vector<int>, std::less<>> cards_;
  std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> texts_;
};

Parts& parts() {
  static Parts all;
  return all;
}

}  // namespace

const std::vector<int>& cards_of(std::string_view file) { return parts().cards(file); }

std::string_view part(std::string_view file, std::string_view which) { return parts().text(file, which); }

std::string_view part(std::string_view file, int sm) { return part(file, std::to_string(sm)); }

}  // namespace cudnn_parts

}  // namespace memplan
