// Files that are needed while memplan runs.
#pragma once

#include <string>

namespace memplan {

/// A folder below TMPDIR, for this user alone, that goes when the value goes. Folders of runs that were killed are
/// removed on the way.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace memplan
