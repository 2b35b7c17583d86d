// Files that are needed while memplan runs.
#pragma once

#include <optional>
#include <string>

#include "estimators/companion/ending.h"

namespace memplan {

/// A folder below TMPDIR, for this user alone, that goes when the value goes, or when a signal ends memplan. Folders of
/// runs that were killed are removed on the way.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::optional<RemovedAtEnd> removed_;
};

}  // namespace memplan
