// The command line of memplan: words to options, options to a command, failures to exit codes.
#include <fmt/format.h>
#include <malloc.h>
#ifdef MEMPLAN_MIMALLOC
#include <mimalloc-new-delete.h>
#endif
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "cli/answer/cudnn.h"
#include "cli/commands/commands.h"
#include "cli/flags/spelling.h"
#include "cli/report/report.h"
#include "cli/terminal/output.h"
#include "cli/terminal/timeout.h"
#include "estimators/base/shell.h"
#include "estimators/companion/ending.h"

namespace memplan::cli {
namespace {

int run(const Parsed& parsed, const Options& options, const std::vector<std::string>& words) {
  if (options.version) {
    write_out(fmt::format("memplan {}\n", MEMPLAN_VERSION), {});
    return 0;
  }
  if (options.help) {
    write_out(help_text(*parsed.command, find_command(words.front()) == nullptr), {});
    return 0;
  }
  switch (options.command->id) {
    case in_explain:
      return run_explain(options);
    case in_suggest:
      return run_suggest(options);
    case in_validate:
      return run_validate(options);
    case in_size:
      return run_size(options);
    case in_sweep:
      return run_sweep(parsed, options);
    case in_devices:
      return run_devices(options);
    case in_ops:
      return run_ops(options);
    case in_observe:
      return run_observe(options);
    case in_calibrate:
      return run_calibrate(options);
    case in_export:
    case in_record:
      return run_package(options, {words.begin() + 1, words.end()});
    case in_attach:
      return run_attach(options);
    case in_completions:
      return run_completions(options);
    case in_man:
      return run_man();
    case in_schema:
      return run_schema(options);
    case in_report:
      return run_report(options);
    case in_check:
      return run_check(options);
    case in_diff:
      return run_diff(options);
    case in_baseline:
      return run_baseline(options);
    case in_config:
      return run_config(options);
    default:
      return run_estimate(options);
  }
}

/// The library's advice to give sizes ends with a command; as pasted it keeps the flags that were given.
Error with_given_flags(Error error, const Options& options) {
  const std::string bare = "memplan " + options.argument + " --";
  const std::size_t at = options.argument.empty() ? std::string::npos : error.hint.find(bare);
  if (at == std::string::npos) return error;
  const bool named = options.command && options.command->id != in_estimate;
  error.hint =
      fmt::format("{}memplan {}{}{}{}", error.hint.substr(0, at), named ? std::string(options.command->name) + " " : "",
                  shell_word(options.argument), error.hint.substr(at + bare.size() - 3), options.setup_words);
  return error;
}

/// What to do next, where the place that failed does not know better.
const char* general_advice(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return "memplan --help shows what can be given";
    case ErrorKind::input:
      return "check the file with onnx.checker, or export the model again";
    default:
      return "please report this with the command and the model";
  }
}

int report_failure(const Error& failure, const Options& options) {
  Error error = with_given_flags(spelled_for_caller(failure), options);
  if (error.hint.empty()) error.hint = general_advice(error.kind);
  const int code = exit_code_of(error.kind);
  if (options.format == Format::json) {
    write_out(json_error(error, code), {});
    return code;
  }
  Style style = make_style(options);
  // Errors go to stderr, whose terminal decides about colours.
  style.colour =
      options.color == When::always || (options.color == When::automatic && style.colour && isatty(STDERR_FILENO));
  tell(text_error(error, style));
  return code;
}

/// Errors in the words themselves are printed in the format that the words ask for.
bool asks_for_json(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] == "--format=json" || (words[i] == "--format" && i + 1 < words.size() && words[i + 1] == "json"))
      return true;
  const char* environment = std::getenv("MEMPLAN_FORMAT");
  return environment && std::string_view(environment) == "json";
}

void limit_time(const Options& options) {
  const Error error = timeout_error(options.timeout);
  if (options.format == Format::json)
    start_timeout(options.timeout, json_error(error, timeout_exit_code), STDOUT_FILENO);
  else
    start_timeout(options.timeout, text_error(error, make_style(options)), STDERR_FILENO);
}

/// What ends memplan where nothing can be made any more is written down before anything is read.
void prepare(const Options& options) {
  const Error shrunk{ErrorKind::input, "a file became shorter while it was read", {}, "try again when it is complete"};
  const Error no_memory{ErrorKind::input, "not enough host memory to process this model", {}, "try a smaller model"};
  const Error defect{ErrorKind::internal, "an error that nobody expected", {}, general_advice(ErrorKind::internal)};
  const bool json = options.format == Format::json;
  const auto words = [&](const Error& e) {
    return json ? json_error(e, exit_code_of(e.kind)) : text_error(e, Style{});
  };
  prepare_last_words({words(shrunk), words(no_memory), words(defect), json ? STDOUT_FILENO : STDERR_FILENO});
}

int main_of(const std::vector<std::string>& words) {
  Options options;
  options.format = asks_for_json(words) ? Format::json : Format::text;
  prepare(options);
  const auto result = catching([&] {
    if (words.empty()) {
      tell(short_help());
      return 2;
    }
    if (words.front() == "help") {
      const Command* command = words.size() > 1 ? find_command(words[1]) : nullptr;
      if (!command && words.size() > 1) {
        const Command* near = nearest_command(words[1]);
        fail(ErrorKind::usage, fmt::format("memplan has no command '{}'", words[1]), {},
             near ? fmt::format("did you mean memplan help {}?", near->name) : "memplan --help lists the commands");
      }
      write_out(help_text(command ? *command : *find_command("estimate"), !command), {});
      return 0;
    }
    const Parsed parsed = parse_arguments(words);
    options = parsed.command->id == in_sweep && !parsed.positionals.empty() && !parsed.has("help")
                  ? sweep_options(parsed)
                  : make_options(parsed);
    if (options.timeout > 0) limit_time(options);
    const int code = run(parsed, options, words);
    say_what_cudnn_lacked();
    return code;
  });
  return result ? *result : report_failure(result.error(), options);
}

}  // namespace
}  // namespace memplan::cli

int main(int argc, char** argv) {
  // Hundreds of thousands of small values come and go, and consolidating glibc's fast bins costs more than they save.
  mallopt(M_MXFAST, 0);
  // A reader that closes the pipe early is not an error of memplan.
  std::signal(SIGPIPE, SIG_IGN);
  memplan::guard_endings();
  try {
    return memplan::cli::main_of({argv + 1, argv + argc});
  } catch (const memplan::Failure& unwritten) {  // the document that says what is wrong
    memplan::cli::tell(memplan::cli::text_error(unwritten.error(), {}));
    return memplan::cli::exit_code_of(unwritten.error().kind);
  }
}
