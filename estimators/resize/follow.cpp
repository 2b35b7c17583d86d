#include "estimators/resize/follow.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "estimators/base/error.h"
#include "estimators/facts/device.h"
#include "estimators/resize/places.h"
#include "estimators/resize/sizes.h"
#include "estimators/runtime/torch/aten/arguments.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/tape/uses.h"

namespace memplan::resizing {

namespace {

/// The probe is this many times the file's size: no dimension is by chance. A sequence may not become that long where a
/// table of positions ends, so smaller ones are tried after it.
constexpr std::int64_t probes[] = {1009, 2};
constexpr std::size_t most_trials = 400;  ///< of one contradiction

/// One value under the three sizes.
struct Slot {
  std::array<Value, 3> of;
  std::vector<Factors> dims;  ///< of a tensor: what each dimension is a product of
};

std::int64_t Size::*const each[] = {&Size::file, &Size::probe, &Size::wanted};

bool follows(const Slot& s) {
  return std::any_of(s.dims.begin(), s.dims.end(), [](const Factors& f) { return product(f).follows(); });
}

/// Why a call does not go on with the sizes that were chosen so far.
struct Conflict {
  std::string why;
};

class Walk {
 public:
  Walk(const Tape& tape, const Origin& origin, std::int64_t probe, std::int64_t wanted)
      : tape_(tape),
        origin_(origin),
        size_{origin.file, probe, wanted},
        run_(run_options({}), device_),
        slots_(tape.values.size()),
        chosen_(tape.calls.size()),
        fresh_(tape.calls.size()),
        maker_(tape.values.size(), -1) {
    run_.grad_mode = false;
    run_.phantom = true;
    run_.begin_op("resize");
    known_[size_.file].insert(size_.probe);
    sizes_[size_.probe] = size_;
    for (std::size_t i = 0; i < tape.calls.size(); ++i)
      for (const ValueId out : tape.calls[i].outputs)
        if (out.valid()) maker_[static_cast<std::size_t>(out.index)] = static_cast<std::int32_t>(i);
    for (const auto& [id, axis] : origin.dims) following_.insert({id.index, axis});
    make_inputs();
  }

  void run() {
    std::int32_t next = 0;
    // A program whose results forget the size was followed wrongly, or computes nothing for each sample.
    for (int forgotten = 0;; ++forgotten) {
      for (; next < count(); ++next) {
        const std::optional<Conflict> conflict = step(next);
        if (conflict && !resolve(next)) refuse(next, conflict->why);
      }
      const std::int32_t at = where_forgotten();
      if (at < 0) return;
      if (forgotten == 4 || !remembered(at)) refuse(at, "its result does not depend on the size any more");
      next = at + 1;
    }
  }

  Followed result() {
    Followed out;
    out.tape = tape_;
    for (const auto& [value, axis] : following_) {
      out.tape.values[static_cast<std::size_t>(value)].sizes[static_cast<std::size_t>(axis)] = size_.wanted;
      const std::pair<ValueId, int> dim{{value}, axis};
      const TapeValue& v = tape_.values[static_cast<std::size_t>(value)];
      if (v.kind != ValueKind::user_input)
        out.folded.push_back(v.name);
      else if (std::find(origin_.dims.begin(), origin_.dims.end(), dim) == origin_.dims.end())
        out.more.push_back(dim);
    }
    for (std::int32_t i = 0; i < count(); ++i) {
      Call& call = out.tape.calls[static_cast<std::size_t>(i)];
      const Row* row = row_of(call);
      for (const auto& [place, size] : chosen_[static_cast<std::size_t>(i)]) {
        put(call, *row, place, size.wanted);
        ++out.replaced;
      }
      know_shapes(call);
    }
    price_open(out);
    return out;
  }

 private:
  using Choices = std::map<Place, std::optional<Size>>;  ///< none: a constant

  std::int32_t count() const { return static_cast<std::int32_t>(tape_.calls.size()); }
  const Call& call(std::int32_t i) const { return tape_.calls[static_cast<std::size_t>(i)]; }
  const Row* row_of(const Call& c) const { return c.unknown ? nullptr : run_.profile.ops->find(c.op); }
  Slot& slot(ValueId id) { return slots_[static_cast<std::size_t>(id.index)]; }

  void make_inputs() {
    for (std::size_t i = 0; i < tape_.values.size(); ++i) {
      const TapeValue& v = tape_.values[i];
      if (v.kind == ValueKind::computed) continue;
      Slot& s = slots_[i];
      s.dims.clear();
      for (std::size_t axis = 0; axis < v.sizes.size(); ++axis)
        s.dims.push_back(
            {following_.count({static_cast<std::int32_t>(i), static_cast<int>(axis)}) ? size_ : fixed(v.sizes[axis])});
      for (std::size_t k = 0; k < 3; ++k) {
        if (v.number) {
          s.of[k] = Value(*v.number);
          continue;
        }
        Dims sizes;
        for (const Factors& f : s.dims) sizes.push_back(product(f).*each[k]);
        s.of[k] = v.on_host ? run_.host(sizes, v.dtype) : run_.empty(sizes, v.dtype);
      }
    }
  }

  // --- one call -------------------------------------------------------------------------------------------------

  std::vector<ValueId> read_by(const Call& c) const {
    std::vector<ValueId> out;
    for_each_value(c, [&](ValueId id) { out.push_back(id); });
    return out;
  }

  std::optional<std::int64_t> file_number(const Arg& arg) {
    if (const auto* n = std::get_if<std::int64_t>(&arg.value)) return *n;
    if (const auto* id = std::get_if<ValueId>(&arg.value); id && slot(*id).of[0].is_number())
      return to_int(slot(*id).of[0], "a size");
    return std::nullopt;
  }

  /// Runs call `i` with the three sizes, after choosing what its numbers are.
  std::optional<Conflict> step(std::int32_t i) {
    const Call& c = call(i);
    const Row* row = row_of(c);
    auto& chosen = chosen_[static_cast<std::size_t>(i)];
    chosen.clear();
    viewed_.clear();
    if (!row) return unknown(c);
    try {
      choose(c, i, *row, chosen);
    } catch (const Conflict& conflict) {
      return conflict;
    }
    std::array<ValueList, 3> results;
    for (std::size_t k = 0; k < 3; ++k) {
      Call own = c;
      for (const auto& [place, size] : chosen) put(own, *row, place, size.*each[k]);
      const auto at = [&](ValueId id) { return slot(id).of[k]; };
      std::vector<Value> args;
      std::vector<std::pair<std::string, Value>> kwargs;
      for (const Arg& a : own.args) args.push_back(value_of(a, at));
      for (const auto& [name, a] : own.kwargs) kwargs.emplace_back(name, value_of(a, at));
      try {
        results[k] = call_op(run_, *row, std::move(args), kwargs);
      } catch (const Failure& failure) {
        // With the wanted size alone it is the model that does not take it.
        if (k == 2) refuse_wanted(i, failure.error().what);
        return Conflict{failure.error().what};
      }
      if (results[k].size() == 1 && results[k][0].is_list() && c.outputs.size() != 1)
        results[k] = ValueList(results[k][0].list());
    }
    return bind(c, i, results);
  }

  /// What an op without a row makes is known from the file alone.
  std::optional<Conflict> unknown(const Call& c) {
    for (const ValueId id : read_by(c))
      if (follows(slot(id))) return Conflict{"memplan has no row for this op"};
    for (std::size_t o = 0; o < c.outputs.size() && o < c.known_shapes.size(); ++o) {
      if (!c.outputs[o].valid()) continue;
      const auto& [dtype, sizes] = c.known_shapes[o];
      Slot& s = slot(c.outputs[o]);
      s.dims.clear();
      for (const std::int64_t n : sizes) s.dims.push_back({fixed(n)});
      for (Value& v : s.of) v = run_.empty(Dims(sizes), dtype);
    }
    return std::nullopt;
  }

  void choose(const Call& c, std::int32_t i, const Row& row, std::map<Place, Size>& chosen) {
    const auto* self = c.args.empty() ? nullptr : std::get_if<ValueId>(&c.args[0].value);
    const std::vector<Number> numbers = sizes_in(c, i, row);
    if (numbers.empty()) return;
    if (c.op.starts_with("aten::as_strided") && self && follows(slot(*self)))
      throw Conflict{"it says in numbers how far apart elements lie"};
    for (const Number& n : numbers)
      if (n.meaning == Meaning::divided) {
        divide_numbers(c, row, n.place.argument, self, chosen);
        break;
      }
    for (const Number& n : numbers) {
      if (n.meaning == Meaning::divided) continue;
      if (const auto forced = choices_.find(n.place); forced != choices_.end()) {
        if (forced->second) chosen[n.place] = *forced->second;
        continue;
      }
      if (const auto size = likely(c, n, self)) chosen[n.place] = *size;
    }
  }

  /// A view: each number is what its part of the memory order is.
  void divide_numbers(const Call& c, const Row& row, std::int32_t argument, const ValueId* self,
                      std::map<Place, Size>& chosen) {
    const Arg* arg = argument_of(c, row, argument);
    const auto* list = arg ? std::get_if<Arg::List>(&arg->value) : nullptr;
    if (!self || !list) return;
    const Slot& from = slot(*self);
    Factors flat;
    std::size_t first = 0, last = from.dims.size();
    if (argument == 2) {  // unflatten: of one dimension
      const auto dim = file_number(c.args.at(1));
      first = static_cast<std::size_t>(dim && *dim >= 0 ? *dim : dim.value_or(0) + static_cast<std::int64_t>(last));
      last = first + 1;
    }
    if (last > from.dims.size()) return;
    for (std::size_t d = first; d < last; ++d) flat.insert(flat.end(), from.dims[d].begin(), from.dims[d].end());
    std::vector<std::int64_t> to;
    std::int64_t known = 1, open = -1;
    for (const Arg& item : *list) {
      const auto n = file_number(item);
      if (!n) return;
      if (*n == -1)
        open = static_cast<std::int64_t>(to.size());
      else
        known = checked_mul(known, *n);
      to.push_back(*n);
    }
    const std::int64_t all = product(flat).file;
    if (open >= 0 && known > 0) to[static_cast<std::size_t>(open)] = all / known;
    if (all == 0) return;
    std::set<int> ends;
    for (std::size_t k = 0; k < to.size(); ++k)
      if (choices_.contains({index_of(c), argument, static_cast<std::int32_t>(k)})) ends.insert(static_cast<int>(k));
    auto parts = divide(flat, to, ends);
    if (!parts) throw Conflict{fmt::format("its numbers [{}] do not say where the size is", fmt::join(to, ", "))};
    for (std::size_t k = 0; k < to.size(); ++k) {
      const Size size = product((*parts)[k]);
      if (!size.follows() || !std::holds_alternative<std::int64_t>((*list)[k].value) ||
          static_cast<std::int64_t>(k) == open)
        continue;
      chosen[{index_of(c), argument, static_cast<std::int32_t>(k)}] = size;
    }
    viewed_.assign(from.dims.begin(), from.dims.begin() + static_cast<std::ptrdiff_t>(first));
    viewed_.insert(viewed_.end(), parts->begin(), parts->end());
    viewed_.insert(viewed_.end(), from.dims.begin() + static_cast<std::ptrdiff_t>(last), from.dims.end());
  }

  std::int32_t index_of(const Call& c) const { return static_cast<std::int32_t>(&c - tape_.calls.data()); }

  /// What a number is unless something speaks against it; none: a constant.
  std::optional<Size> likely(const Call& c, const Number& n, const ValueId* self) {
    const bool first = n.place.item == 0 && origin_.batch && n.value == size_.file;
    switch (n.meaning) {
      case Meaning::expanded: {
        if (!self) return std::nullopt;
        const Slot& from = slot(*self);
        const auto* list = std::get_if<Arg::List>(&c.args.at(1).value);
        const auto extra =
            static_cast<std::int64_t>(list ? list->size() : 0) - static_cast<std::int64_t>(from.dims.size());
        const std::int64_t d = n.place.item - extra;
        const Size have = d >= 0 ? product(from.dims[static_cast<std::size_t>(d)]) : Size{};
        if (have.follows()) return have.file == n.value ? std::optional(have) : std::nullopt;
        if (have.file != 1 || !first) return std::nullopt;
        guesses_.insert(n.place);
        return size_;
      }
      case Meaning::end: {
        const auto dim = c.args.size() > 1 ? file_number(c.args[1]) : std::optional<std::int64_t>(0);
        if (!self || !dim) return std::nullopt;
        const Slot& from = slot(*self);
        const std::int64_t d = *dim < 0 ? *dim + static_cast<std::int64_t>(from.dims.size()) : *dim;
        if (d < 0 || d >= static_cast<std::int64_t>(from.dims.size())) return std::nullopt;
        const Size have = product(from.dims[static_cast<std::size_t>(d)]);
        if (!have.follows() || n.value != have.file) return std::nullopt;
        return have;
      }
      case Meaning::made:
        if (!first) return std::nullopt;
        if (const auto* list = list_at(c, n.place); !list || list->size() < 2) return std::nullopt;
        guesses_.insert(n.place);
        return size_;
      default:
        return std::nullopt;
    }
  }

  const Arg::List* list_at(const Call& c, const Place& place) const {
    const Arg* arg = argument_of(c, *row_of(c), place.argument);
    return arg ? std::get_if<Arg::List>(&arg->value) : nullptr;
  }

  // --- what comes out -------------------------------------------------------------------------------------------

  std::optional<Conflict> bind(const Call& c, std::int32_t i, std::array<ValueList, 3>& results) {
    if (results[1].size() != results[0].size())
      return Conflict{fmt::format("it makes {} results, one for each", results[0].size())};
    std::int64_t fresh = 0;
    for (std::size_t o = 0; o < c.outputs.size(); ++o) {
      if (!c.outputs[o].valid()) continue;
      Slot& s = slot(c.outputs[o]);
      Slot made;
      for (std::size_t k = 0; k < 3; ++k) made.of[k] = o < results[k].size() ? results[k][o] : Value();
      if (made.of[0].is_tensor() && made.of[0].tensor()) {
        const Tensor &file = made.of[0].tensor(), &probe = made.of[1].tensor(), &wanted = made.of[2].tensor();
        if (!probe || !wanted || file->rank() != probe->rank() || file->rank() != wanted->rank())
          return Conflict{"its result has another number of dimensions at another size"};
        for (int d = 0; d < file->rank(); ++d)
          made.dims.push_back(factors_of(c, {file->sizes[d], probe->sizes[d], wanted->sizes[d]}, d, file->rank()));
        if (!shares(c, wanted)) fresh += wanted->bytes().count;
      } else if (made.of[0].is_list() && made.of[0].list().size() != made.of[1].list().size()) {
        return Conflict{fmt::format("it makes {} results, one for each", made.of[0].list().size())};
      }
      s = std::move(made);
    }
    fresh_[static_cast<std::size_t>(i)] = fresh;
    return std::nullopt;
  }

  bool shares(const Call& c, const Tensor& t) {
    for (const ValueId id : read_by(c))
      if (const Value& v = slot(id).of[2]; v.is_tensor() && v.tensor() && v.tensor()->storage.get() == t->storage.get())
        return true;
    return false;
  }

  /// What a dimension of a result is a product of: it is one of an input, or several neighbours, or something new.
  Factors factors_of(const Call& c, const Size& size, int d, int rank) {
    if (!size.follows()) return {size};
    if (static_cast<int>(viewed_.size()) == rank && product(viewed_[static_cast<std::size_t>(d)]) == size)
      return viewed_[static_cast<std::size_t>(d)];
    if (sizes_.emplace(size.probe, size).second) known_[size.file].insert(size.probe);
    const std::vector<ValueId> read = read_by(c);
    for (const ValueId id : read)
      for (const Factors& f : slot(id).dims)
        if (product(f) == size) return f;
    if (!read.empty()) {
      const auto& dims = slot(read[0]).dims;
      for (std::size_t a = 0; a < dims.size(); ++a) {
        Factors all = dims[a];
        for (std::size_t b = a + 1; b < dims.size(); ++b) {
          all.insert(all.end(), dims[b].begin(), dims[b].end());
          if (product(all) == size) return all;
        }
      }
    }
    return {size};
  }

  void know_shapes(Call& c) {
    if (c.unknown) return;
    for (std::size_t o = 0; o < c.outputs.size() && o < c.known_shapes.size(); ++o) {
      if (!c.outputs[o].valid()) continue;
      const Value& v = slot(c.outputs[o]).of[2];
      if (v.is_tensor() && v.tensor()) c.known_shapes[o].second = v.tensor()->sizes.vector();
    }
  }

  // --- contradictions -------------------------------------------------------------------------------------------

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
      for (const ValueId id : read_by(call(at))) {
        const std::int32_t maker = maker_[static_cast<std::size_t>(id.index)];
        if (maker >= 0)
          calls.insert(maker);
        else
          others.insert(id.index);
      }
    }
    for (const std::int32_t value : others) {
      const TapeValue& v = tape_.values[static_cast<std::size_t>(value)];
      const bool input = v.kind == ValueKind::user_input;
      for (std::size_t axis = 0; axis < v.sizes.size(); ++axis)
        if (v.sizes[axis] == size_.file && !following_.count({value, static_cast<int>(axis)}))
          out.push_back({{-1, value, static_cast<std::int32_t>(axis)}, size_, input ? 1 : 2});
    }
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    return out;
  }

  void add_alternatives(std::int32_t at, std::vector<Alternative>& out) {
    const Row* row = row_of(call(at));
    if (!row) return;
    for (const Number& n : sizes_in(call(at), at, *row)) {
      if (n.meaning == Meaning::divided) {
        // A batch of one may stand at either end of a dimension.
        if (size_.file == 1 && !choices_.contains(n.place)) out.push_back({n.place, std::nullopt, 0});
        continue;
      }
      const auto& chosen = chosen_[static_cast<std::size_t>(at)];
      const auto now = chosen.find(n.place);
      if (const auto likes = known_.find(n.value); likes != known_.end())
        for (const std::int64_t probe : likes->second)
          if (const Size& s = sizes_.at(probe); now == chosen.end() || !(now->second == s))
            out.push_back({n.place, s, 0});
      if (now != chosen.end()) out.push_back({n.place, std::nullopt, 3});
    }
  }

  /// The last call behind the outputs that reads something of the size and makes nothing of it, where no output
  /// follows.
  std::int32_t where_forgotten() {
    std::set<std::int32_t, std::greater<>> calls;
    const auto add = [&](ValueId id) {
      if (const std::int32_t maker = maker_[static_cast<std::size_t>(id.index)]; maker >= 0) calls.insert(maker);
    };
    for (const ValueId id : tape_.outputs) {
      if (slot(id).dims.empty() || follows(slot(id))) return -1;
      add(id);
    }
    while (!calls.empty()) {
      const std::int32_t at = *calls.begin();
      calls.erase(calls.begin());
      const std::vector<ValueId> read = read_by(call(at));
      if (std::any_of(read.begin(), read.end(), [&](ValueId id) { return follows(slot(id)); })) return at;
      for (const ValueId id : read) add(id);
    }
    return -1;
  }

  bool remembered(std::int32_t at) {
    const auto any_follows = [&] {
      const auto& made = call(at).outputs;
      return std::any_of(made.begin(), made.end(), [&](ValueId id) { return id.valid() && follows(slot(id)); });
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
        following_.insert({a.place.argument, a.place.item});
        make_inputs();
        from = 0;
      } else {
        choices_[a.place] = a.size;
        from = std::min(from, a.place.call);
      }
    }
    try {
      for (std::int32_t c = from; c <= i; ++c)
        if (step(c)) return false;
    } catch (const Failure&) {  // the wanted size does not go that way
      return false;
    }
    return true;
  }

  bool try_several(const std::vector<Alternative>& several, std::int32_t i) {
    const Choices choices = choices_;
    const auto following = following_;
    if (goes_with(several, i)) return true;
    choices_ = choices;
    const bool inputs = following != following_;
    following_ = following;
    if (inputs) make_inputs();
    std::int32_t from = i;
    for (const Alternative& a : several) from = std::min(from, std::max(a.place.call, 0));
    for (std::int32_t c = from; c < i; ++c) step(c);
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
      if (a.size && *a.size == size_ && places.insert(a.place).second) same.push_back(a);
    for (std::size_t x = 0; x < same.size(); ++x)
      for (std::size_t y = x + 1; y < same.size(); ++y)
        if (++trials <= most_trials && try_several({same[x], same[y]}, i)) return true;
    return same.size() > 2 && try_several(same, i);
  }

  // --- numbers that could be either -----------------------------------------------------------------------------

  std::int64_t made_in_all() const {
    std::int64_t all = 0;
    for (const std::int64_t n : fresh_) all = checked_add(all, n);
    return all;
  }

  /// Guesses that nothing contradicts, and that nothing would contradict if they were constants.
  void price_open(Followed& out) {
    std::vector<Alternative> constants;
    for (const Place& p : guesses_)
      if (!choices_.count(p) && chosen_[static_cast<std::size_t>(p.call)].count(p)) constants.push_back({p, {}});
    if (constants.empty()) return;
    const std::int64_t here = made_in_all();
    const auto price = [&](const std::vector<Alternative>& several) {
      const Choices choices = choices_;
      if (goes_with(several, count() - 1)) {
        const std::int64_t bytes = std::abs(made_in_all() - here);
        if (bytes > 0 && out.first_open.empty()) out.first_open = name_of_call(several[0].place.call);
        out.open = std::max(out.open, Bytes(bytes));
      }
      choices_ = choices;
    };
    price(constants);
    if (out.first_open.empty())
      for (std::size_t k = 0; k < constants.size() && k < 8; ++k) price({constants[k]});
  }

  // --- words ----------------------------------------------------------------------------------------------------

  std::string name_of_call(std::int32_t i) const {
    const Call& c = call(i);
    std::string out = c.op;
    if (c.scope >= 0 && !tape_.scopes[static_cast<std::size_t>(c.scope)].path.empty())
      out += fmt::format(" in {}", tape_.scopes[static_cast<std::size_t>(c.scope)].path);
    if (!c.source.empty()) out += fmt::format(" ({})", c.source);
    return out;
  }

  [[noreturn]] void refuse(std::int32_t i, const std::string& why) const {
    fail_input(fmt::format("{}: {}", name_of_call(i), why));
  }

  [[noreturn]] void refuse_wanted(std::int32_t i, const std::string& why) const {
    fail(ErrorKind::usage, fmt::format("the model does not take a {} of {}: {}: {}",
                                       origin_.batch ? "batch" : "sequence", size_.wanted, name_of_call(i), why));
  }

  const Tape& tape_;
  const Origin& origin_;
  const Size size_;
  const Device device_;
  Run run_;
  std::vector<Slot> slots_;                               ///< by value
  std::vector<std::map<Place, Size>> chosen_;             ///< by call: numbers that follow
  std::vector<std::int64_t> fresh_;                       ///< by call: bytes of what it makes, with the wanted size
  std::vector<std::int32_t> maker_;                       ///< by value: the call that makes it
  std::set<std::pair<std::int32_t, int>> following_;      ///< dimensions of inputs
  Choices choices_;                                       ///< what contradictions decided
  std::set<Place> guesses_;                               ///< numbers that `likely` took for the size without a proof
  std::map<std::int64_t, std::set<std::int64_t>> known_;  ///< sizes that were met: the file's -> probes
  std::map<std::int64_t, Size> sizes_;                    ///< by probe
  std::vector<Factors> viewed_;                           ///< dimensions of the view that is being chosen
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
