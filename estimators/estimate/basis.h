// What the facts of an estimate say about its figures: the basis of its parts, its range and its assumptions.
//
// This is the only place that decides it. Frontends, passes, rows and the step note facts (base/evidence.h); nobody
// else calls a part exact or widens a range. docs/evidence.md shows the rule as a table.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "estimators/base/evidence.h"
#include "estimators/estimate/counters.h"
#include "estimators/schedule/schedule.h"

namespace memplan {

/// What the bytes of a process are made of: the categories of a schedule in their order, then what lies around them.
enum class Part : std::uint8_t {
  parameters,
  buffers,
  gradients,
  optimizer_state,
  activations,
  temporaries,
  workspaces,
  batch,
  outputs,
  rounding,  ///< blocks are larger than what was asked for
  cached,    ///< reserved - allocated
  context,   ///< CUDA's context and the libraries
  nccl,      ///< NCCL's own buffers
};
inline constexpr std::size_t part_count = 13;
constexpr Part part_of(Category category) { return static_cast<Part>(category); }
inline constexpr auto part_names = [] {
  std::array<Named<Part>, part_count> names{};
  for (const Named<Category>& c : category_names) names[static_cast<std::size_t>(c.value)] = {c.name, part_of(c.value)};
  std::size_t next = category_count;
  for (const char* name : {"rounding", "cached", "context", "nccl"}) {
    names[next] = {name, static_cast<Part>(next)};
    ++next;
  }
  return names;
}();
constexpr const char* name_of(Part part) { return name_in(part_names, part); }

/// How a figure was found, the firmest first.
enum class Basis : std::uint8_t { exact, modelled, calibrated, assumed };
inline constexpr std::array basis_names{
    Named<Basis>{"exact", Basis::exact},
    Named<Basis>{"modelled", Basis::modelled},
    Named<Basis>{"calibrated", Basis::calibrated},
    Named<Basis>{"assumed", Basis::assumed},
};
constexpr const char* name_of(Basis b) { return name_in(basis_names, b); }

/// An op, or its workspace, that is only bounded.
struct Unmodelled {
  std::string op;
  std::int64_t count = 0;
  std::string handling;
  Bytes widened_by;
};

/// How far one thing that the file leaves open moves the figures: by trial, with it read in its other ways.
struct RangeSource {
  About about = About::lifetime;
  std::string text;       ///< what it is, for reports
  Counters below, above;  ///< how far the true figures may lie under and over the ones that were counted

  bool moves_requested() const { return below.requested.count != 0 || above.requested.count != 0; }
  bool moves() const { return moves_requested() || below.process.count != 0 || above.process.count != 0; }
};

struct Conclusions {
  std::array<Basis, part_count> parts{};
  Basis requested = Basis::exact;  ///< of all that the program asks PyTorch for: the weakest of those parts
  Effect off;                      ///< how far the figures may be below and above, by what facts state
  std::vector<std::string> assumptions;
  Notes warnings;
  std::vector<Unmodelled> unmodelled;

  Basis of(Part part) const { return parts[static_cast<std::size_t>(part)]; }
};

/// `priced`: a fact about one of these weakens the basis only where its source moves what is requested, and its own
/// bound does not count: the trial's does.
Conclusions conclude(const Notes& facts, const std::vector<RangeSource>& priced = {});

}  // namespace memplan
