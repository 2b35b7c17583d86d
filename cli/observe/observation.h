// What the processes of an observed script wrote about themselves (emulated_gpu/observer), and what follows from it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags/options.h"
#include "estimators/estimate/estimate.h"
#include "estimators/facts/device.h"

namespace memplan::cli {

inline constexpr const char* observation_schema_version = "1.2";

/// Where in a script something happened; what is not known is empty.
struct Place {
  std::string script, code, text, op;
};

struct BlockRow {
  Bytes bytes;
  std::int64_t count = 0;
  std::string kind;  ///< parameters, gradients, buffers, optimizer, step (ends with the step), other
  std::vector<std::string> names;
  std::string owner;  ///< of several modules with parameters: "LlamaForCausalLM #2, not trained"
  Place place;
};

/// One process on one device.
struct Observed {
  std::int64_t rank = 0, world = 1, device = 0, pid = 0, steps = 0, retries = 0;
  std::int64_t own_steps = 0;  ///< of the optimizer that made most
  bool ranked = false, finished = false, stopped = false;
  bool trains = false;       ///< it has an optimizer, and a backward pass ran
  bool checkpoints = false;  ///< torch.utils.checkpoint was seen at the peak
  Bytes untrained;           ///< parameters of modules that no optimizer has any of
  Bytes requested, allocated, reserved;
  Bytes driver;   ///< largest sum of what the driver handed out: reserved, and what others took
  Bytes nccl;     ///< what NCCL takes by itself on a GPU, of which the emulated one knows the groups only
  Bytes process;  ///< driver, NCCL and the CUDA context: what nvidia-smi shows
  Verdict verdict = Verdict::unknown;
  std::string torch, phase;
  Bytes peak_requested;
  Place peak_at;
  bool history_complete = true;
  std::vector<std::pair<std::string, Bytes>> by_kind;
  std::vector<BlockRow> blocks;
};

struct OutOfMemory {
  std::int64_t rank = 0, device = 0;
  Bytes wanted, allocated, reserved;
  Place place;
};

struct Read {
  std::int64_t count = 0, bytes = 0;
  Place place;
};

/// What torch.compile did, and the counters of every run of the script (of the rank that needs most).
struct Compiled {
  struct Run {
    std::string caches;  ///< cold, warm, or padded: with cold caches and matrix products padded
    Bytes requested, allocated, reserved, process;
  };
  std::int64_t graphs = 0;
  std::int64_t padding_measured = 0;  ///< matrix products that PyTorch pads or not, as it measures on a device
  struct Eager {
    std::string function, reason;
    std::int64_t count;
  };
  std::vector<std::pair<std::string, std::int64_t>> breaks;  ///< why a graph ended early, and how often
  std::vector<Eager> eager;  ///< functions that were to be compiled and run as eager code
  std::vector<Run> runs;
};

struct Observation {
  std::vector<std::string> command;
  DeviceChoice choice;
  bool device_given = false, limited = true;
  std::optional<Bytes> ran_out;     ///< process of a first run that ran out of memory; the figures are of a second one
  std::vector<std::string> advice;  ///< what to change, where it does not fit
  Bytes context, margin;
  std::vector<Observed> ranks;
  std::vector<OutOfMemory> out_of_memory;
  std::vector<Read> reads;  ///< of all ranks, by place
  std::vector<std::pair<std::string, std::int64_t>>
      unknown;                       ///< sizes that only a device knows, and how often one was asked for
  std::optional<Compiled> compiled;  ///< none: torch.compile was not used
  std::vector<std::string> notes;
  std::vector<int> exit_codes;  ///< of the processes that memplan started, in order
  std::string exception;        ///< the last uncaught one
  Verdict verdict = Verdict::unknown;
  Bytes peak;  ///< largest process
  int exit_code = 0;
};

/// Reads the files of `folder`. Failure(input) when the script did not use a GPU, or was refused.
void read_processes(const std::string& folder, Observation& o);

/// Verdicts of the ranks and of all; the exit codes must be there.
void judge_observation(Observation& o);

/// The counters of this run, for the list of runs. There must be ranks.
Compiled::Run run_of(const Observation& o, std::string caches);

/// What could be changed about a run that does not fit, by what it was made of.
std::vector<std::string> advice_of(const Observation& o);

nlohmann::ordered_json observation_json(const Observation& o);

}  // namespace memplan::cli
