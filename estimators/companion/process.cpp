#include "estimators/companion/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "estimators/companion/child.h"

namespace memplan {

namespace {

constexpr std::size_t kept_errors = std::size_t{16} << 10;

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& input,
                          const std::vector<std::pair<std::string, std::string>>& environment,
                          const ProcessLimits& limits) {
  ProcessResult result;
  const IgnoreBrokenPipes ignore;
  Pipe in, out, err;
  if (arguments.empty() || in.read < 0 || out.read < 0 || err.read < 0) return result;
  const pid_t child = start_child(arguments, environment, in.read, out.write, err.write, ChildEnds::with_the_thread);
  if (child < 0) return result;
  Pipe::shut(in.read);
  Pipe::shut(out.write);
  Pipe::shut(err.write);
  for (int end : {in.write, out.read, err.read}) fcntl(end, F_SETFL, O_NONBLOCK);

  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limits.time;
  std::size_t written = 0;
  bool stopped = false;
  const auto stop = [&](ProcessResult::End why) {
    kill(child, SIGKILL);
    result.end = why;
    stopped = true;
  };
  // Reads what there is; closes the end at its end.
  const auto drain = [&](int& end, std::string& into) {
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
      if (into.size() > limits.output_bytes) return;
    }
  };
  while (!stopped && (out.read >= 0 || err.read >= 0)) {
    if (written == input.size()) Pipe::shut(in.write);
    pollfd waits[3] = {{in.write, POLLOUT, 0}, {out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      stop(ProcessResult::End::timed_out);
      break;
    }
    if (poll(waits, 3, static_cast<int>(std::min<long long>(left, 1000))) < 0 && errno != EINTR) break;
    if (in.write >= 0 && waits[0].revents) {
      const ssize_t n = write(in.write, input.data() + written, std::min<std::size_t>(input.size() - written, 65536));
      if (n > 0) written += static_cast<std::size_t>(n);
      // A child that does not read to the end may still answer.
      else if (n < 0 && errno != EAGAIN && errno != EINTR)
        Pipe::shut(in.write), written = input.size();
    }
    if (out.read >= 0 && waits[1].revents) drain(out.read, result.output);
    if (err.read >= 0 && waits[2].revents) {
      drain(err.read, result.errors);
      if (result.errors.size() > kept_errors) result.errors.erase(0, result.errors.size() - kept_errors);
    }
    if (result.output.size() > limits.output_bytes) stop(ProcessResult::End::too_much_output);
  }
  // Both ends are closed, so it is about to end; one that closed them and stays is killed.
  while (!stopped) {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child) {
      result.end = info.si_code == CLD_EXITED ? ProcessResult::End::exited : ProcessResult::End::signalled;
      result.code = info.si_status;
      break;
    }
    if (Clock::now() > deadline)
      stop(ProcessResult::End::timed_out);
    else
      usleep(1000);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return result;
}

}  // namespace memplan
