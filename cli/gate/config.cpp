#include "cli/gate/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <set>
#include <span>
#include <stdexcept>

#include "cli/flags/spelling.h"
#include "cli/flags/toml.h"
#include "cli/flags/values.h"
#include "cli/terminal/style.h"
#include "estimators/base/glob.h"
#include "estimators/base/text.h"
#include "estimators/base/text_file.h"

namespace memplan::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t largest_file = 1 << 20;
constexpr std::span rules_to_ignore = std::span(gate_rules).first<gate_rules.size() - 1>();  // all but errors
constexpr std::array gate_words{"no-fit", "tight", "unknown", "regression", "warning", "never"};

template <class Names>
std::string nearest(const std::string& name, const Names& names) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const auto& n : names) {
    const std::size_t d = edit_distance(name, n);
    if (d < best_distance) best_distance = d, best = n;
  }
  return best;
}

std::set<std::string> setup_keys() {
  std::set<std::string> keys;
  for (const Flag& f : flags())
    if (is_setup_flag(f)) keys.insert(std::string(f.name));
  return keys;
}

class Reader {
 public:
  explicit Reader(Config config) : c_(std::move(config)) {}

  Config read(const toml::table& root) {
    static const std::vector<std::string> known{"schema", "defaults", "target", "ignore", "gate"};
    only(root, known, "");
    if (const auto* schema = root.get("schema"); schema && schema->value<std::int64_t>() != 1)
      wrong(line(*schema), "this memplan reads configurations of schema 1", "write schema = 1");
    std::map<std::string, Setting> defaults;
    if (const auto* node = root.get("defaults")) setup(table(*node, "[defaults]"), {}, true, defaults);
    if (const auto* node = root.get("gate")) gate(table(*node, "[gate]"));
    if (const auto* node = root.get("target"))
      for (const toml::node& entry : array(*node, "[[target]]")) target(table(entry, "[[target]]"), defaults);
    if (const auto* node = root.get("ignore"))
      for (const toml::node& entry : array(*node, "[[ignore]]")) ignore(table(entry, "[[ignore]]"));
    if (c_.targets.empty())
      wrong(1, "the configuration has no [[target]]", "add one with name, model and gpu: docs/ci.md shows how");
    return std::move(c_);
  }

 private:
  static std::int64_t line(const toml::node& node) { return node.source().begin.line; }

  [[noreturn]] void wrong(std::int64_t at, const std::string& what, const std::string& hint) const {
    fail(ErrorKind::usage, clean(what), fmt::format("{}:{}", c_.shown, at), clean(hint));
  }

  const toml::table& table(const toml::node& node, std::string_view what) const {
    if (const auto* t = node.as_table()) return *t;
    wrong(line(node), fmt::format("{} must be a table", what), fmt::format("write {} on a line of its own", what));
  }
  const toml::array& array(const toml::node& node, std::string_view what) const {
    if (const auto* a = node.as_array()) return *a;
    wrong(line(node), fmt::format("{} must be a list of tables", what),
          fmt::format("write {} with double brackets", what));
  }

  template <class Names>
  void unknown_key(const std::string& key, std::int64_t at, const Names& known, std::string_view where) const {
    const std::string near = nearest(key, known);
    wrong(
        at,
        fmt::format("'{}' is not a key {}", key, where.empty() ? "of the configuration" : fmt::format("of {}", where)),
        near.empty() ? fmt::format("known are {}", fmt::join(known, ", ")) : fmt::format("did you mean {}?", near));
  }
  template <class Names>
  void only(const toml::table& t, const Names& known, std::string_view where) const {
    for (const auto& [key, value] : t)
      if (std::find(known.begin(), known.end(), std::string(key.str())) == known.end())
        unknown_key(std::string(key.str()), key.source().begin.line, known, where);
  }

  std::string text(const toml::node& node, std::string_view key) const {
    if (const auto* s = node.as_string(); s && !s->get().empty()) return s->get();
    wrong(line(node), fmt::format("{} must be a text", key), fmt::format("write {} = \"…\"", key));
  }

  Threshold threshold(const toml::node& node, std::string_view key) const {
    Threshold t;
    t.line = line(node);
    if (const auto* n = node.as_integer()) {
      if (n->get() < 0)
        wrong(t.line, fmt::format("{} must not be negative", key),
              "give bytes, a size such as \"70GiB\", or a percentage such as \"90%\"");
      t.bytes = Bytes(n->get());
      t.text = std::to_string(n->get());
      return t;
    }
    auto written = catching([&] { return parse_threshold(text(node, key), key); });
    if (!written)
      wrong(t.line, written.error().what, "give bytes, a size such as \"70GiB\", or a percentage such as \"90%\"");
    written->line = t.line;
    return *written;
  }

  /// A value as it would be typed after the flag.
  std::string word(const toml::node& node, const std::string& key) const {
    if (const auto* s = node.as_string()) return s->get();
    if (const auto* n = node.as_integer()) return std::to_string(n->get());
    if (const auto* x = node.as_floating_point()) return fmt::format("{}", x->get());
    wrong(line(node), fmt::format("{} has a value that the flag --{} cannot have", key, key),
          fmt::format("memplan --help says what --{} takes", key));
  }

  /// The keys of `t` that are flags; `own` are the others that it may have.
  void setup(const toml::table& t, const std::vector<std::string>& own, bool defaults,
             std::map<std::string, Setting>& out) const {
    static const std::set<std::string> keys = setup_keys();
    for (const auto& [k, node] : t) {
      std::string key(k.str());
      if (std::find(own.begin(), own.end(), key) != own.end()) continue;
      if (key == "dims") {
        Setting setting{{}, line(node), defaults};
        for (const auto& [dim, size] : table(node, "dims")) {
          if (!size.is_integer())
            wrong(line(size), fmt::format("the dimension {} must be a whole number", dim.str()),
                  "write dims = { seq = 1024 }");
          setting.values.push_back(fmt::format("{}={}", dim.str(), size.as_integer()->get()));
        }
        out["dim"] = std::move(setting);
        continue;
      }
      if (key == "env" && node.is_table()) {
        Setting setting{{}, line(node), defaults};
        for (const auto& [name, value] : table(node, "env"))
          setting.values.push_back(fmt::format("{}={}", name.str(), word(value, "env")));
        out["env"] = std::move(setting);
        continue;
      }
      std::string name = key;
      std::replace(name.begin(), name.end(), '_', '-');
      const Flag* flag = keys.contains(name) ? find_flag(name) : nullptr;
      if (!flag || key == "dim") {
        std::vector<std::string> known(own);
        known.push_back("dims");
        for (std::string n : keys) {
          if (n == "dim") continue;
          std::replace(n.begin(), n.end(), '-', '_');
          known.push_back(n);
        }
        unknown_key(key, k.source().begin.line, known, defaults ? "[defaults]" : "a [[target]]");
      }
      Setting setting{{}, line(node), defaults};
      if (flag->value.empty()) {
        if (!node.is_boolean())
          wrong(line(node), fmt::format("{} must be true or false", key), fmt::format("write {} = true", key));
        if (node.as_boolean()->get()) setting.values.push_back("");
      } else if (const auto* list = node.as_array()) {
        if (!flag->repeatable)
          wrong(line(node), fmt::format("{} takes one value", key), fmt::format("write one value for {}", key));
        for (const toml::node& entry : *list) setting.values.push_back(word(entry, key));
      } else {
        setting.values.push_back(word(node, key));
      }
      out[name] = std::move(setting);
    }
  }

  void gate(const toml::table& t) {
    static const std::vector<std::string> known{"fail_on", "baseline", "ratchet"};
    only(t, known, "[gate]");
    if (const auto* node = t.get("fail_on")) {
      c_.fail_on.emplace();
      c_.fail_on_line = line(*node);
      const auto add = [&](const toml::node& entry) {
        const std::string value = text(entry, "fail_on");
        if (std::find(gate_words.begin(), gate_words.end(), value) == gate_words.end())
          wrong(line(entry), fmt::format("'{}' is not a value for fail_on", value),
                fmt::format("use {}", fmt::join(gate_words, ", ")));
        c_.fail_on->push_back(value);
      };
      if (const auto* list = node->as_array())
        for (const toml::node& entry : *list) add(entry);
      else
        add(*node);
    }
    if (const auto* node = t.get("baseline")) {
      c_.baseline = text(*node, "baseline");
      c_.baseline_line = line(*node);
      confined(c_, c_.baseline, c_.baseline_line, "baseline");
    }
    if (const auto* node = t.get("ratchet")) {
      if (!node->is_boolean()) wrong(line(*node), "ratchet must be true or false", "write ratchet = true");
      c_.ratchet = node->as_boolean()->get();
    }
  }

  void target(const toml::table& t, const std::map<std::string, Setting>& defaults) {
    static const std::vector<std::string> own{"name",         "model",         "limit",    "warn",
                                              "max_increase", "warn_increase", "baseline", "message"};
    Target out;
    out.line = line(t);
    const auto* name = t.get("name");
    const auto* model = t.get("model");
    if (!name) wrong(out.line, "a [[target]] has no name", "write name = \"train\"");
    out.name = text(*name, "name");
    if (!model)
      wrong(out.line, fmt::format("the target '{}' has no model", out.name), "write model = \"models/net.onnx\"");
    out.model = text(*model, "model");
    out.model_line = line(*model);
    for (const Target& other : c_.targets)
      if (other.name == out.name)
        wrong(out.line, fmt::format("two targets have the name '{}'", out.name), "give each its own name");
    out.path = confined(c_, out.model, line(*model), "model");
    out.setup = defaults;
    setup(t, own, false, out.setup);
    const auto limit = [&](const char* key, std::optional<Threshold>& where) {
      if (const auto* node = t.get(key)) where = threshold(*node, key);
    };
    limit("limit", out.limit), limit("warn", out.warn), limit("max_increase", out.max_increase),
        limit("warn_increase", out.warn_increase);
    for (const auto* share : {&out.limit, &out.warn}) {
      if (!*share) continue;
      refuse_more_than_all(**share, fmt::format("{}:{}", c_.shown, (*share)->line));
      if (!(*share)->bytes && !out.setup.contains("gpu"))
        wrong((*share)->line,
              fmt::format("'{}' is a share of a card, and the target '{}' names none", (*share)->text, out.name),
              "add gpu = \"80GB\", or give the limit in bytes");
    }
    if (const auto* node = t.get("baseline")) {
      out.baseline = text(*node, "baseline");
      confined(c_, out.baseline, line(*node), "baseline");
    }
    if (const auto* node = t.get("message")) out.message = text(*node, "message");
    if (!out.setup.contains("gpu") && !out.limit && !out.max_increase)
      wrong(out.line, fmt::format("nothing is asked of the target '{}'", out.name), "add gpu, limit or max_increase");
    c_.targets.push_back(std::move(out));
  }

  GateRule rule_called(const std::string& word, std::int64_t at) {
    std::vector<std::string> words;
    for (const GateRuleRow& row : rules_to_ignore) {
      if (row.name == word) return row.rule;
      words.emplace_back(row.name);
    }
    const std::string near = nearest(word, words);
    wrong(at, fmt::format("'{}' is not a rule", word),
          near.empty() ? fmt::format("rules are {}", fmt::join(words, ", ")) : fmt::format("did you mean {}?", near));
  }

  void ignore(const toml::table& t) {
    static const std::vector<std::string> known{"rule", "target", "reason", "expires"};
    only(t, known, "an [[ignore]]");
    Ignore out;
    out.line = line(t);
    for (const std::string& key : known)
      if (!t.get(key))
        wrong(out.line, fmt::format("an [[ignore]] has no {}", key),
              key == "expires" ? "write a day such as expires = 2027-01-31: nothing is ignored for ever"
                               : fmt::format("write {} = \"…\"", key));
    out.rule = rule_called(text(*t.get("rule"), "rule"), line(*t.get("rule")));
    out.target = text(*t.get("target"), "target");
    if (std::none_of(c_.targets.begin(), c_.targets.end(),
                     [&](const Target& known) { return matches_glob(known.name, out.target); }))
      wrong(line(*t.get("target")), fmt::format("no [[target]] is called '{}', so nothing is ignored", out.target),
            "correct the name (it may be a glob), or take the [[ignore]] away");
    out.reason = text(*t.get("reason"), "reason");
    const auto* date = t.get("expires")->as_date();
    if (!date) wrong(line(*t.get("expires")), "expires must be a day", "write expires = 2027-01-31, without quotes");
    out.expires = fmt::format("{:04}-{:02}-{:02}", date->get().year, date->get().month, date->get().day);
    c_.ignores.push_back(std::move(out));
  }

  Config c_;
};

std::string read_file(const std::string& path) {
  std::error_code ignored;
  if (fs::file_size(path, ignored) > largest_file && !ignored)
    fail(ErrorKind::usage, "the configuration is larger than 1 MiB", path, "give a memplan.toml");
  const char* const again = "give a file that exists with --config";
  if (!fs::is_regular_file(path, ignored)) fail(ErrorKind::usage, "the configuration cannot be read", path, again);
  return text_of_file(path, ErrorKind::usage, again);
}

bool is_python_project(const fs::path& path) { return path.filename() == "pyproject.toml"; }

std::string find_config() {
  std::error_code error;
  for (fs::path folder = fs::current_path(error); !folder.empty(); folder = folder.parent_path()) {
    for (const char* name : {"memplan.toml", ".config/memplan.toml", "pyproject.toml"}) {
      const fs::path path = folder / name;
      if (!fs::is_regular_file(path, error)) continue;
      if (is_python_project(path) && read_file(path).find("[tool.memplan") == std::string::npos) continue;
      return path;
    }
    if (fs::exists(folder / ".git", error) || folder == folder.parent_path()) break;
  }
  fail(ErrorKind::usage, "there is no memplan.toml here or above", "--config",
       "write one (docs/ci.md) or name it with --config");
}

}  // namespace

std::string confined(const Config& config, const std::string& path, std::int64_t line, std::string_view what) {
  const auto outside = [&](const char* why) {
    fail(ErrorKind::usage, fmt::format("the {} '{}' {}", what, clean(path), why),
         fmt::format("{}:{}", config.shown, line), "give a path relative to the configuration, in its folder or below");
  };
  if (fs::path(path).is_absolute()) outside("has an absolute path");
  std::error_code error;
  const fs::path root = fs::weakly_canonical(config.folder, error),
                 full = fs::weakly_canonical(fs::path(config.folder) / path, error);
  const fs::path relative = full.lexically_relative(root);
  if (error || relative.empty() || *relative.begin() == "..") outside("leads out of the configuration's folder");
  return (fs::path(config.folder) / path).lexically_normal();
}

bool is_setup_flag(const Flag& f) {
  return (f.commands & in_estimate) && f.group != "Output" && f.group != "Gate" && f.group != "General" &&
         f.group != "Explain";
}

Config load_config(const std::string& given) {
  Config config;
  config.path = given.empty() ? find_config() : given;
  std::error_code error;
  fs::path full = fs::absolute(config.path, error), folder = full.parent_path();
  if (folder.filename() == ".config") folder = folder.parent_path();
  const fs::path here = fs::current_path(error), relative = full.lexically_relative(here),
                 below = folder.lexically_relative(here);
  config.shown = clean(relative.empty() || *relative.begin() == ".." ? full.filename().string() : relative.string());
  config.folder = below.empty() || *below.begin() == ".." ? folder.string() : below.string();
  const std::string text = read_file(config.path);
  toml::table root;
  try {
    root = toml::parse(text, config.shown);
  } catch (const toml::parse_error& e) {
    fail(ErrorKind::usage, clean(fmt::format("this is not TOML: {}", e.description())),
         fmt::format("{}:{}", config.shown, e.source().begin.line), "correct the line");
  } catch (const std::runtime_error& e) {
    fail(ErrorKind::usage, fmt::format("this is not TOML: {}", e.what()), config.shown, "correct the line");
  }
  if (is_python_project(full)) {
    const toml::node* own = root.at_path("tool.memplan").node();
    if (!own || !own->is_table())
      fail(ErrorKind::usage, "the file has no [tool.memplan]", config.shown, "add it, or write a memplan.toml");
    return Reader(std::move(config)).read(*own->as_table());  // a copy would lose the lines
  }
  return Reader(std::move(config)).read(root);
}

}  // namespace memplan::cli
