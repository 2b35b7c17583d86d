// The answer: peaks per counter and phase, the parts that add up to them, a range, and what they rest on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "estimators/base/bytes.h"
#include "estimators/estimate/basis.h"
#include "estimators/estimate/counters.h"
#include "estimators/facts/device.h"
#include "estimators/schedule/schedule.h"
#include "estimators/setup/setup.h"
#include "estimators/tape/tape.h"

namespace memplan {

struct StepSummary {
  std::int64_t step = 1;
  Counters peak;
  Bytes allocated_after;  ///< allocated_bytes.all.current when the step has ended
  Bytes requested_after;
};

struct PhasePeak {
  Phase phase;
  Bytes requested, allocated, reserved;
};

struct CategoryPart {
  Part part = Part::parameters;
  Bytes bytes;
  Basis basis = Basis::exact;
};

struct LiveTensor {
  std::string name;
  std::vector<std::int64_t> sizes;
  std::string dtype;
  Bytes requested, block;
  Category category;
  std::string op;      ///< the ATen op that made it
  std::string module;  ///< module path
  std::string reason;  ///< why it is alive at the peak
  std::int64_t born_op = -1, dies_op = -1;
};

enum class Verdict : std::uint8_t { fits, tight, no_fit, unknown };
inline constexpr std::array verdict_names{
    Named<Verdict>{"fits", Verdict::fits},
    Named<Verdict>{"tight", Verdict::tight},
    Named<Verdict>{"no-fit", Verdict::no_fit},
    Named<Verdict>{"unknown", Verdict::unknown},
};
constexpr const char* name_of(Verdict verdict) { return name_in(verdict_names, verdict); }

/// GPUs of a job that run the same program: estimated once.
struct RankClass {
  std::string name;  ///< "all ranks", "pipeline ranks 1-6 (each <= the first)"
  std::int64_t gpus = 0;
  std::int64_t blocks = 0;     ///< blocks per pipeline rank; 0 without a pipeline
  std::int64_t in_flight = 0;  ///< micro-batches (or chunks of them) that wait for their backward pass at most
  Counters peak;
  std::vector<CategoryPart> parts;
};

struct Estimate {
  std::vector<StepSummary> steps;
  Counters peak;  ///< largest of all steps
  std::int64_t peak_step = 1;
  Phase peak_phase = Phase::forward;
  std::string peak_op, peak_module;
  std::vector<PhasePeak> phases;
  std::vector<CategoryPart> parts;       ///< sum = peak.process
  std::vector<LiveTensor> live_at_peak;  ///< by size
  Notes
      facts;  ///< all that it rests on; what follows from them (estimate/basis.h) is in the parts and in the next lines
  Basis requested_basis = Basis::exact;  ///< of the bytes that the program asks for
  Counters low, high;                    ///< range of `peak`
  std::vector<RangeSource> sources;      ///< what was priced for it; bounds that facts state come on top
  std::vector<std::string> assumptions;
  std::vector<Unmodelled> unmodelled;
  Notes notes;  ///< warnings
  std::vector<Recovery> recovered;
  std::vector<RankClass> ranks;  ///< of a job on several GPUs; the estimate is that of the heaviest
  std::int64_t parameter_count = 0;
  std::int64_t trainable_count = 0;
  Bytes unlimited_process;     ///< peak.process on a device without a limit; larger than it only after retries
  std::int64_t retries = 0;    ///< allocator emptied its cache and tried again
  bool out_of_memory = false;  ///< the replay could not place an allocation on the device
  std::string out_of_memory_at;
};

/// Safety headroom unless the user gives one: 5 % of the device, at least 512 MiB.
Bytes default_margin(const Device& device);

/// What the setup wants to stay free on the device: its own margin, or the default one.
Bytes margin_of(const TrainingSetup& setup, const Device& device);

/// Judges process bytes against the device: fits when high <= usable and leaves the margin free, tight when all of the
/// range still fits, no-fit when none of it does, unknown when the limit lies inside of the range. What the context may
/// take beyond its usual figure may come out of the margin.
struct Judgement {
  Verdict verdict = Verdict::unknown;
  Bytes usable;     ///< what the driver reports for the device
  Bytes margin;     ///< wanted to stay free
  Bytes headroom;   ///< usable - peak.process; negative when it does not fit
  std::string why;  ///< one sentence
};
Judgement judge(const Estimate& estimate, const Device& device, std::optional<Bytes> margin = {});

/// What CUDA's context may take beyond its usual figure: the margin is there for it.
Bytes context_above(const Estimate& estimate);

}  // namespace memplan
