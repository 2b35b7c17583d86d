// One line on a terminal while long work runs; nothing at all elsewhere.
#pragma once

#include <string>

namespace memplan::cli {

class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Replaces the line; at most ten times a second, and not in the first half second, so that short work shows nothing.
  void show(const std::string& text);
  void clear();

 private:
  bool on_ = false, shown_ = false;
  std::size_t width_ = 80;
  double started_ = 0, last_ = 0;
};

}  // namespace memplan::cli
