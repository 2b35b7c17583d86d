// memplan observe -- python train.py: a user's script, unmodified, on the emulated GPU (docs/observe.md).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "cli/answer/answer.h"
#include "cli/commands/commands.h"
#include "cli/observe/launch.h"
#include "cli/observe/observation.h"
#include "cli/observe/observer.h"
#include "cli/observe/recording.h"
#include "cli/observe/text.h"
#include "cli/report/report.h"
#include "cli/terminal/output.h"
#include "estimators/companion/companion.h"
#include "estimators/companion/temporary_folder.h"
#include "estimators/facts/cards.h"

namespace memplan::cli {

namespace {

namespace fs = std::filesystem;

constexpr int devices_of_a_node = 8;
constexpr std::int64_t no_limit = std::int64_t{1} << 40;  // the emulated GPU has addresses for twice as much

/// The scripts may change their folder, so the path is absolute.
std::string emulated_gpu() {
  if (const std::string found = find_emulated_gpu(); !found.empty())
    return fs::absolute(found).lexically_normal().string();
  fail(ErrorKind::input, "the emulated GPU is not built", {},
       "it is made for one PyTorch: cmake --preset release -DMEMPLAN_TORCH_PYTHON=$(command -v python) && cmake "
       "--build build/release --target emulated_gpu");
}

std::string before(const std::string& first, const char* variable, char separator) {
  const char* rest = std::getenv(variable);
  return rest && *rest ? first + separator + rest : first;
}

/// The emulated GPU knows cards by name; one given by its size is an H100 with that many bytes.
std::string emulated_card(const Device& device) {
  const std::string key = card_of(device);
  return key.empty() ? "h100-80gb" : key;
}

/// What torch.compile keeps between runs of one script, in a folder of this memplan: the user's own caches stay as they
/// are, and what comes out does not depend on what they hold.
struct Caches {
  std::string folder;
  bool pad = false;  ///< matrix products are padded where PyTorch would measure whether to

  void add_to(std::map<std::string, std::string>& environment) const {
    const fs::path own = fs::path(folder) / (pad ? "padded" : "plain");
    const fs::path driver = fs::path(folder) / "driver" / "libcuda.so.1";
    fs::create_directories(driver.parent_path());
    if (!fs::exists(driver)) fs::create_symlink(emulated_gpu(), driver);
    // Triton links its own code with a library of this name, and asks ldconfig where it lies.
    if (!std::getenv("TRITON_LIBCUDA_PATH")) environment["TRITON_LIBCUDA_PATH"] = driver.parent_path().string();
    environment["TORCHINDUCTOR_CACHE_DIR"] = (own / "inductor").string();
    environment["TRITON_CACHE_DIR"] = (own / "triton").string();
    environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1";
    if (pad) environment["MEMPLAN_OBSERVE_PAD"] = "1";
  }
};

/// One run among those of a recording.
struct Taking {
  std::int64_t batch = 0;            ///< in the place of {batch}; 0: the command has none
  std::vector<std::string> earlier;  ///< what the runs before wrote
  bool last = true;                  ///< makes the recording of all
  std::string kept;                  ///< where what it writes goes; of the last one, the recording

  void add_to(std::map<std::string, std::string>& environment) const {
    environment["MEMPLAN_OBSERVE_RECORD"] = last ? "file" : "part";
    environment["MEMPLAN_OBSERVE_BATCH"] = std::to_string(batch);
    environment["MEMPLAN_OBSERVE_EARLIER"] = fmt::format("{}", fmt::join(earlier, ":"));
  }
};

std::vector<std::string> with_batch(std::vector<std::string> command, std::int64_t batch) {
  constexpr std::string_view place = "{batch}";
  for (std::string& word : command)
    for (std::size_t at; (at = word.find(place)) != std::string::npos;)
      word.replace(at, place.size(), std::to_string(batch));
  return command;
}

struct Launch {
  std::vector<Process> processes;
  std::vector<std::int64_t> ranks;
};

Launch plan(const Options& options, const Observation& o, const std::string& folder, const Caches& caches,
            const Taking* taking) {
  const ObserveOptions& w = options.observe;
  std::map<std::string, std::string> shared = {
      {"LD_PRELOAD", before(emulated_gpu(), "LD_PRELOAD", ':')},
      {"PYTHONPATH", before(folder + "/python", "PYTHONPATH", ':')},
      {"MEMPLAN_OBSERVE_TO", folder + "/found"},
      {"MEMPLAN_OBSERVE_STEPS", std::to_string(w.stop_after)},
      {"EMULATED_GPU", emulated_card(o.choice.device)},
      {"EMULATED_GPU_TOTAL", std::to_string(o.limited ? o.choice.device.total.count : no_limit)},
      {"EMULATED_GPU_CONTEXT", std::to_string(o.context.count)},
      // Frames of the script, not of a byte-code cache of the folder that goes.
      {"PYTHONDONTWRITEBYTECODE", "1"},
      {"PYTHONUNBUFFERED", "1"},
  };
  caches.add_to(shared);
  if (taking) taking->add_to(shared);
  const std::int64_t per_node = w.devices ? w.devices : std::min<std::int64_t>(w.world, devices_of_a_node);
  if (w.empty_sizes) shared["EMULATED_GPU_SIZES"] = "empty";
  if (w.world_given || w.devices) shared["EMULATED_GPU_COUNT"] = std::to_string(per_node);
  Launch run;
  run.ranks = w.ranks;
  if (run.ranks.empty())
    for (std::int64_t rank = 0; rank < w.world; ++rank) run.ranks.push_back(rank);
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    Process p{o.command, shared, i ? fmt::format("{}/log-{}", folder, run.ranks[i]) : ""};
    if (w.world_given) {
      const std::int64_t rank = run.ranks[i];
      for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::int64_t>>{
               {"RANK", rank},
               {"WORLD_SIZE", w.world},
               {"LOCAL_RANK", rank % per_node},
               {"LOCAL_WORLD_SIZE", std::min(per_node, w.world)},
               {"GROUP_RANK", rank / per_node}})
        p.environment[name] = std::to_string(value);
      p.environment["MASTER_ADDR"] = "127.0.0.1";
      p.environment["MASTER_PORT"] = "29500";
    }
    run.processes.push_back(std::move(p));
  }
  return run;
}

std::string last_lines(const std::string& path, std::size_t most) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > most) lines.erase(lines.begin());
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

/// A script that failed of itself has its own code; a verdict of --fail-on is 1.
int exit_code_for(const Options& options, const Observation& o) {
  const bool ran_out = !o.out_of_memory.empty();
  for (int code : o.exit_codes)
    if (code != 0 && !ran_out) return code;
  const bool gated =
      std::find(options.gate.fail_on.begin(), options.gate.fail_on.end(), o.verdict) != options.gate.fail_on.end();
  return gated && !options.gate.exit_zero ? 1 : 0;
}

/// One run of the script, judged. An exit code where there is nothing to report.
std::optional<int> run_script(const Options& options, Observation& o, const Caches& caches,
                              const Taking* taking = nullptr) {
  const ObserveOptions& w = options.observe;
  o.command = taking && taking->batch ? with_batch(w.command, taking->batch) : w.command;
  o.choice = device_of(options);
  o.device_given = options.gpu.has_value();
  o.context = o.choice.device.context;
  o.margin = margin_of(options.setup, o.choice.device);
  int interrupted = 0;
  const TemporaryFolder folder;
  write_observer(folder.path() + "/python");
  fs::create_directory(folder.path() + "/found");
  const Launch run = plan(options, o, folder.path(), caches, taking);
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const auto ended = run_processes(run.processes, w.jobs ? static_cast<std::size_t>(w.jobs) : cores, interrupted);
  if (interrupted) return 128 + interrupted;
  for (std::size_t i = 0; i < ended.size(); ++i) {
    o.exit_codes.push_back(ended[i].code);
    if (ended[i].code != 0 && i && ended.front().code == 0)
      tell(fmt::format("rank {} ended with {}:\n{}\n", run.ranks[i], ended[i].code,
                       last_lines(run.processes[i].log, 20)));
  }
  try {
    read_processes(folder.path() + "/found", o);
  } catch (const Failure&) {
    // Its own traceback is on stderr and says more.
    const auto code = std::find_if(o.exit_codes.begin(), o.exit_codes.end(), [](int c) { return c != 0 && c != 3; });
    if (code == o.exit_codes.end()) throw;
    tell(fmt::format("error: the script ended with exit code {} before it used a GPU\n", *code));
    return *code;
  }
  judge_observation(o);
  if (taking && taking->last)
    tell(fmt::format("{}\n", keep_recording(folder.path() + "/found", taking->kept)));
  else if (taking)
    keep_record(folder.path() + "/found", taking->kept);
  return std::nullopt;
}

/// The script as it is, or with --record at every batch; the report is of the first one, which runs last.
std::optional<int> run_first(const Options& options, Observation& o, const Caches& caches) {
  const ObserveOptions& w = options.observe;
  if (w.record.empty()) return run_script(options, o, caches);
  const TemporaryFolder folder;
  Taking taking{0, {}, true, w.record};
  for (std::size_t i = 1; i < w.batches.size(); ++i) {
    Observation other;
    other.limited = o.limited;
    const Taking part{w.batches[i], {}, false, fmt::format("{}/{}.json", folder.path(), i)};
    tell(fmt::format("memplan: batch {}\n", part.batch));
    if (const auto code = run_script(options, other, caches, &part)) return code;
    taking.earlier.push_back(part.kept);
  }
  if (!w.batches.empty()) {
    taking.batch = w.batches.front();
    tell(fmt::format("memplan: batch {}\n", taking.batch));
  }
  return run_script(options, o, caches, &taking);
}

/// A second run without a limit says what the first one, which ran out of memory, would have needed.
std::optional<int> run_again(const Options& options, Observation& o, const Caches& caches) {
  tell("memplan: memory ran out; the script starts again, without a limit\n");
  Observation whole;
  whole.limited = false;
  if (const auto code = run_script(options, whole, caches)) return code;
  whole.ran_out = o.peak;
  whole.out_of_memory = std::move(o.out_of_memory);
  // Less than the card has, and yet it ran out there: of memory in one piece.
  if (whole.verdict == Verdict::fits || whole.verdict == Verdict::tight) whole.verdict = Verdict::no_fit;
  o = std::move(whole);
  return std::nullopt;
}

/// A compiled script once more, now that the caches are warm, and once with matrix products padded where a device
/// decides that by measuring. The report is of the run that needs most.
std::optional<int> run_compiled_again(const Options& options, Observation& o, const Caches& caches) {
  std::vector<std::pair<std::string, Caches>> more = {{"warm", caches}};
  if (o.compiled->padding_measured) more.push_back({"padded", {caches.folder, true}});
  for (const auto& [name, how] : more) {
    tell(fmt::format("memplan: the script starts again, {}\n",
                     how.pad ? "with matrix products padded" : "with warm caches of torch.compile"));
    Observation again;
    again.limited = o.limited;
    if (const auto code = run_script(options, again, how)) return code;
    Compiled compiled = *o.compiled;
    compiled.runs.push_back(run_of(again, name));
    if (again.peak > o.peak) {
      again.ran_out = o.ran_out;
      o = std::move(again);
    }
    o.compiled = std::move(compiled);
  }
  return std::nullopt;
}

void note_compiled(Observation& o) {
  o.notes.push_back(
      "torch.compile's kernels were left out, and its caches were empty: allocated and reserved hold what compiling "
      "left "
      "behind. --rerun also runs the script with warm caches");
  if (o.compiled->padding_measured)
    o.notes.push_back(fmt::format(
        "whether {} matrix product{} whose sizes are no multiple of 8 {} padded is measured on a device; here {} not, "
        "which --rerun compares with the other case",
        o.compiled->padding_measured, o.compiled->padding_measured == 1 ? "" : "s",
        o.compiled->padding_measured == 1 ? "is" : "are", o.compiled->padding_measured == 1 ? "it is" : "they are"));
}

}  // namespace

int run_observe(const Options& options) {
  Observation o;
  o.limited = !options.observe.no_limit;
  const TemporaryFolder kept;
  const Caches caches{kept.path()};
  if (const auto code = run_first(options, o, caches)) return *code;
  if (options.observe.rerun && o.limited && o.verdict == Verdict::no_fit && !o.out_of_memory.empty())
    if (const auto code = run_again(options, o, caches)) return *code;
  if (o.compiled) {
    o.compiled->runs.push_back(run_of(o, o.ran_out ? "warm" : "cold"));
    if (!options.observe.rerun)
      note_compiled(o);
    else if (const auto code = run_compiled_again(options, o, caches))
      return *code;
  }
  o.advice = advice_of(o);
  o.exit_code = exit_code_for(options, o);
  const bool text = options.format == Format::text;
  if (text)
    write_out(observation_text(o, options.top ? static_cast<std::size_t>(*options.top) : 15, make_style(options)),
              options.output);
  else
    write_out(observation_json(o).dump(2) + "\n", options.output);
  if (!text || !options.output.empty())
    tell(fmt::format("memplan: verdict={} peak={} limit={}\n", name_of(o.verdict), o.peak.count,
                     o.choice.device.total.count));
  return o.exit_code;
}

}  // namespace memplan::cli
