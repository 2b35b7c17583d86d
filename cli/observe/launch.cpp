#include "cli/observe/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "estimators/base/error.h"

namespace memplan::cli {

namespace {

volatile std::sig_atomic_t caught = 0;
void on_signal(int signal) { caught = signal; }

/// Signals that end memplan are noted while the processes run; afterwards they mean what they meant before.
class Signals {
 public:
  Signals() {
    caught = 0;
    struct sigaction action {};
    action.sa_handler = on_signal;  // without SA_RESTART: waiting is interrupted
    for (std::size_t i = 0; i < count; ++i) sigaction(which[i], &action, &before_[i]);
  }
  ~Signals() {
    for (std::size_t i = 0; i < count; ++i) sigaction(which[i], &before_[i], nullptr);
  }

 private:
  static constexpr int which[] = {SIGINT, SIGTERM, SIGHUP};
  static constexpr std::size_t count = std::size(which);
  struct sigaction before_[count];
};

/// Only in the child: never returns.
[[noreturn]] void become(const Process& process, int report) {
  setpgid(0, 0);  // a group of its own, so that all of it can be ended
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::signal(SIGPIPE, SIG_DFL);
  for (const auto& [name, value] : process.environment) setenv(name.c_str(), value.c_str(), 1);
  const int input = ::open("/dev/null", O_RDONLY);
  if (input >= 0) dup2(input, STDIN_FILENO);
  int output = STDERR_FILENO;  // stdout belongs to the report
  if (!process.log.empty()) output = ::open(process.log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (!process.own_output) dup2(output, STDOUT_FILENO);
  if (!process.log.empty()) dup2(output, STDERR_FILENO);
  std::vector<char*> words;
  for (const std::string& word : process.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  const int error = errno;
  if (::write(report, &error, sizeof error) < 0) _exit(126);
  _exit(127);
}

pid_t start(const Process& process) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) fail(ErrorKind::input, std::strerror(errno));
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    ::close(pipe_ends[0]);
    ::close(pipe_ends[1]);
    fail(ErrorKind::input, fmt::format("no process can be started: {}", std::strerror(error)));
  }
  if (pid == 0) become(process, pipe_ends[1]);
  ::close(pipe_ends[1]);
  setpgid(pid, pid);
  int error = 0;
  ssize_t n;
  while ((n = ::read(pipe_ends[0], &error, sizeof error)) < 0 && errno == EINTR) {
  }
  ::close(pipe_ends[0]);
  if (n == sizeof error) {
    waitpid(pid, nullptr, 0);
    fail(ErrorKind::usage, fmt::format("'{}' cannot be started: {}", process.command.front(), std::strerror(error)), {},
         "what stands after -- is a command and its arguments: memplan observe -- python train.py");
  }
  return pid;
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

/// Orphans of the processes come to memplan (it is their subreaper): what is left of them.
std::vector<pid_t> own_children() {
  std::vector<pid_t> found;
  std::ifstream file(fmt::format("/proc/self/task/{}/children", ::getpid()));
  for (pid_t pid; file >> pid;) found.push_back(pid);
  return found;
}

void end_groups(const std::set<pid_t>& groups, int signal) {
  for (pid_t group : groups) kill(-group, signal);
}

/// Waits for any child for a while; 0 when none has ended.
pid_t wait_for_any(int& status, std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  for (;;) {
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid != 0 || std::chrono::steady_clock::now() >= until) return pid > 0 ? pid : 0;
    usleep(10'000);
  }
}

/// Ends what is left: politely, after two seconds for good.
void end_all(std::set<pid_t> groups) {
  end_groups(groups, SIGTERM);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int status = 0;
  while (!groups.empty() && std::chrono::steady_clock::now() < until)
    if (const pid_t pid = wait_for_any(status, std::chrono::milliseconds(100))) groups.erase(pid);
  end_groups(groups, SIGKILL);
  for (int round = 0; round < 50; ++round) {
    const auto left = own_children();
    if (left.empty()) break;
    for (pid_t pid : left) kill(pid, SIGKILL);
    while (wait_for_any(status, std::chrono::milliseconds(20)) > 0) {
    }
  }
}

}  // namespace

std::vector<Ended> run_processes(const std::vector<Process>& processes, std::size_t at_once, int& interrupted) {
  const Signals signals;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::vector<Ended> ended(processes.size());
  std::map<pid_t, std::size_t> running;
  std::set<pid_t> groups;
  std::size_t next = 0;
  const auto stop = [&] { end_all(groups); };
  try {
    while (!caught && (next < processes.size() || !running.empty())) {
      while (!caught && next < processes.size() && running.size() < at_once) {
        const pid_t pid = start(processes[next]);
        running[pid] = next++;
        groups.insert(pid);
      }
      int status = 0;
      const pid_t pid = waitpid(-1, &status, 0);
      if (pid < 0 && errno != EINTR) break;
      const auto it = running.find(pid);
      if (it == running.end()) continue;
      ended[it->second].code = code_of(status);
      running.erase(it);
      // What a script leaves behind in its group would go on for ever.
      kill(-pid, SIGTERM);
      groups.erase(pid);
    }
  } catch (...) {
    stop();
    throw;
  }
  interrupted = caught;
  stop();
  return ended;
}

}  // namespace memplan::cli
