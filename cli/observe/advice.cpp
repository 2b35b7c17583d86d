#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "cli/observe/observation.h"
#include "cli/terminal/style.h"

namespace memplan::cli {

namespace {

Bytes kind_of(const Observed& r, const char* kind) {
  const auto it = std::find_if(r.by_kind.begin(), r.by_kind.end(), [&](const auto& k) { return k.first == kind; });
  return it == r.by_kind.end() ? Bytes(0) : it->second;
}

struct Line {
  std::string where;
  Bytes bytes;
};

/// The line whose tensors of the step take most, those of its backward pass included.
Line largest_of_step(const Observed& r) {
  std::map<std::string, Bytes> lines;
  for (const BlockRow& b : r.blocks)
    if (b.kind == "step" && !b.place.code.empty())
      lines[b.place.code.substr(0, b.place.code.find(" in ")) + (b.place.text.empty() ? "" : ": " + b.place.text)] +=
          b.bytes;
  Line most;
  for (const auto& [where, bytes] : lines)
    if (bytes > most.bytes) most = {where, bytes};
  return most;
}

}  // namespace

std::vector<std::string> advice_of(const Observation& o) {
  const auto at = std::max_element(o.ranks.begin(), o.ranks.end(),
                                   [](const Observed& a, const Observed& b) { return a.process < b.process; });
  std::vector<std::string> out;
  if (at == o.ranks.end() || o.verdict != Verdict::no_fit) return out;
  const Observed& r = *at;
  const auto matters = [&](Bytes n, std::int64_t percent) { return n.count > r.peak_requested.count / 100 * percent; };
  const Bytes step = kind_of(r, "step"), optimizer = kind_of(r, "optimizer");
  if (r.trains && matters(step, 20)) {
    out.push_back(
        fmt::format("activations and temporaries take {}: a smaller batch with gradient accumulation divides them",
                    to_human(step)));
    if (!r.checkpoints)
      out.push_back(
          "nothing at the peak is under torch.utils.checkpoint: activation checkpointing "
          "(model.gradient_checkpointing_enable() of Hugging Face) keeps the blocks' inputs alone");
    if (const Line most = largest_of_step(r); matters(most.bytes, 10))
      out.push_back(fmt::format("{} of them come of one line: {}", to_human(most.bytes), clean(most.where)));
  }
  if (matters(optimizer, 15))
    out.push_back(
        fmt::format("optimizer state takes {}: 8-bit states need a quarter of Adam's, LoRA trains few "
                    "parameters, FSDP and ZeRO divide it among GPUs",
                    to_human(optimizer)));
  if (matters(r.untrained, 5))
    out.push_back(fmt::format(
        "modules that no optimizer trains hold {} (a frozen reference, an average of weights): keep them on "
        "the CPU or in a smaller dtype",
        to_human(r.untrained)));
  out.push_back("memplan suggest searches settings that fit, from a file of the model (docs/export.md)");
  return out;
}

}  // namespace memplan::cli
