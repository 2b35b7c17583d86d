#include "estimators/runtime/torch/aten/cudnn_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "estimators/base/error.h"
#include "estimators/runtime/torch/aten/cudnn_parts.h"
#include "estimators/runtime/torch/aten/cudnn_rule_sizes.h"

namespace memplan {

namespace cudnn_rules {

namespace {

[[noreturn]] void broken_rules(std::string_view at) {
  fail(ErrorKind::internal, "data/cudnn/rules.txt cannot be read", std::string(at.substr(0, 40)));
}

/// Takes the next piece off `text`, up to `separator`.
std::string_view next_piece(std::string_view& text, char separator) {
  const auto end = std::min(text.find(separator), text.size());
  const std::string_view out = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return out;
}

std::int64_t whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) broken_rules(text);
  return value;
}

/// What a leaf or a list says: a kind of workspace, and from how much to how much of it.
struct Choice {
  std::int64_t kind, from, to;
};
using Choices = std::vector<Choice>;

struct RuleNode {
  int feature = -1;         ///< -1: a leaf, and `limit` is its kind
  std::int64_t limit = 0;   ///< a feature of at most this goes left, to the node that follows
  std::int64_t amount = 0;  ///< of a leaf
  std::size_t right = 0;
  std::size_t list = 0;  ///< of the choices around it
};

/// The tree of one architecture, number of dimensions, pass and group of types.
struct RuleTree {
  std::vector<Choices> lists;
  std::vector<RuleNode> nodes;
};

constexpr char first_feature = 'A';  ///< features are letters from here on, then what follows in ASCII

std::size_t read_nodes(RuleTree& tree, std::string_view& text, std::size_t list) {
  std::string_view word = next_piece(text, ' ');
  if (word.starts_with('@')) {
    list = static_cast<std::size_t>(whole(word.substr(1)));
    if (list >= tree.lists.size()) broken_rules(word);
    word = next_piece(text, ' ');
  }
  if (word.empty()) broken_rules("the end of a tree");
  const std::size_t at = tree.nodes.size();
  tree.nodes.emplace_back().list = list;
  if (word[0] == '.') {
    word.remove_prefix(1);
    tree.nodes[at].limit = whole(next_piece(word, ':'));
    if (!word.empty()) tree.nodes[at].amount = whole(word);
    return at;
  }
  tree.nodes[at].feature = word[0] - first_feature;
  tree.nodes[at].limit = whole(word.substr(1));
  read_nodes(tree, text, list);
  tree.nodes[at].right = read_nodes(tree, text, list);
  return at;
}

RuleTree read_tree(std::string_view lists, std::string_view nodes) {
  RuleTree tree;
  while (!lists.empty()) {
    std::string_view words = next_piece(lists, ' ');
    Choices& choices = tree.lists.emplace_back();
    while (!words.empty()) {
      std::string_view one = next_piece(words, ';');
      Choice c{};
      c.kind = whole(next_piece(one, ','));
      if (!one.empty()) c.from = whole(next_piece(one, ','));
      c.to = one.empty() ? c.from : whole(one);
      choices.push_back(c);
    }
  }
  read_nodes(tree, nodes, 0);
  return tree;
}

/// Of which trees there are; each is read when a run wants it.
using Key = std::array<int, 4>;  // architecture, dimensions, pass, 1: types of two bytes
constexpr int near_a_table = 1;  // in the place of the dimensions: a tree of images alone that are nearly a table's

using Texts = std::map<Key, std::pair<std::string_view, std::string_view>>;  // lists, nodes

const std::vector<Kind>& all_kinds() {
  static const std::vector<Kind> kinds = [] {
    std::vector<Kind> out;
    std::string_view text = cudnn_parts::part("rules", "kinds");
    std::string_view line = next_piece(text, '\n');
    next_piece(line, ' ');  // "kinds"
    while (!line.empty()) out.push_back(kind_of(next_piece(line, ' ')));
    return out;
  }();
  return kinds;
}

Texts texts_of(int sm) {
  Texts out;
  std::string_view text = cudnn_parts::part("rules", sm);
  while (!text.empty()) {
    std::string_view line = next_piece(text, '\n');
    if (next_piece(line, ' ') != "tree") continue;
    Key key;
    for (int& v : key) v = static_cast<int>(whole(next_piece(line, ' ')));
    const std::string_view lists = next_piece(text, '\n');
    out[key] = {lists, next_piece(text, '\n')};
  }
  return out;
}

/// The tree for a key, of the architecture itself, else of the one before it, else of the one after it.
std::shared_ptr<const RuleTree> tree_for(Key& key) {
  static std::mutex mutex;
  static std::map<int, Texts> texts;
  static std::map<Key, std::shared_ptr<const RuleTree>> known;
  const std::vector<int>& cards = cudnn_parts::cards_of("rules");
  const auto after = std::upper_bound(cards.begin(), cards.end(), key[0]);
  std::vector<int> nearest(std::make_reverse_iterator(after), cards.rend());
  nearest.insert(nearest.end(), after, cards.end());
  const std::lock_guard lock(mutex);
  for (const int sm : nearest) {
    const auto [of, missing] = texts.try_emplace(sm);
    if (missing) of->second = texts_of(sm);
    Key there = key;
    there[0] = sm;
    const auto text = of->second.find(there);
    if (text == of->second.end()) continue;
    key = there;
    auto& tree = known[key];
    if (!tree) tree = std::make_shared<const RuleTree>(read_tree(text->second.first, text->second.second));
    return tree;
  }
  return nullptr;
}

/// The largest power of two that divides it, at most 64.
double divisor_of(std::int64_t value) { return static_cast<double>(std::min<std::int64_t>(value & -value, 64)); }
double tiles_in(double value) { return std::ceil(value / 128); }

/// What the trees look at, in the order of features() in tools/cudnn_workspaces/rules.py. Doubles, since products of
/// sizes overflow; they are compared as floats, as the trees were learnt.
std::vector<double> features_of(const ConvProblem& p, const Sizes& s) {
  const auto real = [](std::int64_t v) { return static_cast<double>(v); };
  const double n = real(s.batch), c = real(s.channels), k = real(s.outputs);
  const double cg = real(s.group_channels), kg = real(s.group_outputs);
  std::vector<double> f{
      s.channels_last ? 1. : 0., p.dtype == DType::bfloat16 ? 1. : 0., n, c, k, cg, kg, real(s.groups)};
  const int dimensions = static_cast<int>(p.input.size()) - 2;
  for (int d = 0; d < dimensions; ++d)
    for (const std::int64_t v :
         {p.input[d + 2], p.output[d + 2], p.weight[d + 2], p.stride[d], p.dilation[d], p.padding[d]})
      f.push_back(real(v));
  const double in = real(s.in), out = real(s.out), r = real(s.kernel);
  const double tiles = tiles_in(kg) * tiles_in(cg * r);
  f.insert(f.end(), {in, out, r, n * out, n * in, cg * r, kg * r, n * in * c, n * out * k, k * cg * r,
                     divisor_of(s.group_channels), divisor_of(s.group_outputs), n * out * k * cg * r, tiles,
                     tiles_in(n * out) * tiles_in(kg), tiles_in(n * in) * tiles_in(cg), std::floor(n * out / tiles)});
  return f;
}

const RuleNode& leaf_of(const RuleTree& tree, const std::vector<double>& features) {
  const RuleNode* node = &tree.nodes[0];
  while (node->feature >= 0) {
    const auto feature = static_cast<std::size_t>(node->feature);
    if (feature >= features.size()) broken_rules("a feature");
    const auto value = static_cast<double>(static_cast<float>(features[feature]));
    node = value <= static_cast<double>(node->limit) ? node + 1 : &tree.nodes[node->right];
  }
  return *node;
}

const Kind& kind_at(std::int64_t row) { return all_kinds().at(static_cast<std::size_t>(row)); }

}  // namespace

}  // namespace cudnn_rules

std::optional<RuledWorkspace> ruled_workspace(const ConvProblem& p, ConvPass pass, int sm, bool near_table) {
  using namespace cudnn_rules;
  const int dimensions = near_table ? near_a_table : static_cast<int>(p.input.size()) - 2;
  Key key{sm, dimensions, static_cast<int>(pass), p.dtype == DType::float32 ? 0 : 1};
  const auto tree = tree_for(key);
  if (!tree || p.input.product() == 0 || p.output.product() == 0 || p.weight.product() == 0) return std::nullopt;
  const Sizes sizes = sizes_of(p, pass);
  if (sizes.group_channels < 1 || sizes.group_outputs < 1) return std::nullopt;
  const RuleNode& leaf = leaf_of(*tree, features_of(p, sizes));
  // Where the leaf knows of no engine and there is one all the same, it is one of those around.
  const Choices& around = tree->lists.at(leaf.list);
  Choice usual{leaf.limit, leaf.amount, leaf.amount};
  if (kind_at(usual.kind).letter == 'N') {
    const auto other =
        std::find_if(around.begin(), around.end(), [&](const Choice& c) { return kind_at(c.kind).letter != 'N'; });
    if (other == around.end()) return std::nullopt;
    usual = *other;
  }
  RuledWorkspace out;
  out.usual = out.least = out.most = Bytes(bytes_of_kind(kind_at(usual.kind), usual.from, sizes));
  for (const Choice& c : around)
    for (const std::int64_t amount : {c.from, c.to}) {
      const Bytes bytes(bytes_of_kind(kind_at(c.kind), amount, sizes));
      out.least = std::min(out.least, bytes);
      out.most = std::max(out.most, bytes);
    }
  // Amounts of partial sums were seen at other sizes: both ends at once are more than happens.
  out.most = std::max(out.usual, std::min(out.most, Bytes(seldom_more_than(sizes))));
  // Which table stands behind copies is told least of all.
  if (out.most > Bytes()) out.most = out.most + Bytes(largest_table());
  out.own_card = key[0] == sm;
  return out;
}

}  // namespace memplan
