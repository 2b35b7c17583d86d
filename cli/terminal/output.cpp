#include "cli/terminal/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/terminal/timeout.h"
#include "estimators/base/error.h"
#include "estimators/companion/ending.h"

namespace memplan::cli {

namespace {

[[noreturn]] void cannot_write(const std::string& path, int error) {
  fail_input(fmt::format("the report cannot be written: {}", std::strerror(error)), path,
             "give -o a path in a folder that exists and is writable");
}

/// 0, or the errno of what went wrong.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace

void tell(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

void write_out(std::string_view text, const std::string& path) {
  stop_timeout();
  if (path.empty() || path == "-") {
    std::fflush(stdout);
    const int error = write_all(STDOUT_FILENO, text);
    if (error == EPIPE) return;  // the reader (head, less) has seen enough
    if (error) cannot_write("standard output", error);
    return;
  }
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) cannot_write(path, EISDIR);
  if (exists && !S_ISREG(info.st_mode)) {  // a device or a pipe cannot be replaced
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) cannot_write(path, errno);
    const int error = write_all(fd, text);
    ::close(fd);
    if (error) cannot_write(path, error);
    return;
  }
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  const RemovedAtEnd removed(temporary, RemovedAtEnd::What::file);
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, exists ? info.st_mode & 0777 : 0666);
  if (fd < 0) cannot_write(path, errno);
  int error = write_all(fd, text);
  if (::close(fd) != 0 && !error) error = errno;
  if (!error && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error) {
    ::unlink(temporary.c_str());
    cannot_write(path, error);
  }
}

}  // namespace memplan::cli
