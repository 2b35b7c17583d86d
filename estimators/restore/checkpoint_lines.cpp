#include "estimators/restore/checkpoint_lines.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "estimators/restore/statement.h"

namespace memplan {

namespace {

constexpr std::string_view sequential = "checkpoint_sequential(";

const Scope& scope_at(const Tape& tape, std::int32_t scope) { return tape.scopes[static_cast<std::size_t>(scope)]; }

/// What a line checkpoints.
struct CheckpointLine {
  std::string_view function;  ///< as it is written, "blk"
  std::int64_t segments = 0;  ///< of checkpoint_sequential; 0: of another
};

CheckpointLine line_of(std::string_view source) {
  CheckpointLine line;
  if (const std::size_t at = source.find(sequential); at != std::string_view::npos) {
    const auto arguments = arguments_at(source, at + sequential.size());
    if (arguments.size() > 1)
      std::from_chars(arguments[1].data(), arguments[1].data() + arguments[1].size(), line.segments);
    return line;
  }
  for (const std::string_view name : {"checkpoint(", "checkpointing_func("})
    if (const std::size_t at = source.find(name); at != std::string_view::npos) {
      line.function = arguments_at(source, at + name.size()).front();
      break;
    }
  if (line.function.ends_with(".__call__")) line.function.remove_suffix(9);
  return line;
}

bool is_name(std::string_view text) { return !text.empty() && text.find_first_of(".([ :") == std::string_view::npos; }

/// A call of checkpoint() or of what libraries wrap around it.
bool calls_checkpoint(std::string_view source) {
  constexpr std::string_view word = "checkpoint";
  for (auto at = source.find(word); at != source.npos; at = source.find(word, at + 1))
    for (const std::string_view end : {"(", "_sequential(", "_seq(", "ing_func("})
      if (source.substr(at + word.size()).starts_with(end)) return true;
  return false;
}

/// `checkpoint(f, x) if … else f(x)`: the line runs, but it may call the other one.
bool has_choice(std::string_view source) { return source.find(" else ") != std::string_view::npos; }

/// Where a call stands in such a line.
struct Place {
  std::int32_t frame = -1;   ///< scope of the line
  std::int32_t module = -1;  ///< scope of the outermost module that such a line calls; -1: the call is the line's own
  std::string_view source;
  bool valid() const { return !source.empty(); }
};

/// CheckpointPlaces of calls in lines that call checkpoint(), with a choice or without one.
class CheckpointPlaces {
 public:
  CheckpointPlaces(const Tape& tape, bool choice)
      : tape_(tape), choice_(choice), outermost_(tape.scopes.size(), unknown) {}

  Place of(const Call& call) {
    if (const std::int32_t module = outermost(call.scope); module >= 0)
      return {scope_at(tape_, module).parent, module, scope_at(tape_, module).source};
    return takes(call.source) ? Place{call.scope, -1, call.source} : Place{};
  }

 private:
  static constexpr std::int32_t unknown = -2;

  bool takes(std::string_view source) const { return calls_checkpoint(source) && has_choice(source) == choice_; }

  std::int32_t outermost(std::int32_t scope) {
    if (scope < 0) return -1;
    if (std::int32_t& known = outermost_[static_cast<std::size_t>(scope)]; known == unknown) {
      const std::int32_t around = outermost(scope_at(tape_, scope).parent);
      known = around >= 0 ? around : takes(scope_at(tape_, scope).source) ? scope : -1;
    }
    return outermost_[static_cast<std::size_t>(scope)];
  }

  const Tape& tape_;
  const bool choice_;
  std::vector<std::int32_t> outermost_;  ///< by scope: the module of a Place in it
};

class Numbering {
 public:
  explicit Numbering(Tape& tape) : tape_(tape), places_(tape, false) {}

  void run() {
    for (const Call& call : tape_.calls) next_ = std::max(next_, call.checkpoint + 1);
    for (std::size_t i = 0; i < tape_.calls.size();) i = number_line(i);
  }

 private:
  /// Numbers the calls from `first` on that stand in its line; the first one behind them.
  std::size_t number_line(std::size_t first) {
    const Place line = places_.of(tape_.calls[first]);
    if (!line.valid()) return first + 1;
    std::vector<std::size_t> begins;
    std::size_t i = first;
    Place last = line;
    for (; i < tape_.calls.size(); ++i) {
      const Place now = places_.of(tape_.calls[i]);
      if (now.frame != line.frame || now.source != line.source) break;
      if (begins.empty() || begins_stretch(tape_.calls[begins.back()], last, now)) begins.push_back(i);
      last = now;
    }
    number(begins, i, line_of(line.source).segments);
    return i;
  }

  bool begins_stretch(const Call& first, const Place& last, const Place& now) {
    if (now.module < 0 || now.module == last.module) return false;
    const std::string_view function = line_of(now.source).function;
    const std::string& path = scope_at(tape_, now.module).path;
    const bool module = is_name(function) || path.ends_with(function.substr(function.rfind('.') + 1));
    if (module || function.empty()) return true;
    const Place began = places_.of(first);
    return began.module >= 0 && scope_at(tape_, began.module).module_class == scope_at(tape_, now.module).module_class;
  }

  void number(const std::vector<std::size_t>& begins, std::size_t end, std::int64_t segments) {
    // checkpoint_sequential runs its last segment as it is.
    const std::size_t parts = segments > 0 ? static_cast<std::size_t>(segments) : 0;
    const std::size_t size = parts > 0 ? std::max<std::size_t>(1, begins.size() / parts) : 1;
    const std::size_t marked = parts > 0 ? std::min(begins.size(), size * (parts - 1)) : begins.size();
    for (std::size_t k = 0; k < marked; ++k) {
      const std::size_t until = k + 1 < begins.size() ? begins[k + 1] : end;
      for (std::size_t i = begins[k]; i < until; ++i) tape_.calls[i].checkpoint = next_;
      if ((k + 1) % size == 0 || k + 1 == marked) ++next_;
    }
  }

  Tape& tape_;
  CheckpointPlaces places_;
  std::int32_t next_ = 0;
};

/// Modules that a method without lines calls.
class HiddenLoops {
 public:
  explicit HiddenLoops(const Tape& tape) : tape_(tape), outermost_(tape.scopes.size(), -1) {
    std::vector<bool> hidden(tape.scopes.size(), false);
    std::set<std::string_view> paths;
    for (const Scope& s : tape.scopes) paths.insert(s.path);
    std::map<std::pair<std::int32_t, std::string_view>, std::set<std::string_view>> alike;  // of a caller, of a class
    for (std::size_t s = 0; s < hidden.size(); ++s) {
      const Scope& module = tape.scopes[s];
      hidden[s] = module.parent >= 0 && is_own(module.module_class) && calls_method(module, paths);
      if (hidden[s]) alike[{module.parent, module.module_class}].insert(module.path);
    }
    for (std::size_t s = 0; s < hidden.size(); ++s) {
      const Scope& module = tape.scopes[s];
      outermost_[s] = around(module.parent).value_or(-1);  // a parent is made before its children
      if (outermost_[s] < 0 && hidden[s] && alike[{module.parent, module.module_class}].size() > 1)
        outermost_[s] = static_cast<std::int32_t>(s);
    }
  }

  /// The outermost of such modules around the scope.
  std::optional<std::int32_t> around(std::int32_t scope) const {
    const std::int32_t found = scope < 0 ? -1 : outermost_[static_cast<std::size_t>(scope)];
    return found < 0 ? std::nullopt : std::optional(found);
  }

 private:
  /// Libraries checkpoint their blocks where they are told to.
  static bool is_own(std::string_view name) {
    for (const std::string_view library : {"torch.", "torchvision.", "timm.", "transformers.", "diffusers.", "peft."})
      if (name.starts_with(library)) return false;
    return !name.empty();
  }

  /// The line that calls the module calls "self.encode(", which is no module of the caller's.
  bool calls_method(const Scope& module, const std::set<std::string_view>& paths) const {
    constexpr std::string_view self = "self.";
    const std::string& caller = scope_at(tape_, module.parent).path;
    const std::string_view line = module.source;
    for (auto at = line.find(self); at != line.npos; at = line.find(self, at + 1)) {
      const std::string_view name = leading_name(line.substr(at + self.size()));
      const bool is_call = line.substr(at + self.size() + name.size()).starts_with('(');
      const std::string path = caller.empty() ? std::string(name) : caller + "." + std::string(name);
      const auto below = paths.lower_bound(path);
      if (is_call && (below == paths.end() || (*below != path && !below->starts_with(path + ".")))) return true;
    }
    return false;
  }

  const Tape& tape_;
  std::vector<std::int32_t> outermost_;  ///< by scope
};

/// Consecutive calls that stand in one scope each; `scope_of` a call: none where it is not checkpointed.
template <class ScopeOf>
std::vector<CheckpointRegion> regions_of(const Tape& tape, ScopeOf&& scope_of) {
  std::vector<CheckpointRegion> regions;
  std::optional<std::int32_t> last;
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const std::optional<std::int32_t> now = scope_of(tape.calls[i]);
    const auto at = static_cast<std::int32_t>(i);
    if (now && now == last)
      regions.back().last = at;
    else if (now)
      regions.push_back({at, at, *now, {}});
    last = now;
  }
  return regions;
}

}  // namespace

void number_checkpointed_lines(Tape& tape) {
  if (!tape.exported.checkpoints_seen) Numbering(tape).run();
}

std::vector<CheckpointRegion> open_checkpoints(const Tape& tape) {
  CheckpointPlaces places(tape, true);
  return regions_of(tape, [&](const Call& call) {
    const Place place = places.of(call);
    return place.valid() ? std::optional(place.module >= 0 ? place.module : place.frame) : std::nullopt;
  });
}

std::vector<CheckpointRegion> hidden_checkpoints(const Tape& tape) {
  const HiddenLoops loops(tape);
  return regions_of(tape, [&](const Call& call) { return loops.around(call.scope); });
}

}  // namespace memplan
