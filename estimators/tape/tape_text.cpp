#include "estimators/tape/tape_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace memplan {

namespace {

/// What stands without quotes in a tape's text.
bool is_bare(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == ':' || c == '/' || c == '<' || c == '>' || c == '$' ||
           c == '*' || c == '+' || c == '-';
  });
}

std::string quoted(const std::string& s) {
  return nlohmann::json(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
std::string word(const std::string& s) { return is_bare(s) ? s : quoted(s); }

/// A name that can stand for its value: bare, and not of the form that stands for those without one ("_12").
bool is_token(std::string_view name) {
  const bool numbered = name.size() > 1 && name[0] == '_' &&
                        std::all_of(name.begin() + 1, name.end(), [](unsigned char c) { return std::isdigit(c); });
  return is_bare(name) && name != "_" && !numbered && name.find(':') == std::string_view::npos;
}

constexpr const char* kind_words[] = {"input", "parameter", "buffer", "constant", "computed"};

class TapeWriter {
 public:
  explicit TapeWriter(const Tape& tape) : tape_(tape) {}

  std::string run() {
    for (const TapeValue& v : tape_.values) ++names_[v.name];
    for (const BoundDim& d : tape_.dims)
      out_ += fmt::format("dim {} {}{}\n", word(d.name), d.size, d.assumed ? " assumed" : d.of_file ? " of_file" : "");
    if (!tape_.exported.functional) out_ += "in_place\n";
    for (const std::string& path : tape_.exported.inplace_modules) out_ += "in_place_module " + word(path) + "\n";
    values();
    for (std::size_t i = 0; i < tape_.bindings.size(); ++i) binding(i);
    for (std::size_t i = 0; i < tape_.scopes.size(); ++i) scope(i);
    for (const Call& c : tape_.calls) call(c);
    more_of_computed();
    for (const CheckpointRegion& r : tape_.checkpoints)
      out_ += fmt::format("checkpoint {} {}{}{}\n", r.first, r.last, at_index(" in ", r.scope),
                          r.others.empty() ? "" : fmt::format(" others({})", fmt::join(r.others, " ")));
    if (!tape_.outputs.empty()) out_ += "return " + references(tape_.outputs, ", ") + "\n";
    for (const Recovery& r : tape_.recovered)
      out_ += fmt::format("recovered {} {} {} {} {}\n", r.count, word(r.op), word(r.from),
                          word(std::string(name_of(r.evidence))), word(std::string(name_of(r.about))));
    for (const Fact& n : tape_.notes)
      out_ +=
          fmt::format("note {} {} {} {} {} {} {}\n", word(n.code), word(n.text), word(std::string(name_of(n.evidence))),
                      word(std::string(name_of(n.about))), word(n.op), word(n.module), n.count);
    return std::move(out_);
  }

 private:
  const TapeValue& value(ValueId id) const { return tape_.values[static_cast<std::size_t>(id.index)]; }

  static std::string at_index(const char* what, std::int32_t index) {
    return index < 0 ? "" : what + std::to_string(index);
  }

  bool has_token(ValueId id) const { return is_token(value(id).name) && names_.at(value(id).name) == 1; }

  std::string reference(ValueId id) const {
    if (!id.valid()) return "_";
    return has_token(id) ? "%" + value(id).name : fmt::format("%_{}", id.index);
  }

  std::string references(const std::vector<ValueId>& ids, const char* between) const {
    std::string out;
    for (ValueId id : ids) out += (out.empty() ? "" : between) + reference(id);
    return out;
  }

  /// A value where it comes up first. Values are numbered in this order, unless one says otherwise.
  std::string definition(ValueId id) {
    std::string out = reference(id);
    if (!id.valid()) return out;
    if (id.index != next_) out += fmt::format("@{}", id.index);
    next_ = id.index + 1;
    if (!has_token(id)) out += ":" + quoted(value(id).name);
    return out;
  }

  std::string facts(const TapeValue& v) const {
    std::string out = fmt::format(" {} [{}]", name_of(v.dtype), fmt::join(v.sizes, ", "));
    if (v.requires_grad != (v.kind == ValueKind::parameter)) out += v.requires_grad ? " trained" : " frozen";
    if (v.same_storage_as.valid()) out += " tied " + reference(v.same_storage_as);
    if (v.number) out += fmt::format(" number {}", *v.number);
    if (v.on_host) out += " host";
    if (v.keeps_dtype) out += " keeps_dtype";
    return out;
  }

  void values() {
    std::vector<bool> written(tape_.values.size(), false);
    const auto write = [&](ValueId id, bool listed) {
      const TapeValue& v = value(id);
      out_ += fmt::format("{} {}{}{}\n", kind_words[static_cast<int>(v.kind)], definition(id), facts(v),
                          listed ? "" : " unlisted");
      written[static_cast<std::size_t>(id.index)] = true;
    };
    for (const auto* list : {&tape_.inputs, &tape_.parameters, &tape_.buffers})
      for (ValueId id : *list) write(id, true);
    for (const Call& c : tape_.calls)
      for (ValueId id : c.outputs)
        if (id.valid()) written[static_cast<std::size_t>(id.index)] = true;
    for (std::size_t i = 0; i < tape_.values.size(); ++i)
      if (!written[i]) write({static_cast<std::int32_t>(i)}, tape_.values[i].kind == ValueKind::computed);
  }

  /// What calls make says little of itself; what it does say comes after the calls.
  void more_of_computed() {
    for (const Call& c : tape_.calls)
      for (ValueId id : c.outputs)
        if (id.valid())
          if (const std::string about = facts(value(id)); about != " float32 []")
            out_ += "about " + reference(id) + about + "\n";
  }

  void binding(std::size_t i) {
    const Binding& b = tape_.bindings[i];
    out_ += fmt::format("binding {}", i);
    const auto words = [&](const char* what, const std::vector<std::string>& list, const char* end) {
      out_ += what;
      for (std::size_t k = 0; k < list.size(); ++k) out_ += (k ? " " : "") + word(list[k]);
      out_ += end;
    };
    for (const auto& names : b.targets) words(" {", names, "}");
    if (b.calls_local) out_ += " calls_local";
    if (b.makes_list) out_ += " makes_list";
    if (!b.collects.empty()) out_ += " collects " + word(b.collects);
    if (!b.pops.empty()) words(" pops(", b.pops, ")");
    if (!b.held.empty()) words(" held(", b.held, ")");
    out_ += "\n";
  }

  void scope(std::size_t i) {
    const Scope& s = tape_.scopes[i];
    out_ += fmt::format("scope {} {} {}{}{}{}", i, word(s.path), word(s.module_class), at_index(" in ", s.parent),
                        s.call ? fmt::format(" call {}", s.call) : "", at_index(" by ", s.binding));
    if (!s.source.empty()) out_ += " at " + quoted(s.source);
    out_ += "\n";
  }

  std::string number(double d) const {
    if (!std::isfinite(d)) return std::isnan(d) ? "nan" : d > 0 ? "inf" : "-inf";
    std::string out = fmt::format("{}", d);
    return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
  }

  std::string argument(const Arg& arg) const {
    struct Visitor {
      const TapeWriter& writer;
      std::string operator()(Arg::None) const { return "None"; }
      std::string operator()(ValueId id) const { return writer.reference(id); }
      std::string operator()(std::int64_t n) const { return std::to_string(n); }
      std::string operator()(double d) const { return writer.number(d); }
      std::string operator()(bool b) const { return b ? "True" : "False"; }
      std::string operator()(const std::string& s) const { return quoted(s); }
      std::string operator()(DType d) const { return std::string(name_of(d)); }
      std::string operator()(const Arg::List& list) const {
        std::string out = "[";
        for (const Arg& a : list) out += (out.size() > 1 ? ", " : "") + std::visit(*this, a.value);
        return out + "]";
      }
    };
    return std::visit(Visitor{*this}, arg.value);
  }

  void call(const Call& c) {
    std::string line;
    for (ValueId id : c.outputs) line += (line.empty() ? "" : ", ") + definition(id);
    line += fmt::format("{}= {}(", line.empty() ? "" : " ", word(c.op));
    bool first = true;
    for (const Arg& a : c.args) line += (first ? "" : ", ") + argument(a), first = false;
    for (const auto& [name, a] : c.kwargs)
      line += fmt::format("{}{}={}", first ? "" : ", ", word(name), argument(a)), first = false;
    line += ")" + at_index(" in ", c.scope) + at_index(" by ", c.binding);
    if (c.no_autocast) line += " no_autocast";
    if (c.unknown) line += " unknown";
    if (!c.known_shapes.empty()) {
      line += " shapes(";
      for (std::size_t i = 0; i < c.known_shapes.size(); ++i)
        line += fmt::format("{}{} [{}]", i ? ", " : "", name_of(c.known_shapes[i].first),
                            fmt::join(c.known_shapes[i].second, ", "));
      line += ")";
    }
    if (!c.releases.empty()) line += " releases(" + references(c.releases, " ") + ")";
    if (!c.last_uses.empty()) line += " del(" + references(c.last_uses, " ") + ")";
    if (!c.source.empty()) line += " at " + quoted(c.source);
    out_ += line + "\n";
  }

  const Tape& tape_;
  std::unordered_map<std::string, int> names_;
  std::int32_t next_ = 0;
  std::string out_;
};

}  // namespace

std::string to_text(const Tape& tape) { return TapeWriter(tape).run(); }

}  // namespace memplan
