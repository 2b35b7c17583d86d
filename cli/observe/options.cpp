#include "cli/observe/options.h"

#include <fmt/format.h>

#include "cli/options.h"
#include "cli/values.h"

namespace memplan::cli {

ObserveOptions observe_options(const Parsed& parsed, bool only_help) {
  ObserveOptions o;
  const auto text = [&](std::string_view flag) -> const std::string* {
    const auto it = parsed.values.find(flag);
    return it == parsed.values.end() ? nullptr : &it->second.back();
  };
  if (const auto v = text("world")) {
    o.world = parse_count(*v, "--world");
    o.world_given = true;
  }
  if (const auto v = text("devices")) o.devices = parse_count(*v, "--devices");
  if (o.devices > 16)
    fail(ErrorKind::usage, "a node has at most 16 emulated GPUs", "--devices", "more ranks than that are --world");
  if (const auto v = text("stop-after")) o.stop_after = parse_count(*v, "--stop-after");
  if (const auto v = text("jobs")) o.jobs = parse_count(*v, "--jobs");
  o.no_limit = parsed.has("no-limit");
  if (const auto v = text("ranks")) {
    for (std::size_t at = 0; at <= v->size();) {
      const std::size_t comma = std::min(v->find(',', at), v->size());
      const std::int64_t rank = parse_count(v->substr(at, comma - at), "--ranks", 0);
      if (rank >= o.world)
        fail(ErrorKind::usage, fmt::format("rank {} is not one of {}", rank, o.world), "--ranks",
             "ranks count from 0, and --world says how many there are");
      o.ranks.push_back(rank);
      at = comma + 1;
    }
  }
  o.command = parsed.command_line;
  if (o.command.empty() && !only_help)
    fail(ErrorKind::usage, "there is no command to observe", {},
         "put it behind two dashes: memplan observe --gpu l4 -- python train.py");
  return o;
}

}  // namespace memplan::cli
