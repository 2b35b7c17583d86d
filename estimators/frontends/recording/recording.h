// A recorded program (docs/recording.md): what PyTorch asked its allocator for in the steps of one module, for some
// setups and sizes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "estimators/frontends/recording/calls.h"
#include "estimators/graph/graph.h"
#include "estimators/schedule/schedule.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan::recording {

struct StoredOp {
  std::int32_t name = 0;    ///< index into Run::strings
  std::int32_t scope = -1;  ///< index into Run::scopes
  Phase phase = Phase::setup;
  std::int32_t step = 0;
  std::int32_t first_event = 0;
};

/// Events that are the same at several batch sizes but for the bytes of each allocation.
struct Program {
  std::vector<std::int64_t> batches;             ///< ascending; {0} where the batch is not open
  std::vector<std::vector<std::int64_t>> sizes;  ///< per batch, of every allocation in the order of birth; 0: not made
  /// Per batch, of the set-up and each step: PyTorch's own requested, allocated and reserved bytes.
  std::vector<std::vector<std::array<std::int64_t, 3>>> peaks;
  std::vector<std::int32_t> streams;  ///< per allocation; empty: all on the first
  std::vector<Category> categories;
  std::vector<std::int32_t> labels;  ///< per allocation: index into Run::strings, -1 none
  std::vector<std::int32_t> events;  ///< n: allocation n - 1 is made; -n: it is freed
  std::vector<StoredOp> ops;
  std::vector<std::int32_t> step_begins;  ///< events before steps 1, 2, …
};

/// The peak of a run that the same program has under another circumstance.
struct OtherPeak {
  std::string how;                      ///< "cold", "padded"
  std::int64_t batch = 0;               ///< 0 where it is not open
  std::array<std::int64_t, 3> bytes{};  ///< requested, allocated, reserved
};

/// One setup, at all recorded sizes.
struct Run {
  TrainingSetup setup;               ///< only what a recording varies is set
  bool causes = false;               ///< every event knows the ATen call that it happened in
  std::vector<std::string> unknown;  ///< sizes that only a device knows and the emulated one was asked for
  std::vector<std::string> strings;
  std::vector<Scope> scopes;
  std::vector<Program> programs;
  std::string compiled_with;           ///< keywords of torch.compile, as they are written; empty: its defaults
  std::vector<OtherPeak> others;       ///< of a compiled program: programs has the run with warm caches
  std::shared_ptr<const Calls> calls;  ///< of one forward pass; null where the file leaves them out
  std::string why;  ///< there are none: what the script does that calls of one forward pass do not say
};

struct StoredValue {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> sizes;
  bool requires_grad = false;
  std::string same_as;         ///< tied: the first name of the tensor
  std::vector<bool> is_batch;  ///< of inputs: dimensions that are the batch
};

struct Recording {
  std::string script;    ///< "train.py --batch 4" that ran; empty: one module did, in the reference program
  std::string torch;     ///< "2.11.0+cu130"
  std::string gpu;       ///< card of the device table that PyTorch saw
  std::string evidence;  ///< "emulated device"
  std::string module_class;
  std::vector<StoredValue> parameters, buffers, inputs;
  std::vector<std::int64_t> batches;
  std::vector<Run> runs;
  std::string source;                     ///< "train.py:make_model" that made the module; empty: not told
  std::vector<std::string> source_flags;  ///< how, as the command line says it
  /// Of a recording that travels in the file of its module: that file, which answers what this one cannot.
  std::shared_ptr<const Model> plain;
  bool by_calls = false;  ///< setups that ran are worked out from the calls as well, so that all compare alike
};

}  // namespace memplan::recording
