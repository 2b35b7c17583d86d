#include "estimators/restore/checkpoint_lines.h"

#include <algorithm>
#include <charconv>
#include <string>
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

/// Where a call stands in such a line.
struct Place {
  std::int32_t frame = -1;   ///< scope of the line
  std::int32_t module = -1;  ///< scope of the module that the line calls; -1: the call is the line's own
  std::string_view source;
  bool valid() const { return !source.empty(); }
};

class Numbering {
 public:
  explicit Numbering(Tape& tape) : tape_(tape) {}

  void run() {
    for (Call& call : tape_.calls) next_ = std::max(next_, call.checkpoint + 1);
    for (std::size_t i = 0; i < tape_.calls.size();) i = number_line(i);
  }

 private:
  static bool checkpoints(const std::string& source) { return calls_checkpoint(source) && !may_checkpoint(source); }

  Place place_of(const Call& call) const {
    Place found;
    if (checkpoints(call.source)) found = {call.scope, -1, call.source};
    for (std::int32_t s = call.scope; s >= 0; s = scope_at(tape_, s).parent)
      if (const Scope& scope = scope_at(tape_, s); checkpoints(scope.source)) found = {scope.parent, s, scope.source};
    return found;
  }

  /// Numbers the calls from `first` on that stand in its line; the first one behind them.
  std::size_t number_line(std::size_t first) {
    const Place line = place_of(tape_.calls[first]);
    if (!line.valid()) return first + 1;
    std::vector<std::size_t> begins;
    std::size_t i = first;
    Place last = line;
    for (; i < tape_.calls.size(); ++i) {
      const Place now = place_of(tape_.calls[i]);
      if (now.frame != line.frame || now.source != line.source) break;
      if (begins.empty() || begins_stretch(tape_.calls[begins.back()], last, now)) begins.push_back(i);
      last = now;
    }
    number(begins, i, line_of(line.source).segments);
    return i;
  }

  bool begins_stretch(const Call& first, const Place& last, const Place& now) const {
    if (now.module < 0 || now.module == last.module) return false;
    const std::string_view function = line_of(now.source).function;
    const std::string& path = scope_at(tape_, now.module).path;
    const bool module = is_name(function) || path.ends_with(function.substr(function.rfind('.') + 1));
    if (module || function.empty()) return true;
    const Place began = place_of(first);
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
  std::int32_t next_ = 0;
};

}  // namespace

bool calls_checkpoint(std::string_view source) {
  return source.find("checkpoint(") != std::string_view::npos || source.find(sequential) != std::string_view::npos ||
         source.find("checkpoint_seq(") != std::string_view::npos ||
         source.find("checkpointing_func(") != std::string_view::npos;
}

bool may_checkpoint(std::string_view source) { return source.find(" else ") != std::string_view::npos; }

void number_checkpointed_lines(Tape& tape) { Numbering(tape).run(); }

}  // namespace memplan
