// What every search for setups that fit has in common: its stages, its answer, and when a time or a verdict counts.
//
//   present setup -> bounds -> fastest -> (least) -> smallest change -> front
//
// One GPU and many differ in what a setup is made of and in which of them are worth an estimate.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/suggest.h"

namespace memplan {

class SetupSearch {
 public:
  virtual ~SetupSearch() = default;
  Suggestion run();

 protected:
  SetupSearch(const Device& device, Bytes margin, const SuggestOptions& options)
      : device_(device), margin_(margin), options_(options), rates_(rates_of(device)) {}

  // --- the stages, in this order ------------------------------------------------------------------------------------

  /// Estimated, whether it fits or not.
  virtual Candidate present() = 0;
  /// All setups; those whose bound from below is above the limit are left out.
  virtual void find_bounds() = 0;
  /// Fills `out_.fitting`, in any order.
  virtual void find_fastest() = 0;
  /// When none of the fastest fits.
  virtual void find_least() {}
  /// When the present setup does not fit: the one that fits with fewest and mildest changes.
  virtual std::optional<Candidate> find_smallest() = 0;
  /// What was estimated and fits, with a few more where the bounds promise less memory for more time.
  virtual std::vector<Candidate> find_front() = 0;
  /// Counts, and rejections that are known at the end only.
  virtual void finish() = 0;

  // --- shared -------------------------------------------------------------------------------------------------------

  Bytes limit() const { return device_.total - margin_; }
  void show(std::size_t replayed, const std::string& what) const {
    if (options_.progress) options_.progress(replayed, options_.replays, what);
  }
  /// Peak, verdict and headroom of an estimate.
  void judge_into(Candidate& c, const Estimate& e) const;
  void reject(std::string flags, std::string why, std::optional<Bytes> bytes = {}, bool bound = false) {
    out_.rejected.push_back({std::move(flags), std::move(why), bytes, bound});
  }
  void reject(const std::vector<Unavailable>& choices) {
    for (const Unavailable& u : choices) reject(u.flags, u.why);
  }

  const Device& device_;
  const Bytes margin_;
  const SuggestOptions& options_;
  const DeviceRates rates_;
  Suggestion out_;
};

double per_sample(const Candidate& candidate);

/// Times within two percent count as equal, because the model of time is not finer. `least`: what counts as no time.
double time_grade(double seconds, double least);

/// Why a setup with this verdict is not recommended.
const char* why_not(Verdict verdict);

}  // namespace memplan
