#include "estimators/restore/lifetimes.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

#include "estimators/restore/statement.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// Consecutive things that one line of a frame did: calls of its own, or modules that it called.
struct Line {
  std::int32_t first = 0, last = 0;  ///< tape calls
  std::string_view source;
};

class Frames {
 public:
  explicit Frames(const Tape& tape) : tape_(tape), frames_(tape.scopes.size() + 1) {
    for (std::size_t i = 0; i < tape.calls.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i);
      std::int32_t scope = tape.calls[i].scope;
      add(scope, at, tape.calls[i].source, -1);
      for (std::int32_t s = scope; s >= 0; s = tape.scopes[static_cast<std::size_t>(s)].parent)
        add(tape.scopes[static_cast<std::size_t>(s)].parent, at, tape.scopes[static_cast<std::size_t>(s)].source, s);
    }
    depth_.resize(tape.scopes.size());
    for (std::size_t s = 0; s < tape.scopes.size(); ++s) {
      const std::int32_t p = tape.scopes[s].parent;
      depth_[s] = p < 0 ? 1 : depth_[static_cast<std::size_t>(p)] + 1;  // a parent is made before its children
    }
    for (std::size_t f = 0; f < frames_.size(); ++f) {
      if (frames_[f].lines.empty()) continue;
      split_turns(frames_[f], static_cast<std::int32_t>(f) - 1);
      parse(frames_[f]);
    }
  }

  std::int32_t parent(std::int32_t scope) const { return tape_.scopes[static_cast<std::size_t>(scope)].parent; }
  int depth(std::int32_t scope) const { return scope < 0 ? 0 : depth_[static_cast<std::size_t>(scope)]; }
  std::int32_t end(std::int32_t scope) const {
    return frame(scope).lines.empty() ? -1 : frame(scope).lines.back().last;
  }

  std::int32_t common(std::int32_t a, std::int32_t b) const {
    while (depth(a) > depth(b)) a = parent(a);
    while (depth(b) > depth(a)) b = parent(b);
    while (a != b) a = parent(a), b = parent(b);
    return a;
  }

  /// The last call of what `top`'s frame was doing at call `at`, which happened in `scope`: an argument is held until
  /// the module that got it returns.
  std::int32_t settled(std::int32_t top, std::int32_t scope, std::int32_t at) const {
    std::int32_t child = -2;
    for (std::int32_t s = scope; s != top && s >= 0; s = parent(s)) child = s;
    return child == -2 ? at : end(child);
  }

  /// Index of the line of `scope` that contains call `at`.
  std::size_t line_of(std::int32_t scope, std::int32_t at) const {
    const auto& lines = frame(scope).lines;
    const auto it =
        std::upper_bound(lines.begin(), lines.end(), at, [](std::int32_t n, const Line& l) { return n < l.first; });
    return static_cast<std::size_t>(it - lines.begin()) - 1;
  }
  const Line& line(std::int32_t scope, std::size_t i) const { return frame(scope).lines[i]; }

  /// Where the names that line `i` binds to its `k`-th result are all bound again, or the end of the frame; -1 when the
  /// line binds no name.
  std::int32_t rebound(std::int32_t scope, std::size_t i, std::size_t k) const {
    const Frame& f = frame(scope);
    const auto& until = f.rebound[i];
    return until.empty() ? -1 : until[std::min(k, until.size() - 1)];
  }

 private:
  struct Frame {
    std::vector<Line> lines;
    std::vector<std::vector<std::int32_t>> rebound;  ///< per line and position among its targets
    std::int32_t last_child = -1;
  };

  Frame& frame(std::int32_t scope) { return frames_[static_cast<std::size_t>(scope + 1)]; }
  const Frame& frame(std::int32_t scope) const { return frames_[static_cast<std::size_t>(scope + 1)]; }

  void add(std::int32_t scope, std::int32_t at, std::string_view source, std::int32_t child) {
    Frame& f = frame(scope);
    // A line that runs again in a loop joins its last run: what each turn hands to the next is used there anyway.
    if (!f.lines.empty() && (f.lines.back().source == source && !source.empty())) {
      f.lines.back().last = at;
    } else if (!f.lines.empty() && child >= 0 && f.last_child == child) {
      f.lines.back().last = at;
    } else {
      f.lines.push_back({at, at, source});
    }
    f.last_child = child;
  }

  /// A loop runs its line several times in a row. Where what the line does is periodic, each period is one turn, and
  /// its names are bound anew in every turn. (`a, b = f(a), f(b)` is periodic as well and stays one line.)
  void split_turns(Frame& f, std::int32_t scope) const {
    std::vector<Line> lines;
    for (const Line& line : f.lines) {
      const Statement s = parse_statement(line.source);
      const bool one_name = !s.targets.empty() && std::all_of(s.targets.begin(), s.targets.end(),
                                                              [](const auto& names) { return names.size() == 1; });
      const std::size_t period = !one_name ? 0 : calls_one_module(scope, line, s.value) ? 1 : period_of(scope, line);
      if (period == 0) {
        lines.push_back(line);
        continue;
      }
      const std::vector<Item> items = items_of(scope, line);
      for (std::size_t i = 0; i < items.size(); i += period)
        lines.push_back({items[i].first, items[i + period - 1].last, line.source});
    }
    f.lines = std::move(lines);
  }

  struct Item {
    std::int32_t first, last;
    std::string_view what;  ///< op or module class
  };

  /// What a line did: calls of the frame's own and modules called.
  std::vector<Item> items_of(std::int32_t scope, const Line& line) const {
    std::vector<Item> items;
    std::int32_t child_before = -1;
    for (std::int32_t at = line.first; at <= line.last; ++at) {
      const Call& call = tape_.calls[static_cast<std::size_t>(at)];
      std::int32_t child = -1, s = call.scope;
      for (; s != scope && s >= 0; s = parent(s)) child = s;
      if (s != scope) continue;  // a damaged file may leave a module and come back to the same line of it
      if (child >= 0 && child == child_before && !items.empty())
        items.back().last = at;
      else
        items.push_back({at, at,
                         child < 0 ? std::string_view(call.op)
                                   : std::string_view(tape_.scopes[static_cast<std::size_t>(child)].module_class)});
      child_before = child;
    }
    return items;
  }

  /// A line such as nn.Sequential's "input = module(input)": one call, of a local name, that only modules answered. It
  /// calls one module per turn, whatever their order looks like.
  bool calls_one_module(std::int32_t scope, const Line& line, std::string_view value) const {
    const auto open = value.find('(');
    if (open == std::string_view::npos || value.find('(', open + 1) != std::string_view::npos || value.back() != ')')
      return false;
    if (value.substr(0, open).find('.') != std::string_view::npos) return false;
    for (std::int32_t at = line.first; at <= line.last; ++at)
      if (tape_.calls[static_cast<std::size_t>(at)].scope == scope) return false;
    return true;
  }

  /// Items per turn, or 0 for a line that ran once.
  std::size_t period_of(std::int32_t scope, const Line& line) const {
    const std::vector<Item> items = items_of(scope, line);
    for (std::size_t p = 1; p <= items.size() / 2; ++p) {
      if (items.size() % p != 0) continue;
      bool repeats = true;
      for (std::size_t i = p; repeats && i < items.size(); ++i) repeats = items[i].what == items[i - p].what;
      if (repeats) return p;
    }
    return 0;
  }

  /// "skips = [self.inc(x)]" followed somewhere by "skips.pop()": the name holds the list, which gives its elements
  /// away.
  static bool gives_away(const Frame& f, std::string_view name, std::string_view value) {
    if (value.empty() || value.front() != '[') return false;
    const std::string pop = std::string(name) + ".pop(";
    return std::any_of(f.lines.begin(), f.lines.end(),
                       [&](const Line& l) { return l.source.find(pop) != std::string_view::npos; });
  }

  static void parse(Frame& f) {
    const std::int32_t end = f.lines.back().last;
    f.rebound.resize(f.lines.size());
    std::unordered_map<std::string_view, std::int32_t> next;  // where a name is bound next
    for (std::size_t i = f.lines.size(); i-- > 0;) {
      const Statement s = parse_statement(f.lines[i].source);
      std::size_t width = 0;
      for (const auto& names : s.targets) width = std::max(width, names.size());
      f.rebound[i].assign(width, -1);
      for (const auto& names : s.targets)
        for (std::size_t k = 0; k < width; ++k) {
          if (gives_away(f, names[0], s.value)) continue;
          const auto it = next.find(names[names.size() == 1 ? 0 : std::min(k, names.size() - 1)]);
          // An attribute outlives the frame; nobody can see how long, so the frame's end stands for it.
          f.rebound[i][k] = std::max(f.rebound[i][k], it == next.end() ? end : it->second);
        }
      for (const auto& names : s.targets)
        for (std::string_view name : names) next[name] = f.lines[i].last;
    }
  }

  const Tape& tape_;
  std::vector<Frame> frames_;  ///< [0] is the program outside of all modules
  std::vector<int> depth_;
};

bool is_recurrent(std::string_view op) {
  return op == "aten::lstm.input" || op == "aten::gru.input" || op == "aten::rnn_tanh.input" ||
         op == "aten::rnn_relu.input";
}

/// Names inside of plain functions are not in the file. Where one holds something large that the function's next op has
/// used up, it is listed here: the text by which a line calls the function, and the op whose result the name holds (the
/// first of its kind on the line).
struct FunctionName {
  std::string_view called, op;
};
constexpr FunctionName function_names[] = {
    {"self.bn_function(", "aten::cat"},  // torchvision densenet.py: concated_features
    // torchvision swin_transformer.py: qkv, q and attn
    {"shifted_window_attention(", "aten::linear"},
    {"shifted_window_attention(", "aten::mul.Tensor"},
    {"shifted_window_attention(", "aten::softmax.int"},
    {"F.multi_head_attention_forward(",
     "aten::contiguous"},  // torch/nn/functional.py: q, k and v, views of one projection
};

bool held_by_function(std::string_view source, std::string_view op) {
  return std::any_of(std::begin(function_names), std::end(function_names), [&](const FunctionName& f) {
    return op == f.op && source.find(f.called) != std::string_view::npos;
  });
}

}  // namespace

void mark_last_uses(Tape& tape) {
  for (Call& call : tape.calls) call.last_uses.clear();
  Frames frames(tape);
  struct Life {
    std::int32_t born = -1, last = -1;
    std::int32_t top = -1;  ///< frame that sees the definition and all uses
    bool kept = false;
  };
  std::vector<Life> lives(tape.values.size());
  const auto at_index = [](ValueId id) { return static_cast<std::size_t>(id.index); };
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    auto use = [&](ValueId id) {
      Life& l = lives[at_index(id)];
      if (l.born < 0) return;
      l.top = frames.common(l.top, call.scope);
      l.last = static_cast<std::int32_t>(i);
    };
    for_each_value(call, use);
    // What an nn.LSTM returns besides its output is often not used, but the caller's names hold it.
    const bool recurrent = call.scope >= 0 && is_recurrent(call.op);
    for (ValueId id : call.outputs)
      if (id.valid())
        lives[at_index(id)] = {static_cast<std::int32_t>(i), static_cast<std::int32_t>(i),
                               recurrent ? frames.parent(call.scope) : call.scope, false};
  }
  for (ValueId id : tape.outputs)
    if (id.valid()) lives[at_index(id)].kept = true;
  // transformers' encoder-decoder models return the encoder's result as well (Seq2SeqModelOutput), though nothing of
  // the graph reads it any more.
  std::int64_t by_class = 0, by_function = 0, by_line = 0;
  for (Life& l : lives) {
    if (l.born < 0 || l.top < 0) continue;
    const Scope& owner = tape.scopes[static_cast<std::size_t>(l.top)];
    if (owner.parent < 0 || !owner.module_class.starts_with("transformers.") || !owner.module_class.ends_with("Model"))
      continue;
    std::int32_t child = tape.calls[static_cast<std::size_t>(l.born)].scope;
    while (child != l.top && frames.parent(child) != l.top) child = frames.parent(child);
    if (child != l.top && tape.scopes[static_cast<std::size_t>(child)].path.ends_with(".encoder")) {
      l.top = owner.parent;
      ++by_class;
    }
  }
  // Where each use settles depends on the final `top`, so a second walk.
  std::vector<std::int32_t> release(tape.values.size(), -1);
  for (std::size_t v = 0; v < lives.size(); ++v)
    if (lives[v].born >= 0)
      release[v] =
          frames.settled(lives[v].top, tape.calls[static_cast<std::size_t>(lives[v].born)].scope, lives[v].born);
  for (std::size_t i = 0; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    auto use = [&](ValueId id) {
      const Life& l = lives[at_index(id)];
      if (l.born < 0 || l.born == static_cast<std::int32_t>(i)) return;
      release[at_index(id)] =
          std::max(release[at_index(id)], frames.settled(l.top, call.scope, static_cast<std::int32_t>(i)));
    };
    for_each_value(call, use);
  }
  // Values are numbered in the order of the calls that make them, so the results of a line come in the order in which
  // it computes them: the first goes to its first target.
  std::map<std::pair<std::int32_t, std::size_t>, std::size_t> results;
  for (std::size_t v = 0; v < lives.size(); ++v) {
    const Life& l = lives[v];
    if (l.born < 0) continue;
    std::int32_t until = release[v];
    const std::size_t line = frames.line_of(l.top, l.born);
    // A value that its line made and used up was a temporary; the others got the line's names.
    const bool outlives = l.kept || until > frames.line(l.top, line).last;
    const bool result = outlives || frames.settled(l.top, tape.calls[static_cast<std::size_t>(l.born)].scope, l.born) ==
                                        frames.line(l.top, line).last;
    const std::string& op = tape.calls[static_cast<std::size_t>(l.born)].op;
    if (held_by_function(frames.line(l.top, line).source, op)) {
      bool first = true;
      for (std::int32_t i = frames.line(l.top, line).first; i < l.born; ++i)
        first = first && tape.calls[static_cast<std::size_t>(i)].op != op;
      if (first) until = std::max(until, frames.line(l.top, line).last), ++by_function;
    }
    const std::int32_t without_names = until;
    if (result) until = std::max(until, frames.rebound(l.top, line, results[{l.top, line}]++));
    by_line += until > without_names;
    if (!l.kept) tape.calls[static_cast<std::size_t>(until)].last_uses.push_back({static_cast<std::int32_t>(v)});
  }
  // The pass runs again after every change of the tape: only its last word counts.
  std::erase_if(tape.notes, [](const Fact& f) { return f.about == About::lifetime; });
  const auto tell = [&](std::int64_t count, Evidence evidence, const char* text) {
    if (count > 0) tape.notes.push_back({{}, text, evidence, About::lifetime, {}, {}, -1, count, {}});
  };
  tell(by_line, Evidence::told_by_source_line, "values that a name of the forward pass keeps beyond their last use");
  tell(by_function, Evidence::told_by_name, "values that a name inside of a known function keeps");
  tell(by_class, Evidence::told_by_name, "results of an encoder that the model's class returns");
}

}  // namespace memplan
