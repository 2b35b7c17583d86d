#include "estimators/transforms/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"
#include "estimators/transforms/blocks.h"

namespace memplan {

namespace {

class Marker {
 public:
  explicit Marker(const Tape& tape) : tape_(tape), spans_(tape) {}

  /// Calls of the outermost of these modules, in the order of the forward pass.
  std::vector<CheckpointRegion> regions(const std::set<std::int32_t>& scopes) const {
    std::vector<CheckpointRegion> out;
    for (std::int32_t s : outermost(tape_, scopes))
      if (spans_.first[static_cast<std::size_t>(s)] >= 0)
        out.push_back({spans_.first[static_cast<std::size_t>(s)], spans_.last[static_cast<std::size_t>(s)], s, {}});
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return out;
  }

  /// Neighbours of one list of modules, as many at a time as the first level says; inside of these as the next one says
  /// …
  std::vector<CheckpointRegion> groups(const std::vector<std::int64_t>& levels) const {
    std::vector<CheckpointRegion> out;
    for (const auto& list : lists()) add_groups(list, 0, list.size(), levels, 0, out);
    return out;
  }

  /// The repeated blocks that follow each other in one list of modules.
  std::vector<std::vector<CheckpointRegion>> lists() const {
    std::vector<std::vector<CheckpointRegion>> out;
    std::string_view list;
    for (const CheckpointRegion& r : regions(repeated_modules(tape_))) {
      const std::string_view owner = without_number(scope(r.scope).path);
      if (out.empty() || owner != list || out.back().back().last + 1 != r.first) out.emplace_back();
      out.back().push_back(r);
      list = owner;
    }
    return out;
  }

  std::vector<CheckpointRegion> possible() const {
    std::map<std::string_view, int> calls;
    for (const Scope& s : tape_.scopes) ++calls[s.path];
    std::vector<CheckpointRegion> out;
    std::map<std::int32_t, std::vector<CheckpointRegion>> sequences;  // children of each nn.Sequential
    for (std::size_t i = 0; i < tape_.scopes.size(); ++i) {
      const Scope& s = tape_.scopes[i];
      const auto id = static_cast<std::int32_t>(i);
      if (s.path.empty() || s.parent < 0 || spans_.first[i] < 0 || calls[s.path] != 1 || !together(id) ||
          takes_list(spans_.first[i], spans_.last[i]))
        continue;
      out.push_back({spans_.first[i], spans_.last[i], id, {}});
      if (scope(s.parent).module_class == "torch.nn.modules.container.Sequential")
        sequences[s.parent].push_back(out.back());
    }
    for (auto& [parent, members] : sequences) {
      std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (std::size_t i = 0; i < members.size(); ++i) {
        CheckpointRegion run = members[i];
        // All of them are the nn.Sequential itself.
        for (std::size_t k = i + 1; k < members.size() && !(i == 0 && k + 1 == members.size()); ++k) {
          if (members[k].first != run.last + 1) break;
          run.last = members[k].last;
          run.others.push_back(members[k].scope);
          out.push_back(run);
        }
      }
    }
    return out;
  }

  /// "layer1.0+layer1.1": modules that follow each other, as one stretch; "(a+b)+(c)+d": such stretches inside of one.
  /// Each is followed by those inside of it. Empty where the words are none, or modules do not follow each other.
  std::vector<CheckpointRegion> chained(std::string_view text) const {
    std::vector<CheckpointRegion> out;
    if (!add_chain(text, out) || !text.empty()) return {};
    return out;
  }

  /// Of the repeated blocks every nth.
  std::set<std::int32_t> every(std::int64_t n) const {
    std::set<std::int32_t> out;
    std::int64_t count = 0;
    for (const CheckpointRegion& r : regions(repeated_modules(tape_)))
      if (++count % n == 0) out.insert(r.scope);
    return out;
  }

 private:
  static void join(CheckpointRegion& stretch, const CheckpointRegion& next) {
    if (stretch.scope < 0)
      stretch.first = next.first, stretch.scope = next.scope;
    else
      stretch.others.push_back(next.scope);
    stretch.others.insert(stretch.others.end(), next.others.begin(), next.others.end());
    stretch.last = next.last;
  }

  static void add_groups(const std::vector<CheckpointRegion>& blocks, std::size_t begin, std::size_t end,
                         const std::vector<std::int64_t>& levels, std::size_t level,
                         std::vector<CheckpointRegion>& out) {
    if (level == levels.size()) return;
    const auto n = static_cast<std::size_t>(levels[level]);
    for (std::size_t i = begin; i < end; i += n) {
      const std::size_t stop = std::min(end, i + n);
      // What is left over can be no more than the group around it: one checkpoint is enough.
      if (level == 0 || stop - i < end - begin) {
        CheckpointRegion& group = out.emplace_back();
        for (std::size_t k = i; k < stop; ++k) join(group, blocks[k]);
      }
      add_groups(blocks, i, stop, levels, level + 1, out);
    }
  }

  /// Reads members up to the end or to a ')'.
  bool add_chain(std::string_view& text, std::vector<CheckpointRegion>& out) const {
    const std::size_t at = out.size();
    out.emplace_back();
    for (;;) {
      CheckpointRegion member;
      if (text.starts_with('(')) {
        text.remove_prefix(1);
        const std::size_t inner = out.size();
        if (!add_chain(text, out) || !text.starts_with(')')) return false;
        text.remove_prefix(1);
        member = out[inner];
      } else {
        const std::size_t end = std::min(text.find_first_of("+()"), text.size());
        const std::set<std::int32_t> found = matching_modules(tape_, std::string(text.substr(0, end)));
        text.remove_prefix(end);
        if (found.size() != 1) return false;
        const auto s = static_cast<std::size_t>(*found.begin());
        member = {spans_.first[s], spans_.last[s], *found.begin(), {}};
      }
      if (member.first < 0 || (out[at].scope >= 0 && out[at].last + 1 != member.first)) return false;
      join(out[at], member);
      if (!text.starts_with('+')) return true;
      text.remove_prefix(1);
    }
  }

  /// A call joins several tensors from outside, or one in a list that is joined again behind the stretch with more in
  /// it: the module was probably handed a list, which its owner goes on to fill (the layers of a DenseNet; the first of
  /// them gets a list of one), so that it would be another one when the module runs again.
  bool takes_list(std::int32_t first, std::int32_t last) const {
    std::set<std::int32_t> inside;
    for (std::int32_t i = first; i <= last; ++i) {
      const Call& call = tape_.calls[static_cast<std::size_t>(i)];
      for (const Arg& arg : call.args) {
        const auto* list = std::get_if<Arg::List>(&arg.value);
        if (!list) continue;
        const auto from_outside = std::count_if(list->begin(), list->end(), [&](const Arg& item) {
          const auto* id = std::get_if<ValueId>(&item.value);
          return id && id->valid() && tape_.values[static_cast<std::size_t>(id->index)].kind == ValueKind::computed &&
                 !inside.count(id->index);
        });
        if (!call.op.starts_with("aten::cat")) continue;
        if (from_outside > 1 || (from_outside == 1 && list->size() == 1 && grows_behind(*list, last))) return true;
      }
      for (ValueId id : call.outputs) inside.insert(id.index);
    }
    return false;
  }

  /// A call after `last` joins what this list of one holds and more.
  bool grows_behind(const Arg::List& list, std::int32_t last) const {
    const ValueId item = std::get<ValueId>(list[0].value);
    for (auto i = static_cast<std::size_t>(last) + 1; i < tape_.calls.size(); ++i)
      for (const Arg& arg : tape_.calls[i].args)
        if (const auto* other = std::get_if<Arg::List>(&arg.value);
            other && other->size() > 1 && tape_.calls[i].op.starts_with("aten::cat"))
          if (const auto* id = std::get_if<ValueId>(&(*other)[0].value); id && id->index == item.index) return true;
    return false;
  }

  /// No call of another module stands between those of `s`.
  bool together(std::int32_t s) const {
    for (std::int32_t i = spans_.first[static_cast<std::size_t>(s)]; i <= spans_.last[static_cast<std::size_t>(s)];
         ++i) {
      std::int32_t p = tape_.calls[static_cast<std::size_t>(i)].scope;
      while (p >= 0 && p != s) p = scope(p).parent;
      if (p != s) return false;
    }
    return true;
  }

  const Scope& scope(std::int32_t s) const { return tape_.scopes[static_cast<std::size_t>(s)]; }

  const Tape& tape_;
  ScopeSpans spans_;
};

}  // namespace

namespace {

/// The N of "every:N" and "groups:N".
std::int64_t number_of(const std::string& word, std::size_t blocks) {
  const std::int64_t n = std::strtoll(word.c_str() + word.find(':') + 1, nullptr, 10);
  if (n < 1)
    fail(ErrorKind::usage, fmt::format("'{}' does not say how many blocks", word), setting(Field::checkpoint, word),
         "write every:2 or groups:2");
  if (static_cast<std::size_t>(n) > blocks)
    fail(ErrorKind::usage, fmt::format("the model has {} repeated blocks", blocks), setting(Field::checkpoint, word),
         "give a smaller number");
  return n;
}

/// "groups:16/groups:4/blocks": the sizes of the groups, from outside to inside.
std::vector<std::int64_t> levels_of(const std::string& glob, std::size_t blocks) {
  std::vector<std::int64_t> levels;
  for (std::size_t begin = 0; begin <= glob.size();) {
    const std::size_t end = std::min(glob.find('/', begin), glob.size());
    const std::string word = glob.substr(begin, end - begin);
    begin = end + 1;
    if (word != "blocks" && !word.starts_with("groups:"))
      fail(ErrorKind::usage, fmt::format("'{}' is no group of blocks", word), setting(Field::checkpoint, glob),
           "write groups:4/blocks, or groups:16/groups:4/blocks");
    const std::int64_t n = word == "blocks" ? 1 : number_of(word, blocks);
    if (!levels.empty() && n >= levels.back())
      fail(ErrorKind::usage, fmt::format("'{}' is not inside of groups of {}", word, levels.back()),
           setting(Field::checkpoint, glob), "go from larger groups to smaller ones");
    levels.push_back(n);
  }
  return levels;
}

}  // namespace

void checkpoint_modules(Tape& tape, const std::vector<std::string>& globs) {
  tape.checkpoints.clear();
  if (globs.empty()) return;
  Marker marker(tape);
  std::set<std::int32_t> wanted;
  std::vector<CheckpointRegion> chains;
  for (const std::string& glob : globs) {
    if (glob.find_first_of("+(") != std::string::npos) {
      const auto chain = marker.chained(glob);
      if (chain.empty())
        fail(ErrorKind::usage, fmt::format("'{}' are no modules that run one after the other", glob),
             setting(Field::checkpoint, glob), "join neighbours of one list, as in layer1.0+layer1.1");
      chains.insert(chains.end(), chain.begin(), chain.end());
      continue;
    }
    const bool every = glob.starts_with("every:"), groups = glob.starts_with("groups:"),
               repeated = every || groups || glob == "blocks";
    if (repeated && repeated_modules(tape).empty()) no_such_module(tape, glob, Field::checkpoint);
    const std::size_t blocks = every || groups ? marker.regions(repeated_modules(tape)).size() : 0;
    if (groups) {
      if (globs.size() > 1)
        fail(ErrorKind::usage, fmt::format("'{}' takes all blocks, so nothing can be named beside it", glob),
             setting(Field::checkpoint, glob), "give it alone");
      tape.checkpoints = marker.groups(levels_of(glob, blocks));
      return;
    }
    const auto found = every      ? marker.every(number_of(glob, blocks))
                       : repeated ? repeated_modules(tape)
                                  : matching_modules(tape, glob);
    if (found.empty()) no_such_module(tape, glob, Field::checkpoint);
    wanted.insert(found.begin(), found.end());
  }
  tape.checkpoints = marker.regions(wanted);
  tape.checkpoints.insert(tape.checkpoints.end(), chains.begin(), chains.end());
  const auto of_chain = [&](const CheckpointRegion& r) {
    return std::any_of(chains.begin(), chains.end(),
                       [&](const CheckpointRegion& c) { return c.first == r.first && c.last == r.last; });
  };
  // Inner stretches stand behind the one around them already.
  std::stable_sort(tape.checkpoints.begin(), tape.checkpoints.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.last > b.last;
  });
  for (std::size_t i = 1; i < tape.checkpoints.size(); ++i) {
    const CheckpointRegion &before = tape.checkpoints[i - 1], &r = tape.checkpoints[i];
    const bool inner = of_chain(r) && of_chain(before) && r.last <= before.last;
    if (r.first <= before.last && !inner)
      fail(ErrorKind::usage, "two of the modules to checkpoint contain the same calls", setting(Field::checkpoint),
           "name each module once");
  }
}

bool nests(const Tape& tape) {
  for (std::size_t i = 1; i < tape.checkpoints.size(); ++i)
    if (tape.checkpoints[i].first <= tape.checkpoints[i - 1].last) return true;
  return false;
}

std::vector<CheckpointRegion> possible_regions(const Tape& tape) { return Marker(tape).possible(); }

std::vector<std::vector<CheckpointRegion>> lists_of_blocks(const Tape& tape) { return Marker(tape).lists(); }

namespace {

/// The members of the `at`th stretch: modules, and stretches inside of it. Moves `at` behind them.
CheckpointStretch stretch_at(const Tape& tape, std::size_t& at) {
  const CheckpointRegion& r = tape.checkpoints[at++];
  CheckpointStretch stretch;
  std::vector<std::int32_t> modules{r.scope};
  modules.insert(modules.end(), r.others.begin(), r.others.end());
  for (std::size_t m = 0; m < modules.size();) {
    if (at < tape.checkpoints.size() && tape.checkpoints[at].last <= r.last &&
        tape.checkpoints[at].scope == modules[m]) {
      m += 1 + tape.checkpoints[at].others.size();
      stretch.members.push_back(stretch_at(tape, at));
    } else {
      CheckpointStretch module;
      module.path = tape.scopes[static_cast<std::size_t>(modules[m++])].path;
      stretch.members.push_back(std::move(module));
    }
  }
  return stretch;
}

std::string word_of(const CheckpointStretch& stretch) {
  std::string out;
  for (const CheckpointStretch& m : stretch.members)
    out += (out.empty() ? "" : "+") + (m.members.empty() ? m.path : "(" + word_of(m) + ")");
  return out;
}

}  // namespace

std::vector<CheckpointStretch> checkpoint_stretches(const Tape& tape) {
  std::vector<CheckpointStretch> out;
  for (std::size_t at = 0; at < tape.checkpoints.size();) out.push_back(stretch_at(tape, at));
  return out;
}

std::vector<std::string> checkpoint_words(const Tape& tape) {
  std::vector<std::string> out;
  for (const CheckpointStretch& s : checkpoint_stretches(tape)) out.push_back(word_of(s));
  return out;
}

}  // namespace memplan
