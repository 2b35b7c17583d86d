// Files that a test makes and that go with it.
#pragma once

#include <stdlib.h>
#include <unistd.h>
#include <zip.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

namespace memplan {

using Members = std::map<std::string, std::string>;

class ScratchFile {
 public:
  explicit ScratchFile(const std::string& bytes = {}, const std::string& folder = "/tmp") {
    path_ = folder + "/memplan-test-XXXXXX";
    const int fd = mkstemp(path_.data());
    if (fd < 0) throw std::runtime_error("no scratch file");
    close(fd);
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~ScratchFile() { std::remove(path_.c_str()); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class ScratchFolder {
 public:
  ScratchFolder() {
    char name[] = "/tmp/memplan-test-XXXXXX";
    if (!mkdtemp(name)) throw std::runtime_error("no scratch folder");
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class ScratchArchive : public ScratchFile {
 public:
  explicit ScratchArchive(const Members& members) {
    int error = 0;
    zip_t* zip = zip_open(path().c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error);
    if (!zip) throw std::runtime_error("no scratch archive");
    for (const auto& [name, data] : members)
      zip_file_add(zip, name.c_str(), zip_source_buffer(zip, data.data(), data.size(), 0), ZIP_FL_ENC_UTF_8);
    if (zip_close(zip) != 0) throw std::runtime_error("scratch archive not written");
  }
};

}  // namespace memplan
