#include "estimators/runtime/ort/node_stats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "estimators/runtime/ort/arena.h"
#include "estimators/runtime/ort/prepared.h"
#include "estimators/runtime/ort/session.h"

namespace memplan::ort {

namespace {

/// Sessions that are replayed: one for every node where there are fewer, else one for every few of them.
constexpr std::size_t most_sessions = 128;

using Hash = std::array<std::uint32_t, 4>;

struct Lane {
  std::uint32_t factor;
  int turn_in, turn_out;
  std::uint32_t add;
};
// The constants of MurmurHash3_x86_128.
constexpr std::array<Lane, 4> lanes{{{0x239b961b, 15, 19, 0x561ccd1b},
                                     {0xab0e9789, 16, 17, 0x0bcaa747},
                                     {0x38b34ae5, 17, 15, 0x96cd1c35},
                                     {0xa1e38b93, 18, 13, 0x32ac3b17}}};

std::uint32_t stirred(std::uint32_t k, std::size_t lane) {
  return std::rotl(k * lanes[lane].factor, lanes[lane].turn_in) * lanes[(lane + 1) % 4].factor;
}

std::uint32_t finished(std::uint32_t h) {
  h = (h ^ h >> 16) * 0x85ebca6b;
  h = (h ^ h >> 13) * 0xc2b2ae35;
  return h ^ h >> 16;
}

void sum_up(Hash& h) {
  h[0] += h[1] + h[2] + h[3];
  for (std::size_t i = 1; i < 4; ++i) h[i] += h[0];
}

Hash murmur(std::string_view text, std::uint32_t seed) {
  Hash h{seed, seed, seed, seed};
  const auto word = [&](std::size_t at) {
    std::uint32_t k = 0;
    std::memcpy(&k, text.data() + at,
                std::min<std::size_t>(4, text.size() - at));  // little-endian, as CUDA's hosts are
    return k;
  };
  std::size_t at = 0;
  for (; at + 16 <= text.size(); at += 16)
    for (std::size_t i = 0; i < 4; ++i) {
      h[i] = std::rotl(h[i] ^ stirred(word(at + 4 * i), i), lanes[i].turn_out) + h[(i + 1) % 4];
      h[i] = h[i] * 5 + lanes[i].add;
    }
  for (std::size_t i = 0; at + 4 * i < text.size(); ++i) h[i] ^= stirred(word(at + 4 * i), i);
  for (std::uint32_t& part : h) part ^= static_cast<std::uint32_t>(text.size());
  sum_up(h);
  for (std::uint32_t& part : h) part = finished(part);
  sum_up(h);
  return h;
}

std::int64_t most_reserved(const Schedule& schedule, const OrtSetup& setup) {
  Arena arena(setup, Bytes(INT64_MAX / 4));
  std::vector<BlockId> blocks(schedule.allocations.size(), no_block);
  std::int64_t most = 0;
  for (const Event& e : schedule.events) {
    const auto i = static_cast<std::size_t>(e.allocation);
    if (e.kind == Event::Kind::empty_cache)
      arena.empty_cache();
    else if (e.kind == Event::Kind::free)
      arena.free(blocks[i]);
    else
      blocks[i] =
          arena.allocate({schedule.allocations[i].size.count, schedule.allocations[i].stream, e.allocation}).block;
    most = std::max(most, arena.usage().reserved);
  }
  return most;
}

/// Weights that no node before reads, by node.
std::vector<std::int64_t> weights_of(const Prepared& p) {
  std::vector<std::int64_t> out;
  std::unordered_set<GraphValueId> seen;
  for (const GraphNode& node : p.arranged.placed.graph.nodes) {
    std::int64_t& bytes = out.emplace_back(0);
    for (const GraphValueId id : node.inputs) {
      const auto stored = p.arranged.placed.graph.initializers.find(id);
      if (stored == p.arranged.placed.graph.initializers.end() ||
          !p.arranged.placed.value_on_device[static_cast<std::size_t>(id)] || !seen.insert(id).second)
        continue;
      const std::int64_t n = bytes_of(stored->second.dtype, onnx_format::count_of(stored->second.sizes)).count;
      bytes = checked_add(bytes, (n + 255) / 256 * 256);
    }
  }
  return out;
}

/// Whether a node needs an input of the graph, by node. Those that do not may run anywhere before they are needed: of
/// functions that ONNX Runtime puts in while it places nodes, it takes the nodes last.
std::vector<bool> needs_input(const Graph& graph) {
  std::unordered_set<GraphValueId> given(graph.inputs.begin(), graph.inputs.end());
  std::vector<bool> out;
  for (const GraphNode& node : graph.nodes) {
    out.push_back(
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](GraphValueId id) { return given.count(id); }));
    if (out.back()) given.insert(node.outputs.begin(), node.outputs.end());
  }
  return out;
}

bool is_copy(const GraphNode& node) { return node.op_type.starts_with("Memcpy") && node.domain.empty(); }

/// Names as they are while ONNX Runtime places nodes: it puts the copies in afterwards.
class Names {
 public:
  explicit Names(const Graph& graph) : graph_(graph) {
    for (const GraphNode& node : graph.nodes)
      if (is_copy(node)) copied_.emplace(node.outputs.at(0), node.inputs.at(0));
  }
  std::string of(const GraphNode& node) const {
    std::vector<std::string_view> tensors;
    for (const auto* ids : {&node.inputs, &node.outputs})
      for (const GraphValueId id : *ids) tensors.push_back(of(id));
    return unique_name(node.name.empty() ? node.op_type : node.name, tensors);
  }

 private:
  std::string_view of(GraphValueId id) const {
    const auto from = copied_.find(id);
    if (from != copied_.end()) id = from->second;
    return id < 0 ? std::string_view() : std::string_view(graph_.values[static_cast<std::size_t>(id)].name);
  }
  const Graph& graph_;
  std::unordered_map<GraphValueId, GraphValueId> copied_;
};

}  // namespace

std::string unique_name(const std::string& node, const std::vector<std::string_view>& tensors) {
  Hash hash{};
  for (const std::string_view tensor : tensors) hash = murmur(tensor, hash[0]);
  const std::uint64_t number = hash[0] | static_cast<std::uint64_t>(hash[1]) << 32;
  return node + "_" + std::to_string(number);
}

std::vector<NodeStats> node_stats(const BoundGraph& bound, const TrainingSetup& given, const Device& device,
                                  const Reading& reading) {
  TrainingSetup setup = given;
  setup.ort.extend = ArenaExtend::same_as_requested;
  setup.ort.memory_limit.reset();
  const Prepared& p = prepared(bound, profile_of(setup.ort));
  const std::vector<GraphNode>& nodes = p.arranged.placed.graph.nodes;
  const std::vector<std::int64_t> weights = weights_of(p);
  const Names names(p.arranged.placed.graph);
  const std::vector<bool> by_input = needs_input(p.arranged.placed.graph);
  std::vector<std::size_t> ends;  // how many nodes each session has on the device
  const std::size_t step = nodes.size() / most_sessions + 1;
  for (std::size_t end = step; end < nodes.size() + step; end += step) ends.push_back(std::min(end, nodes.size()));
  std::vector<NodeStats> out;
  std::size_t at = 0;
  std::int64_t loaded = 0, charged = 0;
  std::optional<std::size_t> first;  // the first row that needs an input: what nothing else can carry goes there
  for_first_nodes(bound, setup, device, reading, ends, [&](std::size_t end, const Schedule& schedule) {
    std::optional<std::size_t> carrier;
    for (; at < end; ++at) {
      loaded = checked_add(loaded, weights[at]);
      if (p.arranged.placed.node_on_cpu[at] || is_copy(nodes[at])) continue;
      if (by_input[at] && !carrier) carrier = out.size();
      out.push_back({names.of(nodes[at]), weights[at], 0});
    }
    if (!first) first = carrier;
    const std::int64_t buffers = std::max<std::int64_t>(0, most_reserved(schedule, setup.ort) - loaded);
    if (buffers <= charged || !first) return;
    out[carrier.value_or(*first)].buffers += buffers - charged;
    charged = buffers;
  });
  return out;
}

}  // namespace memplan::ort
