#include "estimators/companion/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

extern char** environ;

namespace memplan {

namespace {

/// NAME=value of the child, made before the fork: afterwards nothing may allocate.
std::vector<std::string> merged_environment(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> out;
  const auto overridden = [&](std::string_view entry) {
    const auto name = entry.substr(0, entry.find('='));
    return std::any_of(added.begin(), added.end(), [&](const auto& a) { return a.first == name; });
  };
  for (char** e = environ; *e; ++e)
    if (!overridden(*e)) out.emplace_back(*e);
  for (const auto& [name, value] : added) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& t : texts) out.push_back(t.data());
  out.push_back(nullptr);
  return out;
}

/// `parent`: whom to die with; 0: nobody.
[[noreturn]] void become(int in, int out, int err, pid_t parent, const char* path, char* const* arguments,
                         char* const* environment) {
  // The signal is sent when the parent is gone; it may be gone already.
  if (parent) prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (parent && getppid() != parent) _exit(126);
  if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(126);
  signal(SIGPIPE, SIG_DFL);
  execvpe(path, arguments, environment);
  _exit(127);
}

}  // namespace

Pipe::Pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) == 0) read = ends[0], write = ends[1];
}

Pipe::~Pipe() {
  shut(read);
  shut(write);
}

void Pipe::shut(int& end) {
  if (end >= 0) close(end);
  end = -1;
}

IgnoreBrokenPipes::IgnoreBrokenPipes() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before_);
}

IgnoreBrokenPipes::~IgnoreBrokenPipes() { sigaction(SIGPIPE, &before_, nullptr); }

pid_t start_child(const std::vector<std::string>& arguments,
                  const std::vector<std::pair<std::string, std::string>>& environment, int in, int out, int err,
                  ChildEnds ends) {
  std::vector<std::string> argument_texts = arguments, environment_texts = merged_environment(environment);
  const std::vector<char*> argv = pointers(argument_texts), envp = pointers(environment_texts);
  const pid_t parent = ends == ChildEnds::with_the_thread ? getpid() : 0;
  const pid_t child = fork();
  if (child == 0) become(in, out, err, parent, argv[0], argv.data(), envp.data());
  return child;
}

}  // namespace memplan
