// The calls of a tape, run on paper with three sizes at once (sizes.h): what every value is then, and which numbers
// among the arguments were taken for sizes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "estimators/facts/device.h"
#include "estimators/resize/follow.h"
#include "estimators/resize/places.h"
#include "estimators/resize/sizes.h"
#include "estimators/runtime/torch/aten/run.h"

namespace memplan::resizing {

/// One value under the three sizes.
struct Slot {
  std::array<Value, 3> of;
  std::vector<Factors> dims;  ///< of a tensor: what each dimension is a product of
};
bool follows(const Slot& slot);

/// Why a call does not go on with the sizes that were chosen so far.
struct Conflict {
  std::string why;
};

class Paper {
 public:
  using Choices = std::map<Place, std::optional<Size>>;  ///< none: a constant

  Paper(const Tape& tape, const Origin& origin, std::int64_t probe, std::int64_t wanted);

  /// Runs call `i`, after choosing what its numbers are: as `choices` has it, else what is likely. Failure(usage) where
  /// the wanted size alone does not go through.
  std::optional<Conflict> step(std::int32_t i);
  /// Values that no call makes, anew: after a change of `following`.
  void make_inputs();

  std::int32_t count() const { return static_cast<std::int32_t>(tape.calls.size()); }
  const Call& call(std::int32_t i) const { return tape.calls[static_cast<std::size_t>(i)]; }
  const Row* row_of(const Call& c) const;
  Slot& slot(ValueId id) { return slots_[static_cast<std::size_t>(id.index)]; }
  const std::map<Place, Size>& chosen(std::int32_t i) const { return chosen_[static_cast<std::size_t>(i)]; }
  std::int32_t maker(ValueId id) const { return maker_[static_cast<std::size_t>(id.index)]; }
  std::int64_t bytes_made() const;  ///< by all calls, with the wanted size
  std::string name_of_call(std::int32_t i) const;
  [[noreturn]] void refuse(std::int32_t i, const std::string& why) const;

  const Tape& tape;
  const Origin& origin;
  const Size size;                                   ///< what is followed
  Choices choices;                                   ///< what contradictions decided
  std::set<std::pair<std::int32_t, int>> following;  ///< dimensions of values that no call makes
  std::set<Place> guesses;                           ///< numbers that were taken for the size without a proof
  std::map<std::int64_t, std::vector<Size>> known;   ///< sizes that were met, by the file's

 private:
  std::optional<Conflict> unknown(const Call& c);
  void choose(const Call& c, std::int32_t i, const Row& row);
  void divide_numbers(const Call& c, std::int32_t i, const Row& row, std::int32_t argument, const ValueId* self);
  std::optional<Size> likely(const Call& c, const Row& row, const Number& n, const ValueId* self);
  std::optional<Size> expanded(const Call& c, const Number& n, const Slot& from);
  std::optional<Conflict> bind(const Call& c, std::int32_t i, const std::array<ValueList, 3>& results);
  Factors factors_of(const Call& c, const Size& s, int d, int rank);
  bool shares(const Call& c, const Tensor& t);
  std::optional<std::int64_t> file_number(const Arg& arg);
  [[noreturn]] void refuse_wanted(std::int32_t i, const std::string& why) const;

  /// The last to go: tensors of every value at several sizes are more than a run of the model makes.
  struct GivesBack {
    ~GivesBack() { TensorBody::give_back(); }
  } gives_back_;
  const Device device_;
  Run run_;
  std::vector<Slot> slots_;                    ///< by value
  std::vector<std::map<Place, Size>> chosen_;  ///< by call: numbers that follow
  std::vector<std::int64_t> fresh_;            ///< by call: bytes of what it makes, with the wanted size
  std::vector<std::int32_t> maker_;            ///< by value: the call that makes it
  std::vector<Factors> viewed_;                ///< dimensions of the view that is being chosen
};

/// The values that a call reads.
std::vector<ValueId> read_by(const Call& call);

}  // namespace memplan::resizing
