#include "estimators/measured/streams.h"

#include <algorithm>
#include <unordered_map>

namespace memplan {

std::vector<Life> lives_of(const Schedule& s) {
  std::vector<Life> lives;
  std::vector<std::int32_t> number(s.allocations.size(), -1);
  std::size_t op = 0;
  for (std::size_t i = 0; i < s.events.size(); ++i) {
    while (op + 1 < s.ops.size() && static_cast<std::size_t>(s.ops[op + 1].first_event) <= i) ++op;
    const Event& e = s.events[i];
    if (e.kind == Event::Kind::empty_cache || e.allocation < 0) continue;
    const auto id = static_cast<std::size_t>(e.allocation);
    if (e.kind == Event::Kind::alloc) {
      if (s.allocations[id].size.count == 0) continue;
      number[id] = static_cast<std::int32_t>(lives.size());
      lives.push_back({s.allocations[id].size.count, e.allocation, static_cast<std::int32_t>(op), -1, -1});
    } else if (number[id] >= 0) {
      Life& life = lives[static_cast<std::size_t>(number[id])];
      life.died_op = static_cast<std::int32_t>(op);
      life.died_before = static_cast<std::int64_t>(lives.size());
    }
  }
  return lives;
}

std::vector<Life> lives_of(const Measurement& m) {
  std::vector<Life> lives;
  std::unordered_map<std::uint64_t, std::size_t> at;
  for (const MeasuredEvent& e : m.events) {
    if (e.kind == MeasuredEvent::Kind::alloc) {
      at[e.address] = lives.size();
      lives.push_back({e.bytes, -1, e.op, -1, -1});
    } else if (e.kind == MeasuredEvent::Kind::free) {
      const auto it = at.find(e.address);
      if (it == at.end()) continue;  // older than the record
      lives[it->second].died_op = e.op;
      lives[it->second].died_before = static_cast<std::int64_t>(lives.size());
      at.erase(it);
    }
  }
  return lives;
}

std::vector<std::int32_t> partners(const std::vector<Life>& p, const std::vector<Life>& m) {
  constexpr std::size_t window = 48, wanted = 6;
  std::vector<std::int32_t> out(m.size(), -1);
  const auto agree = [&](std::size_t i, std::size_t j) {
    std::size_t n = 0;
    while (n < wanted && i + n < p.size() && j + n < m.size() && p[i + n].bytes == m[j + n].bytes) ++n;
    return n == wanted || (n > 0 && (i + n == p.size() || j + n == m.size()));
  };
  std::size_t i = 0, j = 0;
  while (i < p.size() && j < m.size()) {
    if (p[i].bytes == m[j].bytes) {
      out[j++] = static_cast<std::int32_t>(i++);
      continue;
    }
    bool found = false;
    for (std::size_t far = 1; far <= window && !found; ++far)
      for (std::size_t a = 0; a <= far && !found; ++a)
        if (agree(i + a, j + far - a)) i += a, j += far - a, found = true;
    // Nothing near agrees: the two are one allocation of different sizes.
    if (!found) out[j++] = static_cast<std::int32_t>(i++);
  }
  return out;
}

std::vector<std::int32_t> alive_at_peak(const std::vector<Life>& lives) {
  std::vector<std::vector<std::int32_t>> dying(lives.size() + 1);
  for (std::size_t i = 0; i < lives.size(); ++i)
    if (lives[i].died_before >= 0)
      dying[static_cast<std::size_t>(lives[i].died_before)].push_back(static_cast<std::int32_t>(i));
  std::int64_t level = 0, best = -1, best_at = -1;
  for (std::size_t i = 0; i < lives.size(); ++i) {
    for (std::int32_t d : dying[i]) level -= lives[static_cast<std::size_t>(d)].bytes;
    level += lives[i].bytes;
    if (level > best) best = level, best_at = static_cast<std::int64_t>(i);
  }
  std::vector<std::int32_t> alive;
  for (std::int64_t i = 0; i <= best_at; ++i) {
    const Life& life = lives[static_cast<std::size_t>(i)];
    if (life.died_before < 0 || life.died_before > best_at) alive.push_back(static_cast<std::int32_t>(i));
  }
  return alive;
}

}  // namespace memplan
