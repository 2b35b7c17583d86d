#include "estimators/frontends/recording/calls_reader.h"

#include <cmath>
#include <limits>

#include "estimators/frontends/recording/checked_json.h"

namespace memplan::recording {

namespace {

constexpr std::int64_t largest_integer = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t most_values = 20'000'000;

class CallsReader {
 public:
  CallsReader(const json& root, std::size_t inputs, const std::string& where)
      : root_(root), r_(where), inputs_(static_cast<std::int64_t>(inputs)) {}

  Calls run() {
    for (const json& b : root_.at("batches")) out_.batches.push_back(r_.number(b, 0, std::int64_t{1} << 40, "a batch"));
    r_.check(!out_.batches.empty(), "the calls belong to no batch");
    for (const json& row : root_.at("values")) value(row);
    r_.check(out_.values.size() <= most_values, "more values than any program has");
    for (const json& row : root_.at("scopes")) scope(row);
    for (const json& row : root_.at("functions")) out_.functions.push_back(function(row));
    for (const json& row : root_.at("calls")) out_.calls.push_back(call(row));
    out_.outputs = numbers(root_.at("outputs"), 0, "an output");
    return std::move(out_);
  }

 private:
  std::int64_t last_value() const { return static_cast<std::int64_t>(out_.values.size()) - 1; }

  OfBatch of_batch(const json& j, const char* what) const {
    if (!j.is_object()) return {r_.number(j, -largest_integer, largest_integer, what), 0};
    const json& line = j.at("b");
    r_.check(line.is_array() && line.size() == 2, "a number that depends on the batch is no line");
    return {r_.number(line[0], -largest_size, largest_size, what),
            r_.number(line[1], -largest_size, largest_size, what)};
  }

  Shape shape(const json& j) const {
    r_.check(j.is_array() && j.size() <= most_dimensions, "the sizes of a value are no list of up to 64");
    Shape out;
    for (const json& n : j) {
      const OfBatch size = of_batch(n, "a size");
      for (const std::int64_t b : out_.batches) {
        const auto at = static_cast<__int128>(size.per_sample) * b + size.at_zero;
        r_.check(at >= 0 && at <= largest_size, "a value has a size that no tensor has");
      }
      out.push_back(size);
    }
    return out;
  }

  void value(const json& row) {
    StoredTensorValue v;
    v.dtype = r_.dtype(row.at(0));
    v.sizes = shape(row.at(1));
    const std::string& role = row.at(2).get_ref<const std::string&>();
    v.role = role.empty()          ? Role::made
             : role == "input"     ? Role::input
             : role == "parameter" ? Role::parameter
             : role == "buffer"    ? Role::buffer
                                   : Role::constant;
    if (v.role == Role::constant) r_.check(role == "constant", "a value has a role that there is not");
    v.name = row.at(3).get<std::string>();
    if (v.role == Role::input) {
      const bool digits =
          !v.name.empty() && v.name.size() < 9 && v.name.find_first_not_of("0123456789") == std::string::npos;
      r_.check(digits && std::stoll(v.name) < inputs_, "a value is an input that the module does not take");
    }
    v.on_host = r_.number(row.at(4), 0, 1, "on the host") == 1;
    out_.values.push_back(std::move(v));
  }

  void scope(const json& row) {
    Scope s;
    s.path = row.at(0).get<std::string>();
    s.module_class = row.at(1).get<std::string>();
    s.parent = static_cast<std::int32_t>(
        r_.number(row.at(2), -1, static_cast<std::int64_t>(out_.scopes.size()) - 1, "a module's parent"));
    s.call = static_cast<std::int32_t>(r_.number(row.at(3), 0, INT32_MAX, "a module's call"));
    out_.scopes.push_back(std::move(s));
  }

  std::vector<std::int32_t> numbers(const json& j, std::int64_t low, const char* what) const {
    return r_.indices(j, low, last_value(), what);
  }

  StoredArg argument(const json& j) const {
    if (j.is_null()) return {};
    if (j.is_boolean()) return {j.get<bool>()};
    if (j.is_number_integer()) return {of_batch(j, "an argument")};
    if (j.is_number()) return {j.get<double>()};
    if (j.is_array()) {
      StoredArg::List list;
      list.reserve(j.size());
      for (const json& x : j) list.push_back(argument(x));
      return {std::move(list)};
    }
    if (j.is_string()) return text(j.get_ref<const std::string&>());
    r_.check(j.size() == 1, "an argument has an unknown form");
    const std::string& kind = j.begin().key();
    const json& v = j.begin().value();
    if (kind == "v")
      return {StoredArg::Value{static_cast<std::int32_t>(r_.number(v, 0, last_value(), "an argument's value"))}};
    if (kind == "b") return {of_batch(j, "an argument")};
    if (kind == "d") return {r_.dtype(v)};
    if (kind == "s") return {v.get<std::string>()};
    r_.check(kind == "f", "an argument has an unknown form");
    const std::string& word = v.get_ref<const std::string&>();
    return {word == "inf" ? HUGE_VAL : word == "-inf" ? -HUGE_VAL : std::nan("")};
  }

  /// Integers of more than 53 bits are written as text.
  static StoredArg text(const std::string& s) {
    const bool integer =
        s.size() > 15 && s.size() < 20 && s.find_first_not_of("0123456789", s[0] == '-' ? 1 : 0) == std::string::npos;
    if (!integer) return {s};
    errno = 0;
    const long long n = std::strtoll(s.c_str(), nullptr, 10);
    return errno == 0 ? StoredArg{OfBatch{n, 0}} : StoredArg{s};
  }

  StoredKept kept(const json& j) const {
    StoredKept k;
    if (j.is_array()) {
      k.inside = true;
      k.dtype = r_.dtype(j.at(0));
      k.sizes = shape(j.at(1));
    } else {
      k.at = static_cast<std::int32_t>(r_.number(j, -1'000'000, 1'000'000, "what a call keeps"));
    }
    return k;
  }

  StoredCall call(const json& row) const {
    StoredCall c;
    c.op = row.at("op").get<std::string>();
    r_.check(!c.op.empty(), "a call has no op");
    for (const json& a : row.at("args")) c.args.push_back(argument(a));
    if (const auto words = row.find("kwargs"); words != row.end())
      for (const auto& [name, a] : words->items()) c.kwargs.emplace_back(name, argument(a));
    c.outputs = numbers(row.at("outputs"), -1, "a result");
    for (const std::int32_t n : c.outputs)
      r_.check(n < 0 || out_.values[static_cast<std::size_t>(n)].role == Role::made,
               "a result is no value that a call makes");
    if (const auto gone = row.find("del"); gone != row.end()) c.released = numbers(*gone, 0, "a released value");
    if (const auto k = row.find("kept"); k != row.end())
      for (const json& x : *k) c.kept.push_back(kept(x));
    c.scope = index(row, "scope", static_cast<std::int64_t>(out_.scopes.size()) - 1);
    c.checkpoint = index(row, "checkpoint", INT32_MAX);
    c.function = index(row, "own", static_cast<std::int64_t>(out_.functions.size()) - 1);
    c.without_autocast = index(row, "plain", 1) == 1;
    c.source = row.value("at", std::string());
    return c;
  }

  std::int32_t index(const json& row, const char* key, std::int64_t high) const {
    const auto found = row.find(key);
    return found == row.end() ? -1 : static_cast<std::int32_t>(r_.number(*found, -1, high, key));
  }

  StoredFunction function(const json& row) const {
    StoredFunction f;
    f.name = row.at("name").get<std::string>();
    f.inputs = numbers(row.at("inputs"), 0, "an argument of a function");
    f.outputs = numbers(row.at("outputs"), 0, "a result of a function");
    f.saved = numbers(row.at("saved"), 0, "what a function saves");
    f.grads = numbers(row.at("grads"), -1, "a gradient");
    f.results = numbers(row.at("results"), -1, "a gradient of an argument");
    for (const json& c : row.at("calls")) f.forward.push_back(call(c));
    for (const json& c : row.at("backward")) f.backward.push_back(call(c));
    for (const auto* list : {&f.forward, &f.backward})
      for (const StoredCall& c : *list) r_.check(c.function < 0, "a function is inside of another one");
    return f;
  }

  const json& root_;
  const Reader r_;
  const std::int64_t inputs_;
  Calls out_;
};

}  // namespace

std::shared_ptr<const Calls> read_calls(const json& j, std::size_t inputs, const std::string& where) {
  if (!j.is_object() || !j.contains("version")) return nullptr;
  const Reader r(where);
  if (r.number(j.at("version"), 0, INT32_MAX, "the version of the calls") != calls_version)
    fail_input(fmt::format("the calls of the recording have version {}; this memplan knows {}", j.at("version").dump(),
                           calls_version),
               where, "use a newer memplan, or record the module again with this one's memplan.record");
  return std::make_shared<const Calls>(CallsReader(j, inputs, where).run());
}

}  // namespace memplan::recording
