#include "estimators/estimate/basis.h"

#include <algorithm>

namespace memplan {

namespace {

/// What follows from a fact by its evidence.
struct Consequence {
  Evidence evidence;
  Basis of_its_part;      ///< where the fact is all that a part rests on, such as the context's bytes
  Basis where_bounded;    ///< of the parts that it reaches, where it is known how far off they may be
  Basis where_unbounded;  ///< likewise, where that is not known
  bool widens;            ///< the range goes as far as is known, in both directions
};

// What a name, a line or a pattern told may be otherwise, so nothing that it reaches is exact.
constexpr std::array consequences{
    Consequence{Evidence::recorded, Basis::exact, Basis::exact, Basis::exact, false},
    Consequence{Evidence::proven_by_file, Basis::exact, Basis::exact, Basis::exact, false},
    Consequence{Evidence::chosen, Basis::exact, Basis::exact, Basis::exact, false},
    Consequence{Evidence::measured_here, Basis::calibrated, Basis::modelled, Basis::modelled, true},
    Consequence{Evidence::told_by_name, Basis::modelled, Basis::modelled, Basis::modelled, true},
    Consequence{Evidence::told_by_source_line, Basis::modelled, Basis::modelled, Basis::modelled, true},
    Consequence{Evidence::told_by_pattern, Basis::modelled, Basis::modelled, Basis::modelled, true},
    Consequence{Evidence::nearest_table_entry, Basis::modelled, Basis::modelled, Basis::modelled, true},
    Consequence{Evidence::assumed, Basis::assumed, Basis::modelled, Basis::modelled, true},
};

using PartSet = std::uint32_t;
template <class... P>
constexpr PartSet set_of(P... part) {
  return (PartSet{0} | ... | (PartSet{1} << static_cast<unsigned>(part)));
}
constexpr PartSet nothing = 0;
/// What the calls of a step make. Weights, gradients, the optimizer's state and the batch follow from shapes alone.
constexpr PartSet made_by_calls = set_of(Part::activations, Part::temporaries, Part::workspaces, Part::outputs);

/// Where a fact reaches by what it is about.
struct Reach {
  About about;
  PartSet parts;
  bool is_the_part = false;  ///< the part is nothing but this fact
  bool stated = false;       ///< reports list it among the assumptions where it is one
};

constexpr std::array reaches{
    Reach{About::program, nothing, false, true},
    Reach{About::shape, nothing},
    Reach{About::weights, nothing},
    Reach{About::op, made_by_calls},
    Reach{About::cast, made_by_calls},
    Reach{About::lifetime, made_by_calls, false, true},
    Reach{About::mask, made_by_calls},
    Reach{About::in_place, made_by_calls, false, true},
    Reach{About::mode, made_by_calls},
    Reach{About::branch, made_by_calls},
    Reach{About::autocast, made_by_calls},
    Reach{About::checkpointing, made_by_calls},
    Reach{About::function, made_by_calls},
    Reach{About::workspace, made_by_calls},
    Reach{About::loss, made_by_calls, false, true},
    Reach{About::optimizer, nothing},
    Reach{About::framework, nothing, false, true},
    Reach{About::allocator, nothing, false, true},
    Reach{About::context, set_of(Part::context), true, true},
    Reach{About::communication, set_of(Part::nccl), true, true},
    Reach{About::device, nothing, false, true},
    Reach{About::version, made_by_calls, false, true},
    Reach{About::placement, made_by_calls},
};

/// Enums and their tables are in the same order.
template <class Table, class E>
constexpr bool in_order(const Table& table, E Table::value_type::*key) {
  for (std::size_t i = 0; i < table.size(); ++i)
    if (static_cast<std::size_t>(table[i].*key) != i) return false;
  return true;
}
static_assert(in_order(consequences, &Consequence::evidence) && consequences.size() == evidence_names.size());
static_assert(in_order(reaches, &Reach::about) && reaches.size() == about_names.size());

const Consequence& consequence_of(const Fact& fact) { return consequences[static_cast<std::size_t>(fact.evidence)]; }
const Reach& reach_of(const Fact& fact) { return reaches[static_cast<std::size_t>(fact.about)]; }

Basis basis_of(const Fact& fact) {
  const Consequence& c = consequence_of(fact);
  return reach_of(fact).is_the_part ? c.of_its_part : fact.off ? c.where_bounded : c.where_unbounded;
}

/// Requested bytes are PyTorch's own; what the allocator adds comes out of a model of it.
constexpr bool is_requested(Part part) { return part < Part::rounding; }

void say(const Fact& fact, Conclusions& c) {
  if (!fact.code.empty())
    c.warnings.push_back(fact);
  else if (fact.off)
    c.unmodelled.push_back({fact.op, fact.count, fact.text, consequence_of(fact).widens ? fact.off->above : Bytes()});
  else if ((fact.evidence == Evidence::assumed || fact.evidence == Evidence::chosen ||
            fact.evidence == Evidence::measured_here) &&
           reach_of(fact).stated)
    c.assumptions.push_back(fact.text);
}

}  // namespace

Conclusions conclude(const Notes& facts, const std::vector<RangeSource>& priced) {
  Conclusions c;
  for (const Part p : {Part::rounding, Part::cached}) c.parts[static_cast<std::size_t>(p)] = Basis::modelled;
  for (const Fact& fact : facts) {
    const auto price =
        std::find_if(priced.begin(), priced.end(), [&](const RangeSource& s) { return s.about == fact.about; });
    // A part that is nothing but the fact is as sure as the fact, however far it may be off.
    const bool no_part = price != priced.end() && !price->moves_requested() && !reach_of(fact).is_the_part;
    for (std::size_t p = 0; p < part_count && !no_part; ++p)
      if (reach_of(fact).parts & set_of(p)) c.parts[p] = std::max(c.parts[p], basis_of(fact));
    // What a file lacks of the weights is not what another reading of those that it has would ask for.
    const bool adds = price == priced.end() || fact.about == About::weights;
    if (fact.off && consequence_of(fact).widens && adds) {
      c.off.below += fact.off->below;
      c.off.above += fact.off->above;
    }
    say(fact, c);
  }
  // Where another reading of the file asks for other bytes, these are a model, noted or not.
  for (const RangeSource& s : priced)
    for (std::size_t p = 0; p < part_count && s.moves_requested(); ++p)
      if (made_by_calls & set_of(p)) c.parts[p] = std::max(c.parts[p], Basis::modelled);
  for (std::size_t p = 0; p < part_count; ++p)
    if (is_requested(static_cast<Part>(p))) c.requested = std::max(c.requested, c.parts[p]);
  return c;
}

}  // namespace memplan
