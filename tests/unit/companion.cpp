// A child that is asked once: what comes back, what stops it, and that it does not outlive its parent.
#include "estimators/companion/companion.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "estimators/base/error.h"

using namespace memplan;
using End = ProcessResult::End;

namespace {
ProcessResult shell(const std::string& script, const std::string& input = {},
                    ProcessLimits limits = {std::chrono::seconds(20), std::size_t{1} << 26}) {
  return run_process({"/bin/sh", "-c", script}, input, {{"MEMPLAN_TEST_WORD", "hello"}}, limits);
}
}  // namespace

TEST_CASE("a child gets its input and environment, and its output and exit code come back") {
  const std::string big(3 << 20, 'x');  // more than a pipe holds, in both directions
  CHECK(shell("cat", big).output == big);
  CHECK(shell("printf %s \"$MEMPLAN_TEST_WORD\"").output == "hello");
  const ProcessResult r = shell("echo wrong >&2; exit 5");
  CHECK(r.end == End::exited);
  CHECK(r.code == 5);
  CHECK(r.errors == "wrong\n");
}

TEST_CASE("a child that does not read its input may still answer") {
  const ProcessResult r = shell("exec 0<&-; echo done", std::string(1 << 20, 'x'));
  CHECK(r.end == End::exited);
  CHECK(r.output == "done\n");
}

TEST_CASE("a child goes when it takes too long or writes too much") {
  CHECK(shell("exec sleep 30", {}, {std::chrono::seconds(1), 1000}).end == End::timed_out);
  // Closed ends do not hide a process that stays.
  CHECK(shell("exec 1>&- 2>&-; exec sleep 30", {}, {std::chrono::seconds(1), 1000}).end == End::timed_out);
  CHECK(shell("exec yes", {}, {std::chrono::seconds(20), 100000}).end == End::too_much_output);
  const ProcessResult r = shell("kill -9 $$");
  CHECK(r.end == End::signalled);
  CHECK(r.code == 9);
}

TEST_CASE("a program that does not exist ends with the shell's code for it") {
  const ProcessResult r = run_process({"/nonexistent/program"}, {}, {}, {});
  CHECK(r.end == End::exited);
  CHECK(r.code == 127);
}

TEST_CASE("a child is killed with its parent, even by SIGKILL") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t parent = fork();
  if (parent == 0) {
    // The grandchild tells its id through the pipe and would live for a minute.
    close(ends[0]);
    run_process({"/bin/sh", "-c", "echo $$ >&" + std::to_string(ends[1]) + "; exec sleep 60"}, {}, {},
                {std::chrono::seconds(60), 1000});
    _exit(0);
  }
  close(ends[1]);
  char text[32] = {};
  REQUIRE(read(ends[0], text, sizeof text - 1) > 0);
  const pid_t grandchild = std::atoi(text);
  REQUIRE(grandchild > 0);
  CHECK(kill(grandchild, 0) == 0);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  // The pipe's last writer is the grandchild: its end is the end of the file.
  CHECK(read(ends[0], text, sizeof text) == 0);
  close(ends[0]);
}

TEST_CASE("without memplan-torch one line says how to get it") {
  setenv("MEMPLAN_TORCH", "/nonexistent/memplan-torch", 1);
  try {
    ask_companion({"version", {}, {}}, nullptr);
    FAIL("an answer without a program");
  } catch (const Failure& f) {
    CHECK(f.error().kind == ErrorKind::usage);
    CHECK(f.error().hint.find("pip install torch") != std::string::npos);
  }
  unsetenv("MEMPLAN_TORCH");
}

TEST_CASE("answers of a companion: a reply, an error in words, and nonsense") {
  char script[] = "/tmp/memplan-companion-XXXXXX";
  const int fd = mkstemp(script);
  REQUIRE(fd >= 0);
  const std::string text =
      "#!/bin/sh\ncase $1 in\ngood) echo '{\"reply\": {\"x\": 1}}';;\nbad) echo '{\"error\": {\"kind\": \"input\", "
      "\"what\": \"w\", \"where\": \"p\", \"hint\": \"h\"}}'; exit 1;;\n"
      "*) echo nonsense; exit 3;;\nesac\n";
  REQUIRE(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  fchmod(fd, 0700);
  close(fd);
  setenv("MEMPLAN_TORCH", script, 1);
  CHECK(ask_companion({"good", {}, {}}, nullptr).at("x") == 1);
  const auto error_of = [](const char* name) {
    try {
      ask_companion({name, {}, {}}, nullptr);
    } catch (const Failure& f) {
      return f.error();
    }
    return Error{};
  };
  CHECK(error_of("bad").kind == ErrorKind::input);
  CHECK(error_of("bad").hint == "h");
  CHECK(error_of("odd").kind == ErrorKind::internal);
  CHECK(error_of("odd").what.find("code 3") != std::string::npos);
  unsetenv("MEMPLAN_TORCH");
  unlink(script);
}
