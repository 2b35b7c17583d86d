#include "estimators/resize/follow.h"

#include <algorithm>
#include <set>

#include "estimators/base/error.h"
#include "estimators/resize/paper.h"

namespace memplan::resizing {

namespace {

/// The probe is this many times the file's size: no dimension is by chance. A sequence may not become that long where a
/// table of positions ends, so smaller ones are tried after it.
constexpr std::int64_t probes[] = {1009, 2};
constexpr std::size_t most_trials = 400;  ///< of one contradiction

/// Runs the calls, and where they contradict a choice finds the number that has to be another one.
class Walk {
 public:
  Walk(const Tape& tape, const Origin& origin, std::int64_t probe, std::int64_t wanted)
      : paper_(tape, origin, probe, wanted) {}

  void run() {
    std::int32_t next = 0;
    // A program whose results forget the size was followed wrongly, or computes nothing for each sample.
    for (int forgotten = 0;; ++forgotten) {
      for (; next < paper_.count(); ++next) {
        const std::optional<Conflict> conflict = paper_.step(next);
        if (conflict && !resolve(next)) paper_.refuse(next, conflict->why);
      }
      const std::int32_t at = where_forgotten();
      if (at < 0) return;
      if (forgotten == 4 || !remembered(at)) paper_.refuse(at, "its result does not depend on the size any more");
      next = at + 1;
    }
  }

  Followed result() {
    Followed out;
    out.tape = paper_.tape;
    for (const auto& [value, axis] : paper_.following) {
      out.tape.values[static_cast<std::size_t>(value)].sizes[static_cast<std::size_t>(axis)] = paper_.size.wanted;
      const std::pair<ValueId, int> dim{{value}, axis};
      const TapeValue& v = paper_.tape.values[static_cast<std::size_t>(value)];
      if (v.kind != ValueKind::user_input)
        out.folded.push_back(v.name);
      else if (std::find(paper_.origin.dims.begin(), paper_.origin.dims.end(), dim) == paper_.origin.dims.end())
        out.more.push_back(dim);
    }
    for (std::int32_t i = 0; i < paper_.count(); ++i) {
      Call& call = out.tape.calls[static_cast<std::size_t>(i)];
      const Row* row = paper_.row_of(call);
      for (const auto& [place, size] : paper_.chosen(i)) {
        put(call, *row, place, size.wanted);
        ++out.replaced;
      }
      know_shapes(call);
    }
    price_open(out);
    return out;
  }

 private:
  struct Alternative {
    Place place;  ///< of a value that no call makes: call -1, argument = value, item = axis
    std::optional<Size> size;
    int rank = 0;  ///< those of a lower rank are tried first
  };

  /// Whatever could be otherwise behind a call: sizes among numbers, the nearest first, then inputs, then tensors that
  /// an exporter computed ahead, and at last numbers that were taken for sizes.
  std::vector<Alternative> alternatives_behind(std::int32_t i) {
    std::set<std::int32_t, std::greater<>> calls{i};
    std::set<std::int32_t> others;
    std::vector<Alternative> out;
    while (!calls.empty()) {
      const std::int32_t at = *calls.begin();
      calls.erase(calls.begin());
      add_alternatives(at, out);
      for (const ValueId id : read_by(paper_.call(at))) {
        const std::int32_t maker = paper_.maker(id);
        if (maker >= 0)
          calls.insert(maker);
        else
          others.insert(id.index);
      }
    }
    for (const std::int32_t value : others) {
      const TapeValue& v = paper_.tape.values[static_cast<std::size_t>(value)];
      const bool input = v.kind == ValueKind::user_input;
      for (std::size_t axis = 0; axis < v.sizes.size(); ++axis)
        if (v.sizes[axis] == paper_.size.file && !paper_.following.count({value, static_cast<int>(axis)}))
          out.push_back({{-1, value, static_cast<std::int32_t>(axis)}, paper_.size, input ? 1 : 2});
    }
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    return out;
  }

  void add_alternatives(std::int32_t at, std::vector<Alternative>& out) {
    const Row* row = paper_.row_of(paper_.call(at));
    if (!row) return;
    for (const Number& n : sizes_in(paper_.call(at), at, *row)) {
      if (n.meaning == Meaning::divided) {
        // A batch of one may stand at either end of a dimension.
        if (paper_.size.file == 1 && !paper_.choices.contains(n.place)) out.push_back({n.place, std::nullopt, 0});
        continue;
      }
      const auto& chosen = paper_.chosen(at);
      const auto now = chosen.find(n.place);
      if (const auto likes = paper_.known.find(n.value); likes != paper_.known.end())
        for (const Size& s : likes->second)
          if (now == chosen.end() || !(now->second == s)) out.push_back({n.place, s, 0});
      if (now != chosen.end()) out.push_back({n.place, std::nullopt, 3});
    }
  }

  /// The last call behind the outputs that reads something of the size and makes nothing of it, where no output
  /// follows.
  std::int32_t where_forgotten() {
    std::set<std::int32_t, std::greater<>> calls;
    const auto add = [&](ValueId id) {
      if (const std::int32_t maker = paper_.maker(id); maker >= 0) calls.insert(maker);
    };
    for (const ValueId id : paper_.tape.outputs) {
      if (paper_.slot(id).dims.empty() || follows(paper_.slot(id))) return -1;
      add(id);
    }
    while (!calls.empty()) {
      const std::int32_t at = *calls.begin();
      calls.erase(calls.begin());
      const std::vector<ValueId> read = read_by(paper_.call(at));
      if (std::any_of(read.begin(), read.end(), [&](ValueId id) { return follows(paper_.slot(id)); })) return at;
      for (const ValueId id : read) add(id);
    }
    return -1;
  }

  bool remembered(std::int32_t at) {
    const auto any_follows = [&] {
      const auto& made = paper_.call(at).outputs;
      return std::any_of(made.begin(), made.end(), [&](ValueId id) { return id.valid() && follows(paper_.slot(id)); });
    };
    for (const Alternative& a : alternatives_behind(at))
      if (a.size && try_several({a}, at) && any_follows()) return true;
    return false;
  }

  /// Whether calls from where the alternatives stand up to `i` go through with them.
  bool goes_with(const std::vector<Alternative>& several, std::int32_t i) {
    std::int32_t from = i;
    for (const Alternative& a : several) {
      if (a.place.call < 0) {
        paper_.following.insert({a.place.argument, a.place.item});
        paper_.make_inputs();
        from = 0;
      } else {
        paper_.choices[a.place] = a.size;
        from = std::min(from, a.place.call);
      }
    }
    try {
      for (std::int32_t c = from; c <= i; ++c)
        if (paper_.step(c)) return false;
    } catch (const Failure&) {  // the wanted size does not go that way
      return false;
    }
    return true;
  }

  bool try_several(const std::vector<Alternative>& several, std::int32_t i) {
    const Paper::Choices choices = paper_.choices;
    const auto following = paper_.following;
    if (goes_with(several, i)) return true;
    paper_.choices = choices;
    const bool inputs = following != paper_.following;
    paper_.following = following;
    if (inputs) paper_.make_inputs();
    std::int32_t from = i;
    for (const Alternative& a : several) from = std::min(from, std::max(a.place.call, 0));
    for (std::int32_t c = from; c < i; ++c) paper_.step(c);
    return false;
  }

  bool resolve(std::int32_t i) {
    const std::vector<Alternative> all = alternatives_behind(i);
    std::size_t trials = 0;
    for (const Alternative& a : all)
      if (++trials <= most_trials && try_several({a}, i)) return true;
    // Several numbers of one program stand for the same thing: arange(n) in rows and in columns.
    std::vector<Alternative> same;
    std::set<Place> places;
    for (const Alternative& a : all)
      if (a.size && *a.size == paper_.size && places.insert(a.place).second) same.push_back(a);
    for (std::size_t x = 0; x < same.size(); ++x)
      for (std::size_t y = x + 1; y < same.size(); ++y)
        if (++trials <= most_trials && try_several({same[x], same[y]}, i)) return true;
    return same.size() > 2 && try_several(same, i);
  }

  // --- numbers that could be either -----------------------------------------------------------------------------

  /// Guesses that nothing contradicts, and that nothing would contradict if they were constants.
  void price_open(Followed& out) {
    std::vector<Alternative> constants;
    for (const Place& p : paper_.guesses)
      if (!paper_.choices.count(p) && paper_.chosen(p.call).count(p)) constants.push_back({p, {}});
    if (constants.empty()) return;
    const std::int64_t here = paper_.bytes_made();
    const auto price = [&](const std::vector<Alternative>& several) {
      const Paper::Choices choices = paper_.choices;
      if (goes_with(several, paper_.count() - 1)) {
        const std::int64_t bytes = std::abs(paper_.bytes_made() - here);
        if (bytes > 0 && out.first_open.empty()) out.first_open = paper_.name_of_call(several[0].place.call);
        out.open = std::max(out.open, Bytes(bytes));
      }
      paper_.choices = choices;
    };
    price(constants);
    if (out.first_open.empty())
      for (std::size_t k = 0; k < constants.size() && k < 8; ++k) price({constants[k]});
  }

  /// Shapes that the file told, at the wanted size.
  void know_shapes(Call& c) {
    if (c.unknown) return;
    for (std::size_t o = 0; o < c.outputs.size() && o < c.known_shapes.size(); ++o) {
      if (!c.outputs[o].valid()) continue;
      const Value& v = paper_.slot(c.outputs[o]).of[2];
      if (v.is_tensor() && v.tensor()) c.known_shapes[o].second = v.tensor()->sizes.vector();
    }
  }

  Paper paper_;
};

}  // namespace

Followed follow(const Tape& tape, const Origin& origin, std::int64_t wanted) {
  std::vector<std::int64_t> tried;
  for (const std::int64_t times : probes) tried.push_back(checked_mul(origin.file, times));
  if (origin.file > 1) tried.push_back(origin.file / 2);
  if (origin.batch) tried.resize(1);
  std::optional<Failure> first;
  for (const std::int64_t probe : tried) try {
      Walk walk(tape, origin, probe, wanted);
      walk.run();
      return walk.result();
    } catch (const Failure& failure) {
      if (failure.error().kind != ErrorKind::input) throw;
      if (!first) first = failure;
    }
  throw *first;
}

}  // namespace memplan::resizing
