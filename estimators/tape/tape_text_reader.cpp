#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "estimators/base/error.h"
#include "estimators/tape/tape_text.h"

namespace memplan {

namespace {

/// One line of text, token by token.
class TapeLine {
 public:
  TapeLine(std::string_view text, std::size_t number) : text_(text), number_(number) {}

  [[noreturn]] void wrong(const std::string& what) const {
    fail_input(fmt::format("line {} of a tape: {}", number_, what), std::string(text_));
  }

  bool ends() {
    skip();
    return at_ >= text_.size();
  }
  bool sees(char c) {
    skip();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool takes(char c) {
    if (!sees(c)) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!takes(c)) wrong(fmt::format("expected '{}' {}", c, place()));
  }
  /// The word `w`, if it is next.
  bool takes(std::string_view w) {
    const std::size_t before = at_;
    if (!ends() && text_[at_] != '"' && bare() == w) return true;
    at_ = before;
    return false;
  }

  std::string word() {
    if (sees('"')) return quoted();
    const std::string_view w = bare();
    if (w.empty()) wrong("expected a word " + place());
    return std::string(w);
  }

  /// "name" of "name=", if that is next.
  std::optional<std::string> keyword() {
    const std::size_t before = at_;
    skip();
    const std::string_view w = bare();
    if (!w.empty() && takes('=')) return std::string(w);
    at_ = before;
    return std::nullopt;
  }

  std::int64_t integer() {
    const std::string w = word();
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(w.data(), w.data() + w.size(), n);
    if (error != std::errc() || end != w.data() + w.size()) wrong(fmt::format("'{}' is no integer", w));
    return n;
  }
  std::int32_t index() {
    const std::int64_t n = integer();
    if (n < 0 || n > INT32_MAX) wrong(fmt::format("{} is no index", n));
    return static_cast<std::int32_t>(n);
  }

  std::vector<std::string> words(char open, char close) {
    std::vector<std::string> out;
    for (expect(open); !takes(close);) out.push_back(word());
    return out;
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  std::string place() const {
    return at_ < text_.size() ? fmt::format("before '{}'", text_.substr(at_)) : "at its end";
  }

  std::string_view bare() {
    skip();
    const std::size_t first = at_;
    while (at_ < text_.size() && std::string_view(" \t,()[]{}=\"%@").find(text_[at_]) == std::string_view::npos) ++at_;
    return text_.substr(first, at_ - first);
  }

  std::string quoted() {
    const std::size_t first = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) wrong("a string does not end");
    ++at_;
    const auto json = nlohmann::json::parse(text_.substr(first, at_ - first), nullptr, false);
    if (!json.is_string()) wrong("a string is not as JSON writes it");
    return json.get<std::string>();
  }

  std::string_view text_;
  std::size_t number_, at_ = 0;
};

/// The value of a table of names (base/names.h) that comes next.
template <class Table>
auto named(TapeLine& line, const Table& table) {
  const std::string name = line.word();
  const auto value = value_in(table, name);
  if (!value) line.wrong(fmt::format("'{}' is unknown", name));
  return *value;
}

class TapeReader {
 public:
  Tape run(std::string_view text) {
    letters_ = text.size();
    for (std::size_t number = 1; !text.empty(); ++number) {
      const std::size_t end = text.find('\n');
      TapeLine line(text.substr(0, end), number);
      text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
      if (line.ends() || line.sees('#')) continue;
      read(line);
      if (!line.ends()) line.wrong("more than one thing on it");
    }
    for (const auto& [id, token] : tied_) {
      const auto it = tokens_.find(token);
      if (it == tokens_.end()) fail_input(fmt::format("a tape ties a value to '%{}', which it does not have", token));
      tape_.values[static_cast<std::size_t>(id)].same_storage_as = it->second;
    }
    for (std::size_t i = 0; i < defined_.size(); ++i)
      if (!defined_[i]) fail_input(fmt::format("a tape has no value {}", i));
    return std::move(tape_);
  }

 private:
  void read(TapeLine& line) {
    static constexpr std::pair<std::string_view, ValueKind> kinds[] = {{"input", ValueKind::user_input},
                                                                       {"parameter", ValueKind::parameter},
                                                                       {"buffer", ValueKind::buffer},
                                                                       {"constant", ValueKind::constant},
                                                                       {"computed", ValueKind::computed}};
    for (const auto& [word, kind] : kinds)
      if (line.takes(word)) return read_value(line, kind);
    if (line.takes("dim")) {
      BoundDim d{line.word(), line.integer(), false};
      d.assumed = line.takes("assumed");
      d.of_file = line.takes("of_file");
      tape_.dims.push_back(std::move(d));
    } else if (line.takes("in_place")) {
      tape_.exported.functional = false;
    } else if (line.takes("in_place_module")) {
      tape_.exported.inplace_modules.push_back(line.word());
    } else if (line.takes("binding")) {
      read_binding(line);
    } else if (line.takes("scope")) {
      read_scope(line);
    } else if (line.takes("about")) {
      read_facts(line, reference(line));
    } else if (line.takes("checkpoint")) {
      CheckpointRegion r{line.index(), line.index(), -1, {}};
      if (line.takes("in")) r.scope = line.index();
      if (line.takes("others"))
        for (line.expect('('); !line.takes(')');) r.others.push_back(line.index());
      tape_.checkpoints.push_back(std::move(r));
    } else if (line.takes("return")) {
      do tape_.outputs.push_back(reference(line));
      while (line.takes(','));
    } else if (line.takes("recovered")) {
      Recovery r;
      r.count = line.integer();
      r.op = line.word();
      r.from = line.word();
      r.evidence = named(line, evidence_names);
      r.about = named(line, about_names);
      tape_.recovered.push_back(std::move(r));
    } else if (line.takes("note")) {
      Fact n;
      n.code = line.word();
      n.text = line.word();
      n.evidence = named(line, evidence_names);
      n.about = named(line, about_names);
      n.op = line.word();
      n.module = line.word();
      n.count = line.integer();
      tape_.notes.push_back(std::move(n));
    } else {
      read_call(line);
    }
  }

  TapeValue& value(ValueId id) { return tape_.values[static_cast<std::size_t>(id.index)]; }

  /// "%x", which some line has defined, or "_".
  ValueId reference(TapeLine& line) {
    if (!line.takes('%')) {
      if (line.takes("_")) return {};
      line.wrong("expected a value");
    }
    const std::string token = token_of(line);
    const auto it = tokens_.find(token);
    if (it == tokens_.end()) line.wrong(fmt::format("no line before it makes '%{}'", token));
    return it->second;
  }

  /// A token ends where the name of a value that has none for itself begins: %_12:"a name".
  static std::string token_of(TapeLine& line) {
    std::string token = line.word();
    if (!token.empty() && token.back() == ':') token.pop_back();
    return token;
  }

  ValueId definition(TapeLine& line, ValueKind kind) {
    if (!line.takes('%')) {
      if (line.takes("_")) return {};
      line.wrong("expected a value");
    }
    std::string token = line.word(), name = token;
    if (token.empty()) line.wrong("a value without a name");
    bool named = token.back() == ':';
    if (named) token.pop_back();
    ValueId id{next_};
    if (line.takes('@')) {
      std::string index = line.word();
      if (index.ends_with(':')) named = true, index.pop_back();
      id.index = static_cast<std::int32_t>(std::strtol(index.c_str(), nullptr, 10));
    }
    if (named) name = line.word();
    // Each value has a place in the text: no text has as many as it has letters.
    if (id.index < 0 || static_cast<std::size_t>(id.index) > letters_)
      line.wrong(fmt::format("{} is no index", id.index));
    if (tokens_.count(token)) line.wrong(fmt::format("'%{}' is made twice", token));
    if (static_cast<std::size_t>(id.index) >= tape_.values.size()) {
      tape_.values.resize(static_cast<std::size_t>(id.index) + 1);
      defined_.resize(tape_.values.size(), false);
    }
    if (defined_[static_cast<std::size_t>(id.index)]) line.wrong(fmt::format("value {} is made twice", id.index));
    defined_[static_cast<std::size_t>(id.index)] = true;
    next_ = id.index + 1;
    tokens_[token] = id;
    value(id).name = name;
    value(id).kind = kind;
    value(id).requires_grad = kind == ValueKind::parameter;
    return id;
  }

  void read_value(TapeLine& line, ValueKind kind) {
    const ValueId id = definition(line, kind);
    if (!id.valid()) line.wrong("expected a value");
    if (!read_facts(line, id)) return;
    if (kind == ValueKind::user_input) tape_.inputs.push_back(id);
    if (kind == ValueKind::parameter) tape_.parameters.push_back(id);
    if (kind == ValueKind::buffer || kind == ValueKind::constant) tape_.buffers.push_back(id);
  }

  DType dtype(TapeLine& line) {
    const std::string name = line.word();
    if (const auto d = dtype_from_name(name)) return *d;
    line.wrong(fmt::format("unknown dtype '{}'", name));
  }

  std::vector<std::int64_t> sizes(TapeLine& line) {
    std::vector<std::int64_t> out;
    line.expect('[');
    while (!line.takes(']')) {
      if (!out.empty()) line.expect(',');
      out.push_back(line.integer());
    }
    return out;
  }

  /// False: the value is in none of the tape's lists.
  bool read_facts(TapeLine& line, ValueId id) {
    if (!id.valid()) line.wrong("expected a value");
    TapeValue& v = value(id);
    v.dtype = dtype(line);
    v.sizes = sizes(line);
    if (line.takes("trained")) v.requires_grad = true;
    if (line.takes("frozen")) v.requires_grad = false;
    if (line.takes("tied")) {
      line.expect('%');
      tied_.emplace_back(id.index, token_of(line));
    }
    if (line.takes("number")) v.number = line.integer();
    if (line.takes("host")) v.on_host = true;
    if (line.takes("keeps_dtype")) v.keeps_dtype = true;
    return !line.takes("unlisted");
  }

  void read_binding(TapeLine& line) {
    if (static_cast<std::size_t>(line.index()) != tape_.bindings.size()) line.wrong("bindings are numbered in order");
    Binding b;
    while (line.sees('{')) b.targets.push_back(line.words('{', '}'));
    b.calls_local = line.takes("calls_local");
    b.makes_list = line.takes("makes_list");
    if (line.takes("collects")) b.collects = line.word();
    if (line.takes("pops")) b.pops = line.words('(', ')');
    if (line.takes("held")) b.held = line.words('(', ')');
    tape_.bindings.push_back(std::move(b));
  }

  void read_scope(TapeLine& line) {
    if (static_cast<std::size_t>(line.index()) != tape_.scopes.size()) line.wrong("scopes are numbered in order");
    Scope s;
    s.path = line.word();
    s.module_class = line.word();
    if (line.takes("in")) s.parent = line.index();
    if (line.takes("call")) s.call = line.index();
    if (line.takes("by")) s.binding = line.index();
    if (line.takes("at")) s.source = line.word();
    tape_.scopes.push_back(std::move(s));
  }

  Arg argument(TapeLine& line) {
    if (line.sees('%')) return {reference(line)};
    if (line.sees('"')) return {line.word()};
    if (line.takes('[')) {
      Arg::List list;
      while (!line.takes(']')) {
        if (!list.empty()) line.expect(',');
        list.push_back(argument(line));
      }
      return {std::move(list)};
    }
    const std::string w = line.word();
    if (w == "None") return {};
    if (w == "_") return {ValueId{}};
    if (w == "True" || w == "False") return {w == "True"};
    if (w == "nan" || w == "inf" || w == "-inf") return {w == "nan" ? NAN : w == "inf" ? INFINITY : -INFINITY};
    if (const auto d = dtype_from_name(w)) return {*d};
    std::int64_t n = 0;
    if (const auto r = std::from_chars(w.data(), w.data() + w.size(), n);
        r.ec == std::errc() && r.ptr == w.data() + w.size())
      return {n};
    char* end = nullptr;
    const double d = std::strtod(w.c_str(), &end);
    if (end != w.c_str() + w.size()) line.wrong(fmt::format("'{}' is no argument", w));
    return {d};
  }

  void read_call(TapeLine& line) {
    Call c;
    if (!line.takes('=')) {
      do c.outputs.push_back(definition(line, ValueKind::computed));
      while (line.takes(','));
      line.expect('=');
    }
    c.op = line.word();
    line.expect('(');
    for (bool first = true; !line.takes(')'); first = false) {
      if (!first) line.expect(',');
      if (const auto name = line.keyword())
        c.kwargs.emplace_back(*name, argument(line));
      else
        c.args.push_back(argument(line));
    }
    if (line.takes("in")) c.scope = line.index();
    if (line.takes("by")) c.binding = line.index();
    c.no_autocast = line.takes("no_autocast");
    c.unknown = line.takes("unknown");
    if (line.takes("shapes")) {
      line.expect('(');
      while (!line.takes(')')) {
        if (!c.known_shapes.empty()) line.expect(',');
        const DType d = dtype(line);
        c.known_shapes.emplace_back(d, sizes(line));
      }
    }
    if (line.takes("releases"))
      for (line.expect('('); !line.takes(')');) c.releases.push_back(reference(line));
    if (line.takes("del"))
      for (line.expect('('); !line.takes(')');) c.last_uses.push_back(reference(line));
    if (line.takes("at")) c.source = line.word();
    tape_.calls.push_back(std::move(c));
  }

  Tape tape_;
  std::unordered_map<std::string, ValueId> tokens_;
  std::vector<bool> defined_;
  std::size_t letters_ = 0;
  std::vector<std::pair<std::int32_t, std::string>> tied_;
  std::int32_t next_ = 0;
};

}  // namespace

Tape from_text(std::string_view text) { return TapeReader().run(text); }

}  // namespace memplan
