#include "estimators/estimate/basis.h"

#include <doctest/doctest.h>

using namespace memplan;

namespace {

Fact fact(Evidence evidence, About about, std::optional<Effect> off = {}) {
  Fact f;
  f.text = "a sentence";
  f.evidence = evidence;
  f.about = about;
  f.op = "aten::mystery";
  f.off = off;
  return f;
}

const Effect some{Bytes(300), Bytes(700)};

constexpr std::array made_by_calls{Part::activations, Part::temporaries, Part::workspaces, Part::outputs};
constexpr std::array from_shapes{Part::parameters, Part::buffers, Part::gradients, Part::optimizer_state, Part::batch};

}  // namespace

TEST_CASE("without a fact everything that is asked for is exact, and the allocator's share is modelled") {
  const Conclusions c = conclude({});
  for (const Part p : made_by_calls) CHECK(c.of(p) == Basis::exact);
  for (const Part p : from_shapes) CHECK(c.of(p) == Basis::exact);
  CHECK(c.of(Part::rounding) == Basis::modelled);
  CHECK(c.of(Part::cached) == Basis::modelled);
  CHECK(c.requested == Basis::exact);
  CHECK(c.off.below == Bytes());
  CHECK(c.off.above == Bytes());
  CHECK(c.assumptions.empty());
}

TEST_CASE("each kind of evidence alone, for an op (docs/evidence.md)") {
  struct Row {
    Evidence evidence;
    Basis basis;
    bool widens;
  };
  for (const Row& row :
       {Row{Evidence::recorded, Basis::exact, false}, Row{Evidence::proven_by_file, Basis::exact, false},
        Row{Evidence::chosen, Basis::exact, false}, Row{Evidence::told_by_name, Basis::modelled, true},
        Row{Evidence::told_by_source_line, Basis::modelled, true},
        Row{Evidence::told_by_pattern, Basis::modelled, true},
        Row{Evidence::nearest_table_entry, Basis::modelled, true}, Row{Evidence::assumed, Basis::modelled, true}}) {
    CAPTURE(name_of(row.evidence));
    const Conclusions unbounded = conclude({fact(row.evidence, About::op)});
    const Conclusions bounded = conclude({fact(row.evidence, About::op, some)});
    for (const Part p : made_by_calls) {
      CHECK(unbounded.of(p) == row.basis);
      CHECK(bounded.of(p) == row.basis);
    }
    for (const Part p : from_shapes) CHECK(bounded.of(p) == Basis::exact);
    CHECK(unbounded.requested == row.basis);
    CHECK(bounded.requested == row.basis);
    CHECK(unbounded.off.above == Bytes());
    CHECK(bounded.off.above == (row.widens ? some.above : Bytes()));
    CHECK(bounded.off.below == (row.widens ? some.below : Bytes()));
    REQUIRE(bounded.unmodelled.size() == 1);
    CHECK(bounded.unmodelled[0].widened_by == (row.widens ? some.above : Bytes()));
    CHECK(unbounded.unmodelled.empty());
    CHECK(unbounded.assumptions.empty());
  }
}

TEST_CASE("a source that was priced speaks for its facts") {
  const Notes facts{fact(Evidence::told_by_source_line, About::lifetime),
                    fact(Evidence::nearest_table_entry, About::workspace, some)};
  RangeSource names{About::lifetime, "names", {}, {}}, workspaces{About::workspace, "workspaces", {}, {}};
  // Nothing that is asked for moves by a byte, so the facts have no part in it.
  names.below.reserved = Bytes(2 << 20);
  CHECK(conclude(facts, {names, workspaces}).requested == Basis::exact);
  CHECK(conclude(facts, {names, workspaces}).off.above == Bytes());
  names.above.requested = Bytes(1);
  CHECK(conclude(facts, {names, workspaces}).requested == Basis::modelled);
  // Without a price the fact's own bound counts.
  CHECK(conclude(facts, {names}).off.above == some.above);
  CHECK(conclude(facts, {names}).off.below == some.below);
}

TEST_CASE("what a file lacks of the weights adds to readings of those that it has") {
  RangeSource frozen{About::weights, "networks that may not be trained", {}, {}};
  frozen.below.requested = frozen.below.process = Bytes(9000);
  CHECK(conclude({fact(Evidence::assumed, About::weights, some)}, {frozen}).off.above == some.above);
}

TEST_CASE("a part that is nothing but one fact has the basis of its evidence, and leaves the others alone") {
  const Conclusions guessed =
      conclude({fact(Evidence::assumed, About::context), fact(Evidence::assumed, About::communication)});
  CHECK(guessed.of(Part::context) == Basis::assumed);
  CHECK(guessed.of(Part::nccl) == Basis::assumed);
  CHECK(guessed.requested == Basis::exact);
  CHECK(guessed.assumptions.size() == 2);
  CHECK(conclude({fact(Evidence::recorded, About::context)}).of(Part::context) == Basis::exact);
  CHECK(conclude({fact(Evidence::nearest_table_entry, About::context)}).of(Part::context) == Basis::modelled);
}

TEST_CASE("the weakest fact decides, and bounds add up") {
  const Conclusions c = conclude({fact(Evidence::recorded, About::workspace), fact(Evidence::assumed, About::op, some),
                                  fact(Evidence::nearest_table_entry, About::workspace, Effect{Bytes(5), Bytes(11)}),
                                  fact(Evidence::proven_by_file, About::mask)});
  CHECK(c.of(Part::workspaces) == Basis::modelled);
  CHECK(c.requested == Basis::modelled);
  CHECK(c.off.above == Bytes(711));
  CHECK(c.unmodelled.size() == 2);
}

TEST_CASE("what is assumed is said: as a warning with a code, else among the assumptions where its subject is stated") {
  Fact warning = fact(Evidence::assumed, About::shape);
  warning.code = "MP002";
  const Conclusions c =
      conclude({warning, fact(Evidence::chosen, About::loss), fact(Evidence::chosen, About::optimizer)});
  REQUIRE(c.warnings.size() == 1);
  CHECK(c.warnings[0].code == "MP002");
  CHECK(c.assumptions == std::vector<std::string>{"a sentence"});
  CHECK(c.requested == Basis::exact);
}

TEST_CASE("equal facts are one with a count and the larger effect") {
  Notes notes;
  note(notes, fact(Evidence::assumed, About::op, Effect{Bytes(1), Bytes(9)}));
  note(notes, fact(Evidence::assumed, About::op, Effect{Bytes(4), Bytes(2)}));
  note(notes, fact(Evidence::assumed, About::op));
  REQUIRE(notes.size() == 2);
  CHECK(notes[0].count == 2);
  CHECK(notes[0].off->below == Bytes(4));
  CHECK(notes[0].off->above == Bytes(9));
}

TEST_CASE("names of parts are those of the categories, then the allocator's and the card's") {
  for (const Named<Category>& c : category_names) CHECK(std::string(name_of(part_of(c.value))) == c.name);
  CHECK(std::string(name_of(Part::nccl)) == "nccl");
  CHECK(value_in(part_names, "cached") == Part::cached);
}
