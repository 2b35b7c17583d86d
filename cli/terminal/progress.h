// One line on a terminal while long work runs; nothing at all elsewhere.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace memplan::cli {

/// The line is drawn by a thread of its own, so that one long estimate, which reports nothing while it runs, shows that
/// it runs and for how long.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// What is being done. Drawn at most ten times a second, and not in the first half second, so that short work shows
  /// nothing.
  void show(const std::string& text);
  /// Takes the line away; nothing is drawn until the next show.
  void clear();

 private:
  void draw();

  bool on_ = false, stop_ = false;
  std::size_t width_ = 80;
  double started_ = 0;
  std::string text_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace memplan::cli
