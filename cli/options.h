// What one call of the command line asks for.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags.h"
#include "cli/gate/threshold.h"
#include "cli/observe/options.h"
#include "estimators/estimate/estimate.h"
#include "estimators/graph/given_input.h"
#include "estimators/setup/setup.h"

namespace memplan::cli {

/// The words of the command line, sorted but not yet understood. Flags that were not given but are in the
/// environment as MEMPLAN_<NAME> are added; `origin` keeps the name to blame in errors.
struct Parsed {
  const Command* command = nullptr;
  std::vector<std::string> positionals;
  std::vector<std::string> command_line;  ///< what stands after --: another program and its arguments
  std::map<std::string, std::vector<std::string>, std::less<>> values;  ///< "" for switches
  std::map<std::string, std::string, std::less<>> origin;               ///< "--gpu" or "MEMPLAN_GPU"
  bool has(std::string_view flag) const { return values.find(flag) != values.end(); }
};

/// Splits the arguments (without the program's name). Failure(usage) on unknown flags and missing values.
Parsed parse_arguments(const std::vector<std::string>& arguments);

enum class Format { text, json, other };  ///< other: one that only reports have (report/formats.h)
enum class When { automatic, always, never };

struct Margin {
  std::optional<Bytes> bytes;
  double percent = 0;
  Bytes of(Bytes total) const;
};

/// A file to write beside what goes to stdout: --export md=report.md
struct Export {
  std::string format, path;
};

/// Of memplan validate.
struct ValidateOptions {
  std::string on;        ///< "emulated", "emulated:l4", "cuda", "cuda:1"; empty where --measured is given
  std::string measured;  ///< file or figure
  std::string counter = "allocated";
  double tolerance = 2;  ///< percent
  std::int64_t seconds = 600;
};

struct Options {
  const Command* command = nullptr;
  std::string argument;                ///< MODEL, device name or shell
  std::vector<std::string> arguments;  ///< all of them, where a command takes several
  TrainingSetup setup;
  std::vector<GivenInput> inputs;  ///< of files that do not describe them
  bool mode_given = false;
  std::optional<std::string> gpu;
  std::optional<Margin> margin;
  std::optional<Bytes> reserve;
  Format format = Format::text;
  std::string format_name = "text";
  std::vector<Export> exports;
  std::string output;
  std::optional<std::int64_t> top;
  bool quiet = false, ascii = false, search = true;
  When color = When::automatic;
  std::optional<std::int64_t> width;
  std::vector<Verdict> fail_on{Verdict::no_fit, Verdict::unknown};
  bool fail_on_given = false;
  std::string fail_on_origin;              ///< "--fail-on" or "MEMPLAN_FAIL_ON"
  std::vector<std::string> fail_on_words;  ///< of a gate, which judges more than the card
  std::optional<Threshold> max_peak, warn_peak, max_increase, warn_increase;
  std::string config, baseline, baseline_origin;
  std::string to;              ///< of memplan diff: the flags of the other setup
  std::optional<Bytes> limit;  ///< a peak above it asks for changes as one that does not fit does
  bool force = false, effective = false;
  bool exit_zero = false;
  bool timeline = false;  ///< every event of the run, also where the format does not need it
  bool program = false, evidence = false, unsupported = false;
  std::string tensor, module;
  std::vector<std::string> allow, keep;  ///< names of knobs (suggest)
  bool keep_samples = true, emit_flags = false;
  std::string framework = "pytorch", prices;
  std::int64_t wanted = 3;
  ObserveOptions observe;
  ValidateOptions validate;
  bool help = false, version = false;
  std::string alloc_conf;                ///< as typed, for the reference program
  std::vector<std::string> setup_flags;  ///< the flags of device, shapes and training, word by word
  std::string setup_words;               ///< the same as a shell takes them: " --batch 8 --seq 1024"
};

Options make_options(const Parsed& parsed);

/// A word as a shell takes it: quoted only where it must be.
std::string shell_word(std::string_view word);

}  // namespace memplan::cli
