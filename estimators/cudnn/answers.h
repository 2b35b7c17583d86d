// What a cuDNN has said before: a text file per version and card in the user's cache folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

namespace memplan {

class CudnnAnswers {
 public:
  /// Reads what `name`, "9.19-h100-80gb", has in $XDG_CACHE_HOME/memplan/cudnn or ~/.cache/memplan/cudnn. A file that
  /// is not there, too large or damaged counts for nothing.
  explicit CudnnAnswers(const std::string& name);
  /// Writes what is new, to a temporary file that takes the place of the old one. A folder that cannot be written to
  /// is no error: the answers are asked for again.
  ~CudnnAnswers();
  CudnnAnswers(const CudnnAnswers&) = delete;
  CudnnAnswers& operator=(const CudnnAnswers&) = delete;

  std::optional<std::int64_t> find(const std::string& question) const;
  void keep(const std::string& question, std::int64_t bytes);

 private:
  std::string path_;  ///< empty: there is no cache folder
  std::unordered_map<std::string, std::int64_t> known_;
  bool changed_ = false;
};

}  // namespace memplan
