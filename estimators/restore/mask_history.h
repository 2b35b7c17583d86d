// What calls that make attention masks rest on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimators/tape/tape.h"

namespace memplan {

/// The line stands in a library that builds masks only because it is traced ("masks_while_traced").
bool in_library_of_masks(std::string_view source);

/// (queries, keys) of a mask of truths that an exporter's optimizer has worked out, [batch, 1, queries, keys].
std::optional<std::pair<std::int64_t, std::int64_t>> sizes_of_folded_mask(const Call& call);

class MaskHistory {
 public:
  explicit MaskHistory(const Tape& tape);

  /// What all calls say together that a call's results rest on, itself included.
  struct History {
    bool closed = false;  ///< it rests on a parameter, or on an input that no tokens tell: no mask
    bool built = false, causal = false, from_input = false;
    std::optional<std::int64_t> window;
    std::int64_t length = 0;

    void add(const History& o);
  };

  /// The call's line builds masks, by the name of the function that it calls or by what that does.
  bool builds_mask(const Call& call) const;
  /// Calls are in order, so that each is looked at once, however many masks there are.
  History of_value(ValueId id);
  /// The tape's calls read other values now.
  void forget() { histories_.clear(); }

  /// The index of the call that makes a value; -1: none does.
  std::int32_t maker(ValueId id) const { return id.valid() ? maker_[static_cast<std::size_t>(id.index)] : -1; }
  /// The call that makes an argument.
  const Call* made(const Call& call, std::size_t arg) const;

 private:
  void note_builders();
  History of_source(ValueId id) const;
  History of_call(const Call& call) const;
  std::optional<std::int64_t> reach(const Call& call) const;

  const Tape& tape_;
  std::vector<std::int32_t> maker_;
  std::vector<History> histories_;                           ///< of the first calls
  std::set<std::pair<std::int32_t, std::string>> builders_;  ///< scopes and lines that build masks under other names
};

}  // namespace memplan
