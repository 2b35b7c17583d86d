#include "estimators/resize/paper.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/base/error.h"
#include "estimators/runtime/torch/aten/arguments.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/tape/uses.h"

namespace memplan::resizing {

namespace {

std::int64_t Size::*const each[] = {&Size::file, &Size::probe, &Size::wanted};

/// The place of `place.item` in a list, or null.
const Arg::List* list_at(const Call& c, const Row& row, std::int32_t argument) {
  const Arg* arg = argument_of(c, row, argument);
  return arg ? std::get_if<Arg::List>(&arg->value) : nullptr;
}

std::size_t wrapped(std::int64_t dim, std::size_t rank) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim);
}

}  // namespace

bool follows(const Slot& s) {
  return std::any_of(s.dims.begin(), s.dims.end(), [](const Factors& f) { return product(f).follows(); });
}

std::vector<ValueId> read_by(const Call& c) {
  std::vector<ValueId> out;
  for_each_value(c, [&](ValueId id) { out.push_back(id); });
  return out;
}

Paper::Paper(const Tape& t, const Origin& o, std::int64_t probe, std::int64_t wanted)
    : tape(t),
      origin(o),
      size{o.file, probe, wanted},
      run_(run_options({}), device_),
      slots_(t.values.size()),
      chosen_(t.calls.size()),
      fresh_(t.calls.size()),
      maker_(t.values.size(), -1) {
  run_.grad_mode = false;
  run_.phantom = true;
  run_.begin_op("resize");
  known[size.file].push_back(size);
  for (std::int32_t i = 0; i < count(); ++i)
    for (const ValueId out : call(i).outputs)
      if (out.valid()) maker_[static_cast<std::size_t>(out.index)] = i;
  for (const auto& [id, axis] : o.dims) following.insert({id.index, axis});
  make_inputs();
}

const Row* Paper::row_of(const Call& c) const { return c.unknown ? nullptr : run_.profile.ops->find(c.op); }

void Paper::make_inputs() {
  for (std::size_t i = 0; i < tape.values.size(); ++i) {
    const TapeValue& v = tape.values[i];
    if (v.kind == ValueKind::computed) continue;
    Slot& s = slots_[i];
    s.dims.clear();
    for (std::size_t axis = 0; axis < v.sizes.size(); ++axis)
      s.dims.push_back(
          {following.contains({static_cast<std::int32_t>(i), static_cast<int>(axis)}) ? size : fixed(v.sizes[axis])});
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

std::optional<std::int64_t> Paper::file_number(const Arg& arg) {
  if (const auto* n = std::get_if<std::int64_t>(&arg.value)) return *n;
  if (const auto* id = std::get_if<ValueId>(&arg.value); id && slot(*id).of[0].is_number())
    return to_int(slot(*id).of[0], "a size");
  return std::nullopt;
}

std::optional<Conflict> Paper::step(std::int32_t i) {
  const Call& c = call(i);
  const Row* row = row_of(c);
  auto& chosen = chosen_[static_cast<std::size_t>(i)];
  chosen.clear();
  viewed_.clear();
  if (!row) return unknown(c);
  try {
    choose(c, i, *row);
  } catch (const Conflict& conflict) {
    return conflict;
  }
  std::array<ValueList, 3> results;
  for (std::size_t k = 0; k < 3; ++k) {
    if (k == 2 && size.wanted == size.file) {  // as the file has it: nothing to run again
      results[2] = results[0];
      break;
    }
    std::optional<Call> changed;
    if (!chosen.empty()) changed = c;
    for (const auto& [place, s] : chosen) put(*changed, *row, place, s.*each[k]);
    const Call& own = changed ? *changed : c;
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
std::optional<Conflict> Paper::unknown(const Call& c) {
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

void Paper::choose(const Call& c, std::int32_t i, const Row& row) {
  const std::vector<Number> numbers = sizes_in(c, i, row);
  if (numbers.empty()) return;
  const auto* self = c.args.empty() ? nullptr : std::get_if<ValueId>(&c.args[0].value);
  auto& chosen = chosen_[static_cast<std::size_t>(i)];
  bool divided = false;
  for (const Number& n : numbers) {
    if (n.meaning == Meaning::divided) {
      if (!divided) divide_numbers(c, i, row, n.place.argument, self);
      divided = true;
    } else if (const auto forced = choices.find(n.place); forced != choices.end()) {
      if (forced->second) chosen[n.place] = *forced->second;
    } else if (const auto s = likely(c, row, n, self)) {
      chosen[n.place] = *s;
    }
  }
}

/// A view: each number is what its part of the memory order is.
void Paper::divide_numbers(const Call& c, std::int32_t i, const Row& row, std::int32_t argument, const ValueId* self) {
  const auto* list = list_at(c, row, argument);
  if (!self || !list) return;
  const Slot& from = slot(*self);
  std::size_t first = 0, last = from.dims.size();
  if (argument == 2) {  // unflatten: of one dimension
    first = wrapped(file_number(c.args.at(1)).value_or(0), last);
    last = first + 1;
  }
  if (last > from.dims.size()) return;
  Factors flat;
  for (std::size_t d = first; d < last; ++d) flat.insert(flat.end(), from.dims[d].begin(), from.dims[d].end());
  std::vector<std::int64_t> to;
  std::set<int> ends;
  std::int64_t rest = product(flat).file;
  if (rest == 0) return;
  std::size_t open = list->size();
  for (const Arg& item : *list) {
    const auto n = file_number(item);
    if (!n) return;
    if (choices.contains({i, argument, static_cast<std::int32_t>(to.size())})) ends.insert(static_cast<int>(to.size()));
    if (*n == -1) open = to.size();
    if (*n > 0) rest /= *n;
    to.push_back(*n);
  }
  if (open < to.size()) to[open] = rest;
  const auto parts = divide(flat, to, ends);
  if (!parts) throw Conflict{fmt::format("its numbers [{}] do not say where the size is", fmt::join(to, ", "))};
  for (std::size_t k = 0; k < to.size(); ++k) {
    const Size s = product((*parts)[k]);
    if (s.follows() && k != open && std::holds_alternative<std::int64_t>((*list)[k].value))
      chosen_[static_cast<std::size_t>(i)][{i, argument, static_cast<std::int32_t>(k)}] = s;
  }
  const auto at = [&](std::size_t d) { return from.dims.begin() + static_cast<std::ptrdiff_t>(d); };
  viewed_.assign(at(0), at(first));
  viewed_.insert(viewed_.end(), parts->begin(), parts->end());
  viewed_.insert(viewed_.end(), at(last), from.dims.end());
}

/// Of an expand: a dimension that follows stays itself, and one element is spread over the batch in front.
std::optional<Size> Paper::expanded(const Call& c, const Number& n, const Slot& from) {
  const auto* list = std::get_if<Arg::List>(&c.args.at(1).value);
  const std::size_t rank = list ? list->size() : 0, extra = rank - std::min(rank, from.dims.size());
  const auto item = static_cast<std::size_t>(n.place.item);
  const Size have = item >= extra ? product(from.dims[item - extra]) : Size{};
  if (have.follows()) return have.file == n.value ? std::optional(have) : std::nullopt;
  if (have.file != 1 || n.place.item != 0 || !origin.batch || n.value != size.file) return std::nullopt;
  guesses.insert(n.place);
  return size;
}

/// What a number is unless something speaks against it; none: a constant.
std::optional<Size> Paper::likely(const Call& c, const Row& row, const Number& n, const ValueId* self) {
  if (n.meaning == Meaning::expanded && self) return expanded(c, n, slot(*self));
  if (n.meaning == Meaning::end && self) {
    const auto dim = c.args.size() > 1 ? file_number(c.args[1]) : std::optional<std::int64_t>(0);
    const auto& dims = slot(*self).dims;
    if (!dim || wrapped(*dim, dims.size()) >= dims.size()) return std::nullopt;
    const Size have = product(dims[wrapped(*dim, dims.size())]);
    return have.follows() && n.value == have.file ? std::optional(have) : std::nullopt;
  }
  if (n.meaning == Meaning::made && n.place.item == 0 && origin.batch && n.value == size.file) {
    if (const auto* list = list_at(c, row, n.place.argument); !list || list->size() < 2) return std::nullopt;
    guesses.insert(n.place);
    return size;
  }
  return std::nullopt;
}

std::optional<Conflict> Paper::bind(const Call& c, std::int32_t i, const std::array<ValueList, 3>& results) {
  const auto one_each = [](std::size_t n) { return Conflict{fmt::format("it makes {} results, one for each", n)}; };
  if (results[1].size() != results[0].size()) return one_each(results[0].size());
  std::int64_t fresh = 0;
  for (std::size_t o = 0; o < c.outputs.size(); ++o) {
    if (!c.outputs[o].valid()) continue;
    Slot made;
    for (std::size_t k = 0; k < 3; ++k) made.of[k] = o < results[k].size() ? results[k][o] : Value();
    if (made.of[0].is_tensor() && made.of[0].tensor()) {
      const Tensor &file = made.of[0].tensor(), &probe = made.of[1].tensor(), &wanted = made.of[2].tensor();
      if (!probe || !wanted || file->rank() != probe->rank() || file->rank() != wanted->rank())
        return Conflict{"its result has another number of dimensions at another size"};
      for (int d = 0; d < file->rank(); ++d)
        made.dims.push_back(factors_of(c, {file->sizes[d], probe->sizes[d], wanted->sizes[d]}, d, file->rank()));
      if (!shares(c, wanted)) fresh = checked_add(fresh, wanted->bytes().count);
    } else if (made.of[0].is_list() && made.of[0].list().size() != made.of[1].list().size()) {
      return one_each(made.of[0].list().size());
    }
    slot(c.outputs[o]) = std::move(made);
  }
  // Strides are numbers, too: what they show of another size is only the same tensor where it shows all of it.
  if (c.op.starts_with("aten::as_strided") && !c.args.empty())
    if (const auto* self = std::get_if<ValueId>(&c.args[0].value); self && follows(slot(*self))) {
      const Slot &from = slot(*self), &to = slot(c.outputs.at(0));
      for (std::size_t k = 0; k < 3; ++k)
        if (from.of[k].tensor()->numel() != to.of[k].tensor()->numel())
          return Conflict{"it says in numbers how far apart elements lie"};
    }
  fresh_[static_cast<std::size_t>(i)] = fresh;
  return std::nullopt;
}

bool Paper::shares(const Call& c, const Tensor& t) {
  const std::vector<ValueId> read = read_by(c);
  return std::any_of(read.begin(), read.end(), [&](ValueId id) {
    const Value& v = slot(id).of[2];
    return v.is_tensor() && v.tensor() && v.tensor()->storage.get() == t->storage.get();
  });
}

/// What a dimension of a result is a product of: it is one of an input, or several neighbours, or something new.
Factors Paper::factors_of(const Call& c, const Size& s, int d, int rank) {
  if (!s.follows()) return {s};
  if (static_cast<int>(viewed_.size()) == rank && product(viewed_[static_cast<std::size_t>(d)]) == s)
    return viewed_[static_cast<std::size_t>(d)];
  auto& met = known[s.file];
  if (std::find(met.begin(), met.end(), s) == met.end()) met.push_back(s);
  const std::vector<ValueId> read = read_by(c);
  for (const ValueId id : read)
    for (const Factors& f : slot(id).dims)
      if (product(f) == s) return f;
  if (read.empty()) return {s};
  const auto& dims = slot(read[0]).dims;
  for (std::size_t a = 0; a < dims.size(); ++a) {
    Factors all = dims[a];
    for (std::size_t b = a + 1; b < dims.size(); ++b) {
      all.insert(all.end(), dims[b].begin(), dims[b].end());
      if (product(all) == s) return all;
    }
  }
  return {s};
}

std::int64_t Paper::bytes_made() const {
  std::int64_t all = 0;
  for (const std::int64_t n : fresh_) all = checked_add(all, n);
  return all;
}

std::string Paper::name_of_call(std::int32_t i) const {
  const Call& c = call(i);
  std::string out = c.op;
  if (c.scope >= 0 && !tape.scopes[static_cast<std::size_t>(c.scope)].path.empty())
    out += fmt::format(" in {}", tape.scopes[static_cast<std::size_t>(c.scope)].path);
  if (!c.source.empty()) out += fmt::format(" ({})", c.source);
  return out;
}

void Paper::refuse(std::int32_t i, const std::string& why) const {
  fail_input(fmt::format("{}: {}", name_of_call(i), why));
}

void Paper::refuse_wanted(std::int32_t i, const std::string& why) const {
  fail(ErrorKind::usage, fmt::format("the model does not take a {} of {}: {}: {}", origin.batch ? "batch" : "sequence",
                                     size.wanted, name_of_call(i), why));
}

}  // namespace memplan::resizing
