#include <algorithm>
#include <cmath>

#include "estimators/base/error.h"
#include "estimators/base/whole_number.h"
#include "estimators/unroll/values.h"

namespace memplan::torchscript {

namespace {
constexpr const char* program = "the TorchScript program";
}

const V* V::number() const {
  if (std::holds_alternative<bool>(v) || std::holds_alternative<std::int64_t>(v) || std::holds_alternative<double>(v))
    return this;
  const TensorV* t = tensor();
  return t && t->number ? t->number.get() : nullptr;
}

std::optional<std::int64_t> V::integer() const {
  const V* n = number();
  if (!n) return std::nullopt;
  if (const auto* i = n->get<std::int64_t>()) return *i;
  if (const auto* b = n->get<bool>()) return *b ? 1 : 0;
  return whole_number(*n->get<double>(), program);
}

std::optional<double> V::real() const {
  const V* n = number();
  if (!n) return std::nullopt;
  if (const auto* d = n->get<double>()) return *d;
  return static_cast<double>(*n->integer());
}

std::optional<bool> V::truth() const {
  if (number()) return *real() != 0;
  if (const auto* s = get<std::string>()) return !s->empty();
  if (const auto* l = get<ListV>()) return !(*l)->empty();
  if (is_none()) return false;
  return std::nullopt;
}

V make_list(std::vector<V> items) { return std::make_shared<std::vector<V>>(std::move(items)); }

bool equal(const V& a, const V& b) {
  if (a.get<std::string>() && b.get<std::string>()) return *a.get<std::string>() == *b.get<std::string>();
  const auto items = [](const V& x) -> const std::vector<V>* {
    if (const auto* l = x.get<ListV>()) return l->get();
    if (const auto* t = x.get<TupleV>()) return &t->items;
    return nullptr;
  };
  if (const auto* x = items(a), *y = items(b); x && y)
    return x->size() == y->size() && std::equal(x->begin(), x->end(), y->begin(), equal);
  if (a.get<DeviceV>() && b.get<DeviceV>()) return true;  // everything is on the planned device
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  return a.number() && b.number() && *a.real() == *b.real();
}

namespace {

bool is_real(const V& v) { return v.number() && v.number()->get<double>(); }

std::int64_t divisor(std::int64_t b) {
  if (b == 0) fail_input("the TorchScript program divides by zero");
  return b;
}
std::int64_t floor_div(std::int64_t a, std::int64_t b) { return floored_quotient(a, divisor(b), program); }

using Overflows = bool (*)(std::int64_t, std::int64_t, std::int64_t*);
bool add_overflows(std::int64_t a, std::int64_t b, std::int64_t* out) { return __builtin_add_overflow(a, b, out); }
bool sub_overflows(std::int64_t a, std::int64_t b, std::int64_t* out) { return __builtin_sub_overflow(a, b, out); }
bool mul_overflows(std::int64_t a, std::int64_t b, std::int64_t* out) { return __builtin_mul_overflow(a, b, out); }

std::int64_t checked(Overflows overflows, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (overflows(a, b, &out)) fail_input("a number in the TorchScript program is beyond 64 bits");
  return out;
}

/// Whole numbers alone.
std::optional<V> whole_division(std::string_view op, std::int64_t i, std::int64_t j, bool floors) {
  if (op == "div" && !floors) return V(j == -1 ? checked(sub_overflows, 0, i) : i / divisor(j));
  if (op == "div" || op == "floordiv" || op == "floor_divide" || op == "__floordiv__") return V(floor_div(i, j));
  // fmod has the sign of the dividend, Python's % that of the divisor.
  if (op == "fmod") return V(j == -1 ? 0 : i % divisor(j));
  if (op == "remainder") return V(floored_remainder(i, divisor(j)));
  return std::nullopt;
}

/// Bits of whole numbers; what is logical of any.
std::optional<V> logic(std::string_view op, const V& a, const V& b) {
  const auto is = [&](std::string_view bits, std::string_view logical) { return op == bits || op == logical; };
  const bool x = *a.truth(), y = *b.truth();
  if (op == "logical_and" || (a.get<bool>() && b.get<bool>() && is("__and__", "bitwise_and"))) return V(x && y);
  if (op == "logical_or" || (a.get<bool>() && b.get<bool>() && is("__or__", "bitwise_or"))) return V(x || y);
  if (op == "logical_xor" || (a.get<bool>() && b.get<bool>() && is("__xor__", "bitwise_xor"))) return V(x != y);
  if (is_real(a) || is_real(b)) return std::nullopt;
  if (is("__and__", "bitwise_and")) return V(*a.integer() & *b.integer());
  if (is("__or__", "bitwise_or")) return V(*a.integer() | *b.integer());
  if (is("__xor__", "bitwise_xor")) return V(*a.integer() ^ *b.integer());
  return std::nullopt;
}

/// a + alpha * b and its kin; alpha counts only where a trace gave one.
V sum(std::string_view op, const V& a, const V& b, const V* alpha) {
  const V &left = op == "rsub" ? b : a, &right = op == "rsub" ? a : b;
  if (is_real(a) || is_real(b)) {
    const double scaled = *right.real() * (alpha ? *alpha->real() : 1);
    return op == "add" ? *left.real() + scaled : *left.real() - scaled;
  }
  const std::int64_t scaled = checked(mul_overflows, *right.integer(), alpha ? *alpha->integer() : 1);
  return checked(op == "add" ? add_overflows : sub_overflows, *left.integer(), scaled);
}

std::optional<V> comparison(std::string_view op, double x, double y) {
  if (op == "eq") return x == y;
  if (op == "ne") return x != y;
  if (op == "lt") return x < y;
  if (op == "le") return x <= y;
  if (op == "gt") return x > y;
  if (op == "ge") return x >= y;
  return std::nullopt;
}

std::optional<V> arithmetic(std::string_view op, const std::vector<V>& args) {
  const V &a = args[0], &b = args[1];
  if (!a.number() || !b.number()) return std::nullopt;
  const bool real = is_real(a) || is_real(b);
  const double x = *a.real(), y = *b.real();
  // Only of whole numbers: a real one may be beyond them.
  const std::int64_t i = real ? 0 : *a.integer(), j = real ? 0 : *b.integer();
  if (op == "add" || op == "sub" || op == "rsub")
    return sum(op, a, b, args.size() > 2 && args[2].number() ? &args[2] : nullptr);
  if (op == "mul") return real ? V(x * y) : V(checked(mul_overflows, i, j));
  const auto* mode = op == "div" && args.size() > 2 ? args[2].get<std::string>() : nullptr;
  if (op == "truediv" || (op == "div" && !mode)) return x / y;
  const bool floors = !mode || *mode == "floor";
  if (!real) {
    if (auto out = whole_division(op, i, j, floors)) return out;
  } else {
    if (op == "div") return floors ? std::floor(x / y) : std::trunc(x / y);
    if (op == "floordiv" || op == "floor_divide" || op == "__floordiv__") return std::floor(x / y);
    if (op == "remainder") return x - y * std::floor(x / y);
    if (op == "fmod") return std::fmod(x, y);
  }
  if (op == "pow") {
    const double p = std::pow(x, y);
    return real || j < 0 || std::fabs(p) > 9e15 ? V(p) : V(static_cast<std::int64_t>(std::llround(p)));
  }
  if (op == "min" || op == "minimum") return real ? V(std::min(x, y)) : V(std::min(i, j));
  if (op == "max" || op == "maximum") return real ? V(std::max(x, y)) : V(std::max(i, j));
  if (auto out = comparison(op, x, y)) return out;
  return logic(op, a, b);
}

std::optional<V> unary(std::string_view op, const V& a) {
  if (!a.number()) return std::nullopt;
  const bool real = is_real(a);
  const double x = *a.real();
  if (op == "neg") return real ? V(-x) : V(checked(sub_overflows, 0, *a.integer()));
  if (op == "abs") return real ? V(std::fabs(x)) : V(x < 0 ? checked(sub_overflows, 0, *a.integer()) : *a.integer());
  if (op == "floor" || op == "ceil" || op == "round")
    return real ? V(whole_number(op == "floor"  ? std::floor(x)
                                 : op == "ceil" ? std::ceil(x)
                                                : std::nearbyint(x),
                                 program))
                : V(*a.integer());
  if (op == "sqrt") return V(std::sqrt(x));
  if (op == "log") return V(std::log(x));
  if (op == "log2") return V(std::log2(x));
  if (op == "exp") return V(std::exp(x));
  if (op == "Int" || op == "IntImplicit" || op == "trunc") return V(*a.integer());
  if (op == "Float" || op == "FloatImplicit") return V(x);
  if (op == "Bool" || op == "is_nonzero") return V(x != 0);
  if (op == "ScalarImplicit" || op == "item" || op == "NumToTensor" || op == "detach" || op == "to" ||
      op == "contiguous" || op == "clone" || op == "scalar_tensor")
    return *a.number();
  return std::nullopt;
}

std::size_t place(const V& index, std::size_t n) {
  const auto i = index.integer();
  const std::int64_t at = !i ? -1 : *i < 0 ? *i + static_cast<std::int64_t>(n) : *i;
  if (at < 0 || at >= static_cast<std::int64_t>(n))
    fail_input("the TorchScript program takes an element that a list does not have");
  return static_cast<std::size_t>(at);
}

std::vector<V> cut(const std::vector<V>& items, const std::vector<V>& args) {
  const auto n = static_cast<std::int64_t>(items.size());
  const std::int64_t step = args.size() > 3 && args[3].integer() ? *args[3].integer() : 1;
  if (step <= 0) fail_input("the TorchScript program takes a slice with a step below 1");
  const auto bound = [&](std::size_t at, std::int64_t standard) {
    const std::int64_t i = args.size() > at && args[at].integer() ? *args[at].integer() : standard;
    return std::clamp<std::int64_t>(i < 0 ? i + n : i, 0, n);
  };
  std::vector<V> out;
  for (std::int64_t i = bound(1, 0), end = bound(2, n); i < end; i += std::min(step, n))  // far ends do not overflow
    out.push_back(items[static_cast<std::size_t>(i)]);
  return out;
}

/// Lists of a program are in memory; none is as long as this.
constexpr std::int64_t most_items = 1'000'000;

void expect_short(bool is_short) {
  if (!is_short)
    fail_input("the TorchScript program makes a list of more than " + std::to_string(most_items) + " entries", {},
               "export the model with torch.export.save");
}

std::vector<V> repeated(const std::vector<V>& items, std::int64_t given) {
  const std::int64_t times = items.empty() ? 0 : std::max<std::int64_t>(0, given);
  expect_short(times <= most_items / std::max<std::int64_t>(1, static_cast<std::int64_t>(items.size())));
  std::vector<V> out;
  for (std::int64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return out;
}

std::optional<V> list_op(std::string_view op, const std::vector<V>& args) {
  const auto* list = args[0].get<ListV>();
  const auto* tuple = args[0].get<TupleV>();
  if (!list && !tuple) return std::nullopt;
  const std::vector<V>& items = list ? **list : tuple->items;
  if (op == "len") return V(static_cast<std::int64_t>(items.size()));
  if (op == "__getitem__") return items[place(args.at(1), items.size())];
  if (op == "slice") return make_list(cut(items, args));
  if (op == "list" || op == "copy") return make_list(items);
  if (op == "__contains__")
    return V(std::any_of(items.begin(), items.end(), [&](const V& v) { return equal(v, args.at(1)); }));
  if (op == "eq") return V(equal(args[0], args.at(1)));
  if (op == "ne") return V(!equal(args[0], args.at(1)));
  if ((op == "add" || op == "add_") && args.at(1).get<ListV>()) {
    expect_short(static_cast<std::int64_t>(items.size() + (*args[1].get<ListV>())->size()) <= most_items);
    std::vector<V> both = items;
    both.insert(both.end(), (*args[1].get<ListV>())->begin(), (*args[1].get<ListV>())->end());
    if (op == "add_") return **list = std::move(both), args[0];
    return make_list(std::move(both));
  }
  if (op == "mul" && args.at(1).integer()) return make_list(repeated(items, *args[1].integer()));
  if ((op == "min" || op == "max" || op == "sum") && !items.empty() &&
      std::all_of(items.begin(), items.end(), [](const V& v) { return v.number() && !v.tensor(); })) {
    V best = items[0];
    for (std::size_t i = 1; i < items.size(); ++i) best = *arithmetic(op == "sum" ? "add" : op, {best, items[i]});
    return best;
  }
  if ((op == "all" || op == "any") &&
      std::all_of(items.begin(), items.end(), [](const V& v) { return v.truth().has_value(); })) {
    const auto holds = [](const V& v) { return *v.truth(); };
    return V(op == "all" ? std::all_of(items.begin(), items.end(), holds)
                         : std::any_of(items.begin(), items.end(), holds));
  }
  if (!list) return std::nullopt;
  if (op == "append") return (*list)->push_back(args.at(1)), args[0];
  if (op == "extend" && args.at(1).get<ListV>()) {
    const std::vector<V> more = **args[1].get<ListV>();
    expect_short(static_cast<std::int64_t>(items.size() + more.size()) <= most_items);
    return (*list)->insert((*list)->end(), more.begin(), more.end()), args[0];
  }
  if (op == "insert") {
    const auto at =
        std::clamp<std::int64_t>(args.at(1).integer().value_or(0), 0, static_cast<std::int64_t>(items.size()));
    return (*list)->insert((*list)->begin() + at, args.at(2)), args[0];
  }
  if (op == "pop") {
    const std::size_t at = place(args.size() > 1 ? args[1] : V(std::int64_t{-1}), items.size());
    V out = items[at];
    (*list)->erase((*list)->begin() + static_cast<std::ptrdiff_t>(at));
    return out;
  }
  if (op == "reverse") return std::reverse((*list)->begin(), (*list)->end()), args[0];
  if (op == "clear") return (*list)->clear(), args[0];
  if (op == "_set_item") return (**list)[place(args.at(1), items.size())] = args.at(2), args[0];
  return std::nullopt;
}

std::optional<V> dict_op(std::string_view op, const std::vector<V>& args) {
  const auto* dict = args[0].get<DictV>();
  if (!dict) return std::nullopt;
  auto& items = **dict;
  const auto find = [&](const V& key) {
    return std::find_if(items.begin(), items.end(), [&](const auto& item) { return equal(item.first, key); });
  };
  if (op == "len") return V(static_cast<std::int64_t>(items.size()));
  if (op == "__contains__") return V(find(args.at(1)) != items.end());
  if (op == "__getitem__" || op == "get") {
    const auto it = find(args.at(1));
    if (it != items.end()) return it->second;
    if (op == "get") return args.size() > 2 ? args[2] : V();
    fail_input("the TorchScript program takes an entry that a dictionary does not have");
  }
  if (op == "_set_item") {
    const auto it = find(args.at(1));
    if (it != items.end())
      it->second = args.at(2);
    else
      items.emplace_back(args.at(1), args.at(2));
    return args[0];
  }
  if (op == "keys" || op == "values" || op == "items") {
    std::vector<V> out;
    for (const auto& [key, value] : items)
      out.push_back(op == "keys" ? key : op == "values" ? value : V(TupleV{{key, value}}));
    return make_list(std::move(out));
  }
  return std::nullopt;
}

}  // namespace

std::optional<V> python_op(std::string_view full, const std::vector<V>& args) {
  const std::size_t colon = full.find("::");
  const std::string_view op = colon == std::string_view::npos ? full : full.substr(colon + 2);
  if (op == "format" || op == "str" || op == "join" || op == "percentFormat")
    return V("text");  // what it says is for people
  if (op == "warn" || op == "Print") return V();
  if (args.empty()) return std::nullopt;
  // Identity first: it looks at no value.
  if (args.size() == 2 && (op == "__is__" || op == "__isnot__")) {
    const TensorV *a = args[0].tensor(), *b = args[1].tensor();
    const bool same = a && b ? a->name == b->name
                             : args[0].is_none() == args[1].is_none() && (args[0].is_none() || equal(args[0], args[1]));
    return V(same == (op == "__is__"));
  }
  const bool works_on_tensors =
      std::any_of(args.begin(), args.end(), [](const V& a) { return a.tensor() && !a.tensor()->number; });
  for (const V& a : args)
    if (a.get<UnknownV>() && !works_on_tensors) return a;
  if (op == "__not__") return args[0].truth() ? std::optional<V>(!*args[0].truth()) : std::nullopt;
  if (op == "__range_length" && args.size() == 3) {
    const std::int64_t low = args[0].integer().value_or(0), high = args[1].integer().value_or(0),
                       step = args[2].integer().value_or(1);
    if (step == 0) fail_input("the TorchScript program has a range with step 0");
    if (step > 0 ? high <= low : high >= low) return V(std::int64_t{0});
    // From the first to the last, as Python counts them.
    const std::int64_t far = checked(sub_overflows, checked(sub_overflows, high, step > 0 ? 1 : -1), low);
    return V(checked(add_overflows, floor_div(far, step), 1));
  }
  if (op == "__derive_index" && args.size() == 3)
    return V(checked(add_overflows, args[1].integer().value_or(0),
                     checked(mul_overflows, args[0].integer().value_or(0), args[2].integer().value_or(1))));
  if (const auto* text = args[0].get<std::string>()) {
    if (op == "len") return V(static_cast<std::int64_t>(text->size()));
    if (op == "add") return V("text");
    if (op == "__contains__" && args.size() > 1 && args[1].get<std::string>())
      return V(text->find(*args[1].get<std::string>()) != std::string::npos);
  }
  // torch.tensor(3.0) is a number on the CPU until something larger takes it in.
  if ((op == "tensor" || op == "as_tensor") && args[0].number()) return *args[0].number();
  if (auto out = list_op(op, args)) return out;
  if (auto out = dict_op(op, args)) return out;
  if (args.size() >= 2 && (op == "eq" || op == "ne") &&
      (args[0].get<std::string>() || args[0].get<DeviceV>() || args[0].is_none() || args[1].is_none()))
    return V(equal(args[0], args[1]) == (op == "eq"));
  // A constant tensor among tensors is a tensor; with numbers it is one of them.
  bool plain = false;
  for (const V& a : args) {
    if (a.tensor() && !a.tensor()->number) return std::nullopt;
    plain = plain || (a.number() && !a.tensor());
  }
  if (!plain && op != "item" && op != "Int" && op != "Float" && op != "Bool" && op != "ScalarImplicit" &&
      op != "IntImplicit" && op != "FloatImplicit")
    return std::nullopt;
  if (args.size() >= 2 && op != "to" && op != "item" && op != "round")
    if (auto out = arithmetic(op, args)) return out;
  return unary(op, args[0]);
}

}  // namespace memplan::torchscript
