#include "estimators/companion/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "estimators/companion/child.h"

namespace memplan {

namespace {

constexpr std::size_t kept_errors = std::size_t{16} << 10;

using Clock = std::chrono::steady_clock;

/// A started process whose input is fed and whose answers are read until it has closed both of its outputs.
class Child {
 public:
  Child(pid_t pid, Pipe& in, Pipe& out, Pipe& err, const ProcessLimits& limits)
      : pid_(pid),
        in_(in.write),
        out_(out.read),
        err_(err.read),
        limits_(limits),
        deadline_(Clock::now() + limits.time) {
    Pipe::shut(in.read);
    Pipe::shut(out.write);
    Pipe::shut(err.write);
    for (int end : {in_, out_, err_}) fcntl(end, F_SETFL, O_NONBLOCK);
  }

  void talk(const std::string& input) {
    std::size_t written = 0;
    while (!stopped_ && (out_ >= 0 || err_ >= 0)) {
      if (written == input.size()) Pipe::shut(in_);
      pollfd waits[3] = {{in_, POLLOUT, 0}, {out_, POLLIN, 0}, {err_, POLLIN, 0}};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      if (left <= 0) return stop(ProcessResult::End::timed_out);
      if (poll(waits, 3, static_cast<int>(std::min<long long>(left, 1000))) < 0 && errno != EINTR) return;
      if (in_ >= 0 && waits[0].revents) feed(input, written);
      if (out_ >= 0 && waits[1].revents) drain(out_, result_.output);
      if (err_ >= 0 && waits[2].revents) {
        drain(err_, result_.errors);
        if (result_.errors.size() > kept_errors) result_.errors.erase(0, result_.errors.size() - kept_errors);
      }
      if (result_.output.size() > limits_.output_bytes) stop(ProcessResult::End::too_much_output);
    }
  }

  /// Both ends are closed, so it is about to end; one that closed them and stays is killed.
  ProcessResult end() {
    while (!stopped_) {
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_) {
        result_.end = info.si_code == CLD_EXITED ? ProcessResult::End::exited : ProcessResult::End::signalled;
        result_.code = info.si_status;
        break;
      }
      if (Clock::now() > deadline_)
        stop(ProcessResult::End::timed_out);
      else
        usleep(1000);
    }
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return std::move(result_);
  }

 private:
  void stop(ProcessResult::End why) {
    kill(pid_, SIGKILL);
    result_.end = why;
    stopped_ = true;
  }

  void feed(const std::string& input, std::size_t& written) {
    const ssize_t n = write(in_, input.data() + written, std::min<std::size_t>(input.size() - written, 65536));
    if (n > 0) written += static_cast<std::size_t>(n);
    // A child that does not read to the end may still answer.
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
      Pipe::shut(in_), written = input.size();
  }

  /// Reads what there is; closes the end at its end.
  void drain(int& end, std::string& into) {
    char buffer[65536];
    for (;;) {
      const ssize_t n = read(end, buffer, sizeof buffer);
      if (n > 0)
        into.append(buffer, static_cast<std::size_t>(n));
      else if (n < 0 && errno == EINTR)
        continue;
      else {
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) Pipe::shut(end);
        return;
      }
      if (into.size() > limits_.output_bytes) return;
    }
  }

  pid_t pid_;
  int &in_, &out_, &err_;
  const ProcessLimits& limits_;
  Clock::time_point deadline_;
  ProcessResult result_;
  bool stopped_ = false;
};

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& input,
                          const std::vector<std::pair<std::string, std::string>>& environment,
                          const ProcessLimits& limits) {
  const IgnoreBrokenPipes ignore;
  Pipe in, out, err;
  if (arguments.empty() || in.read < 0 || out.read < 0 || err.read < 0) return {};
  const pid_t pid = start_child(arguments, environment, in.read, out.write, err.write, ChildEnds::with_the_thread);
  if (pid < 0) return {};
  Child child(pid, in, out, err, limits);
  child.talk(input);
  return child.end();
}

}  // namespace memplan
