// What may be changed in a setup: one axis per knob, the present choice first on each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "estimators/pipeline.h"

namespace memplan {

enum class Knob : std::uint8_t {
  allocator,
  implementation,
  batch,
  checkpoint,
  precision,
  attention,
  parallel,
  offload,
  weights,
  optimizer,
  adapters
};
inline constexpr int knob_count = 11;
const char* name_of(Knob knob);

/// Which knobs a search may turn.
class Knobs {
 public:
  /// Those that leave the training's result as it is, or nearly so: not the optimizer, not what is trained, not 16-bit
  /// weights.
  static Knobs usual();
  static Knobs none() { return Knobs(); }
  void allow(Knob k) { bits_ |= 1U << static_cast<int>(k); }
  void keep(Knob k) { bits_ &= ~(1U << static_cast<int>(k)); }
  bool has(Knob k) const { return bits_ >> static_cast<int>(k) & 1U; }

 private:
  std::uint32_t bits_ = 0;
};

struct Option {
  std::string flags;    ///< settings (setup/field.h) to add; empty for the present choice
  std::string caution;  ///< what it may change in the result of the training; empty where nothing
  std::function<void(TrainingSetup&)> apply;
};

struct Axis {
  Knob knob = Knob::batch;
  std::vector<Option> options;  ///< the first one is the present choice
};

/// A choice that was not offered, and why.
struct Unavailable {
  std::string flags, why;
};

struct Space {
  TrainingSetup present;
  std::vector<Axis> axes;  ///< all but the batch
  std::vector<Unavailable> unavailable;
  std::vector<std::int64_t> batches;  ///< samples per micro-batch, descending; the present one among them
  std::int64_t replica_batch = 1;     ///< samples per replica and optimizer step of the present setup
  bool open = false;                  ///< the model takes any batch
  bool splits = false;                ///< `batches` may be chosen from
  bool keeps_samples = true;          ///< a smaller micro-batch is made up for by accumulation
};

/// One setup of a space: the index of an option per axis, and a micro-batch.
struct Point {
  std::vector<std::uint8_t> choice;
  std::int64_t batch = 1;
  friend auto operator<=>(const Point&, const Point&) = default;
};

/// What a training framework has no setting for, in words, of a setup.
using Unsaid = std::function<std::vector<std::string>(const TrainingSetup&)>;

/// The first thing that `unsaid` lists of `changed` and not of `present`; empty where there is none.
std::string newly_unsaid(const Unsaid& unsaid, const TrainingSetup& present, const TrainingSetup& changed);

/// Takes out the options that the framework cannot be told, each with the reason among `unavailable`.
void keep_sayable(Space& space, const Unsaid& unsaid);

/// All divisors, the number itself first.
std::vector<std::int64_t> divisors_descending(std::int64_t n);

/// The axes that make sense for this model, setup and device. `batch` is the present micro-batch.
Space make_space(const Model& model, const TrainingSetup& present, std::int64_t batch, const Device& device,
                 const Knobs& knobs, bool keep_samples);

/// The setup of a point: micro-batch, and accumulation such that the samples per optimizer step stay.
TrainingSetup setup_at(const Space& space, const Point& point);

/// Samples per replica and optimizer step.
std::int64_t samples_at(const Space& space, const Point& point);

/// What has to be added to (or replaced in) the command for a point; empty for the present setup.
std::string flags_at(const Space& space, const Point& point);

/// Effects on the training's result, one sentence each.
std::vector<std::string> cautions_at(const Space& space, const Point& point);

/// Knobs that only ever cost a little: setups that differ in nothing else are one idea.
bool is_minor(Knob knob);

/// How much is changed: the sum of the places of the changed knobs in the order of enum Knob, plus one each.
int distance(const Space& space, const Point& point);

}  // namespace memplan
