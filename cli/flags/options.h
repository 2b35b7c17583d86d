// What one call of the command line asks for: the job that is estimated and the looks of the answer, which most
// commands share, and one struct for what a command has alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags/flags.h"
#include "cli/flags/parsed.h"
#include "cli/flags/threshold.h"
#include "estimators/estimate/estimate.h"
#include "estimators/graph/given_input.h"
#include "estimators/setup/setup.h"

namespace memplan::cli {

enum class Format { text, json, other };  ///< other: one that only reports have (report/formats.h)
enum class When { automatic, always, never };

/// What a report shows of the run.
enum class RunShown : std::uint8_t {
  none,
  itself,      ///< every event, and the map of the memory
  surrounded,  ///< also estimates of other sizes and cards, and of setups that fit
};

/// A file to write beside what goes to stdout: --export md=report.md
struct Export {
  std::string format, path;
};

/// What is estimated, and on what.
struct JobOptions {
  TrainingSetup setup;
  std::string torch;           ///< the version of PyTorch that is asked for; empty: the file's
  std::string cudnn = "auto";  ///< which cuDNN is asked about convolutions: "auto", "none", or where one lies
  std::string ort_version;     ///< the version of ONNX Runtime that is asked for; empty: the one that is installed
  std::string onnxruntime = "auto";       ///< which one rewrites a plain graph: "auto", "none", or a Python that has it
  std::string calibration = "auto";       ///< profile of the card that is taken: "auto", "none", or a file
  std::vector<GivenInput> inputs;         ///< of files that do not describe them
  std::vector<std::string> input_words;   ///< the same as typed
  std::vector<std::string> source_flags;  ///< how a model that is no file yet is exported, word by word
  bool mode_given = false;
  std::optional<std::string> gpu;
  std::optional<Bytes> reserve;
  std::string alloc_conf;                ///< as typed, for the reference program
  std::vector<std::string> setup_flags;  ///< the flags of device, shapes and training, word by word
  std::string setup_words;               ///< the same as a shell takes them: " --batch 8 --seq 1024"
};

/// How the answer looks, and where it goes.
struct OutputOptions {
  std::int64_t timeout = 0;  ///< seconds after which memplan gives up; 0: never
  Format format = Format::text;
  std::string format_name = "text";
  std::vector<Export> exports;
  std::string output;
  std::optional<std::int64_t> top;
  bool quiet = false, ascii = false, search = true;
  bool timeline = false;  ///< every event of the run, also where the format does not need it
  When color = When::automatic;
  std::optional<std::int64_t> width;
};

/// When the exit code is 1: of the gate's commands, and of the flags that make a gate of another command.
struct GateOptions {
  std::vector<Verdict> fail_on{Verdict::no_fit, Verdict::unknown};
  bool fail_on_given = false;
  std::string fail_on_origin;              ///< "--fail-on" or "MEMPLAN_FAIL_ON"
  std::vector<std::string> fail_on_words;  ///< of a gate, which judges more than the card
  bool exit_zero = false;
  std::optional<Threshold> max_peak, warn_peak, max_increase, warn_increase;
  std::string config, baseline, baseline_origin;
  std::optional<Bytes> limit;  ///< a peak above it asks for changes as one that does not fit does
  bool force = false;          ///< of memplan baseline write
  bool effective = false;      ///< of memplan config show
};

struct ExplainOptions {
  bool program = false, evidence = false;
  std::string tensor, module;
};

struct OpsOptions {
  bool unsupported = false;
};

struct DiffOptions {
  std::string to;  ///< the flags of the other setup
};

struct SuggestFlags {
  std::vector<std::string> allow, keep;  ///< names of knobs
  bool keep_samples = true, emit_flags = false;
  std::string framework = "pytorch";
  std::int64_t wanted = 3;
};

struct SizeOptions {
  std::string prices;
};

/// Of an estimate that PyTorch itself is to confirm.
struct ConfirmOptions {
  bool run = false;  ///< the module, by what the file says makes it
  std::string with;  ///< a recording of such a run
};

struct ValidateOptions {
  std::string on;        ///< "emulated", "emulated:l4", "cuda", "cuda:1"; empty where --measured is given
  std::string measured;  ///< file or figure
  std::string counter = "allocated";
  double tolerance = 2;  ///< percent
  std::int64_t seconds = 600;
};

struct ObserveOptions {
  std::int64_t world = 1;
  std::vector<std::int64_t> ranks;    ///< empty: all
  std::int64_t devices = 0;           ///< that one process sees; 0: min(world, 8)
  std::int64_t stop_after = 0;        ///< optimizer steps; 0: the script decides
  std::int64_t jobs = 0;              ///< processes at once; 0: as many as there are cores
  std::string record;                 ///< file for a recording of its steps; empty: none
  std::vector<std::int64_t> batches;  ///< that the command runs with in the place of {batch}; the first one is reported
  bool world_given = false, no_limit = false, rerun = false, empty_sizes = false;
  std::vector<std::string> command;
};

struct CalibrateOptions {
  std::int64_t device = 0;  ///< as PyTorch numbers them
  bool submit = false;      ///< print rows for memplan's tables instead of keeping a profile
};

struct Options : JobOptions, OutputOptions {
  const Command* command = nullptr;
  std::string argument;                ///< MODEL, device name or shell
  std::vector<std::string> arguments;  ///< all of them, where a command takes several
  bool help = false, version = false;
  GateOptions gate;
  ExplainOptions explain;
  OpsOptions ops;
  DiffOptions diff;
  SuggestFlags suggest;
  SizeOptions size;
  ConfirmOptions confirm;
  ValidateOptions validate;
  ObserveOptions observe;
  CalibrateOptions calibrate;
};

/// Every flag that was given, by the parser of its row, then what concerns several of them.
Options make_options(const Parsed& parsed);

}  // namespace memplan::cli
