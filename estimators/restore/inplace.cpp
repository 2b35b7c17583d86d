#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "estimators/base/glob.h"
#include "estimators/restore/passes.h"
#include "estimators/restore/shown_inplace.h"
#include "estimators/restore/statement.h"

namespace memplan::embedded {
std::string_view aten_inplace_modules_json();
}

namespace memplan {

namespace {

/// Ops that have an in-place form which autograd treats the way the rows of aten/rows/ say.
constexpr std::array activations{"relu", "relu6",   "hardtanh",   "hardswish", "hardsigmoid",
                                 "silu", "mish",    "leaky_relu", "elu",       "celu",
                                 "selu", "sigmoid", "tanh",       "dropout",   "threshold"};
/// Of these the modules have no such option.
constexpr std::array never_inplace{"sigmoid", "tanh"};

struct InplaceRule {
  std::string root, owner, name, module_class;
};

/// Modules that libraries always construct so, and those that they construct either way.
struct InplaceRules {
  std::vector<InplaceRule> always, either;
};

const InplaceRules& rules() {
  static const InplaceRules table = [] {
    InplaceRules out;
    const auto json = nlohmann::json::parse(embedded::aten_inplace_modules_json());
    for (const auto& r : json["rules"]) out.always.push_back({r[0], r[1], r[2], r[3]});
    for (const auto& r : json["either"]) out.either.push_back({r[0], r[1], r[2], r[3]});
    return out;
  }();
  return table;
}

std::string_view without_overload(std::string_view op) {
  if (op.rfind("aten::", 0) == 0) op.remove_prefix(6);
  return op.substr(0, op.find('.'));
}

class InplaceModules {
 public:
  explicit InplaceModules(const Tape& tape)
      : tape_(tape),
        known_(tape.scopes.size(), -1),
        listed_(tape.exported.inplace_modules.begin(), tape.exported.inplace_modules.end()) {
    if (!tape.scopes.empty()) {
      std::size_t s = 0;
      while (tape.scopes[s].parent >= 0) s = static_cast<std::size_t>(tape.scopes[s].parent);
      root_ = tape.scopes[s].module_class;
    }
  }

  /// Whether nn.ReLU(inplace=True), which leaves no trace in a functional file, may have been written: in programs that
  /// no library of the list wrote, and where a library does so in some models.
  bool may_be(std::int32_t scope) const {
    if (scope < 0 || root_.empty() || !listed_.empty() || root_.starts_with("transformers.")) return false;
    if (root_.starts_with("torchvision.") || root_.starts_with("timm.")) return matches(scope, rules().either);
    return tape_.scopes[static_cast<std::size_t>(scope)].module_class.starts_with("torch.nn.modules.activation.");
  }

  bool operator()(std::int32_t scope) {
    if (scope < 0) return false;
    signed char& known = known_[static_cast<std::size_t>(scope)];
    if (known < 0) known = look_up(scope) ? 1 : 0;
    return known == 1;
  }

 private:
  bool look_up(std::int32_t scope) const {
    return listed_.count(tape_.scopes[static_cast<std::size_t>(scope)].path) || matches(scope, rules().always);
  }

  bool matches(std::int32_t scope, const std::vector<InplaceRule>& list) const {
    const Scope& s = tape_.scopes[static_cast<std::size_t>(scope)];
    // A container's own children that are not called through it (ModuleList) have paths that skip it.
    const std::int32_t o = owner_of(tape_, scope);
    if (o < 0) return false;
    const Scope& owner = tape_.scopes[static_cast<std::size_t>(o)];
    std::string_view name = s.path;
    if (!owner.path.empty()) {
      if (name.size() <= owner.path.size() || name.substr(0, owner.path.size()) != owner.path) return false;
      name.remove_prefix(owner.path.size() + 1);
    }
    return std::any_of(list.begin(), list.end(), [&](const InplaceRule& r) {
      return (r.root == "*" || r.root == root_) && r.owner == owner.module_class && r.module_class == s.module_class &&
             matches_glob(name, r.name);
    });
  }

  const Tape& tape_;
  std::vector<signed char> known_;
  std::set<std::string, std::less<>> listed_;
  std::string root_;
};

/// Whether the text calls the method or function `name_` with its in-place underscore: "x.clamp_(", "torch.relu_(".
bool calls_inplace(std::string_view text, std::string_view name) {
  const std::string wanted = "." + std::string(name) + "_(";
  return text.find(wanted) != std::string_view::npos;
}

/// The two branches of "x.mul_(g) if self.inplace else x * g"; both empty where the text is no such expression.
std::pair<std::string_view, std::string_view> branches_of(std::string_view text) {
  const auto condition = text.find(" if ");
  const auto other = condition == text.npos ? condition : text.find(" else ", condition);
  if (other == text.npos) return {};
  return {text.substr(0, condition), text.substr(other + 6)};
}

/// What a line says of an op: whether it writes into its argument.
enum class Says : std::uint8_t { no, perhaps, yes };

Says line_says(std::string_view value, std::string_view base) {
  if (!calls_inplace(value, base)) return Says::no;
  const auto [first, second] = branches_of(value);
  return first.empty() || calls_inplace(first, base) == calls_inplace(second, base) ? Says::yes : Says::perhaps;
}

/// `F.leaky_relu(x, 0.2, True)`: the last argument of the functions of torch.nn.functional is `inplace`, but for that
/// of dropout.
bool asks_inplace(std::string_view line, std::string_view base) {
  if (line.find("inplace=True") != line.npos) return true;
  const std::string name = std::string(base) + "(";
  for (auto at = line.find(name); at != line.npos && base != "dropout"; at = line.find(name, at + 1)) {
    if (at > 0 && in_name(line[at - 1])) continue;
    const auto arguments = arguments_at(line, at + name.size());
    if (arguments.size() > 1 && arguments.back() == "True") return true;
  }
  return false;
}

const ValueId* value_of(const Call& call, std::size_t argument) {
  return argument < call.args.size() ? std::get_if<ValueId>(&call.args[argument].value) : nullptr;
}

bool reads(const Call& call, std::size_t argument, const Call& producer) {
  const ValueId* id = value_of(call, argument);
  return id && producer.outputs.size() == 1 && producer.outputs[0] == *id;
}

/// `torch.empty(…).bernoulli_(p)`, then `.div_(p)`: how masks of dropouts are written by hand (torchvision's
/// StochasticDepth) and inside of F.dropout(inplace=True), which multiplies its input by the mask.
template <class InPlace>
std::int64_t recover_noise(Tape& tape, InPlace& in_place) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i + 1 < tape.calls.size(); ++i) {
    Call& empty = tape.calls[i];
    Call& noise = tape.calls[i + 1];
    if (empty.op.rfind("aten::empty", 0) != 0 || noise.op != "aten::bernoulli.p" || !reads(noise, 0, empty)) continue;
    ++count;
    noise.op = "aten::bernoulli_.float";
    if (i + 2 >= tape.calls.size()) continue;
    Call& scaled = tape.calls[i + 2];
    if (scaled.op.rfind("aten::div.", 0) != 0 || !reads(scaled, 0, noise)) continue;
    scaled.op.replace(0, 9, "aten::div_");
    if (i + 3 >= tape.calls.size() || empty.op != "aten::empty_like" || !in_place(empty.scope)) continue;
    Call& product = tape.calls[i + 3];
    if (product.op != "aten::mul.Tensor" || !reads(product, 1, scaled) || !value_of(empty, 0) ||
        !value_of(product, 0) || *value_of(product, 0) != *value_of(empty, 0))
      continue;
    const double keep = noise.args.size() > 1 && std::holds_alternative<double>(noise.args[1].value)
                            ? std::get<double>(noise.args[1].value)
                            : 0.5;
    product.op = "aten::dropout_";
    product.args = {product.args[0], Arg{1.0 - keep}, Arg{true}};
    product.kwargs.clear();
    tape.calls.erase(tape.calls.begin() + static_cast<std::ptrdiff_t>(i),
                     tape.calls.begin() + static_cast<std::ptrdiff_t>(i) + 3);
  }
  return count;
}

/// How many calls write in place by their modules or by their lines, and of how many it stays open.
struct Found {
  std::int64_t modules = 0, lines = 0, conditions = 0, options = 0, shown = 0;
};

/// What an op that may write in place writes into, where the program makes it; null of any other call.
const ValueId* written_into(const Tape& tape, const Call& call) {
  if (call.args.empty() || call.unknown || call.outputs.size() != 1 || call.op.rfind("aten::", 0) != 0) return nullptr;
  const auto* self = std::get_if<ValueId>(&call.args[0].value);
  if (!self || !self->valid() || tape.values[static_cast<std::size_t>(self->index)].kind != ValueKind::computed)
    return nullptr;
  return self;
}

/// `x[at, :] = y` with a tensor of indices.
bool assigns_to_place(std::string_view source, const Statement& s) {
  constexpr std::string_view sign = "] = ";
  const auto at = source.find(sign);
  return at != source.npos && s.targets.empty() && s.value.data() == source.data() + at + sign.size();
}

bool holds(const auto& names, std::string_view base) { return std::ranges::find(names, base) != names.end(); }

/// Activations of modules that may have been constructed with inplace=True.
std::vector<std::size_t> open_activations(const Tape& tape, InplaceModules& in_place) {
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    const std::string_view base = without_overload(call.op);
    if (!holds(activations, base) || holds(never_inplace, base) || !written_into(tape, call)) continue;
    if (!in_place(call.scope) && !asks_inplace(call.source, base) && in_place.may_be(call.scope)) open.push_back(i);
  }
  return open;
}

void say_what_was_found(Tape& tape, const Found& found) {
  const auto& [modules, lines, conditions, options, shown] = found;
  if (modules)
    tape.recovered.push_back({"in-place activations", "the classes that construct them", modules,
                              tape.exported.inplace_modules.empty() ? Evidence::told_by_name : Evidence::proven_by_file,
                              About::in_place});
  if (shown)
    tape.recovered.push_back({"in-place activations", "what later calls read of them, or of others of their class",
                              shown, Evidence::told_by_name, About::in_place});
  if (conditions)
    note(tape.notes, {{},
                      fmt::format("{} ops whose line writes into its argument under a condition that the file does not "
                                  "tell; they are taken to make a new tensor",
                                  conditions),
                      Evidence::told_by_source_line,
                      About::in_place});
  if (options)
    note(tape.notes, {{},
                      fmt::format("{} activations whose modules may have been constructed with inplace=True, which the "
                                  "file does not tell; they are taken to make a new tensor",
                                  options),
                      Evidence::told_by_name,
                      About::in_place});
  if (lines)
    tape.recovered.push_back(
        {"in-place ops", "the lines of Python that made them", lines, Evidence::told_by_source_line, About::in_place});
}

}  // namespace

void recover_inplace(Tape& tape) {
  InplaceModules in_place(tape);
  Found found;
  auto& [modules, lines, conditions, options, shown] = found;
  const std::vector<std::size_t> open = open_activations(tape, in_place);
  const ShownInplace seen(tape, open);
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    if (!written_into(tape, call)) continue;
    const std::string_view base = without_overload(call.op);
    const std::string rest = call.op.substr(6 + base.size());
    const bool is_open = std::ranges::binary_search(open, i);
    bool by_module = false, by_line = false;
    if (is_open) {
      by_module = seen.in_place(i) || (tape.reading.in_place == InPlaceReading::wherever && !seen.makes_new(i));
      if (!seen.makes_new(i)) ++(seen.in_place(i) ? shown : options);
    } else if (holds(activations, base)) {
      by_module = in_place(call.scope);
      by_line = asks_inplace(call.source, base);
    }
    if (!by_module && !by_line && !call.source.empty()) {
      const Statement s = parse_statement(call.source);
      const char* augmented = s.augmented == '+'   ? "add"
                              : s.augmented == '-' ? "sub"
                              : s.augmented == '*' ? "mul"
                              : s.augmented == '/' ? "div"
                                                   : "";
      // The last call of the line is the assignment's own.
      const bool last = i + 1 == tape.calls.size() || tape.calls[i + 1].scope != call.scope ||
                        tape.calls[i + 1].source != call.source;
      const Says says = line_says(s.value, base);
      if (says == Says::perhaps) ++conditions;
      const bool to_place = base == "index_put" && assigns_to_place(call.source, s);
      by_line = ((base == augmented || to_place) && last) || says == Says::yes ||
                (says == Says::perhaps && tape.reading.in_place == InPlaceReading::wherever);
    }
    if (!by_module && !by_line) continue;
    call.op = base == "bernoulli" ? "aten::bernoulli_.float" : "aten::" + std::string(base) + "_" + rest;
    if (!is_open) ++(by_module ? modules : lines);
  }
  const std::int64_t noises = recover_noise(tape, in_place);
  if (noises)
    tape.recovered.push_back({"aten::bernoulli_", "aten::bernoulli of a tensor that nothing has filled", noises,
                              Evidence::proven_by_file, About::in_place});
  say_what_was_found(tape, found);
}

}  // namespace memplan
