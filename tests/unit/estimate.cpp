#include <doctest/doctest.h>

#include <algorithm>

#include "estimators/pipeline.h"

using namespace memplan;

namespace {

/// A run small enough to add up by hand: a parameter of 1000 bytes (block 1024), then two steps that each take an
/// activation of 3000 (block 3072) and, in the second only, optimizer state of 1000 (block 1024) that stays.
struct Hand {
  Tape tape;
  Schedule s;
  Timeline t;
  TrainingSetup setup;
  Device device;

  Hand() {
    device.total = Bytes::gib(10);
    device.context = Bytes(500);
    s.names = {"model.to", "aten::mm", "optimizer.step", "weight", "relu_3", "saved for backward by aten::mul"};
    tape.scopes.push_back({"", "Net", -1, 0, {}});
    tape.scopes.push_back({"layer1.conv", "Conv2d", 0, 0, {}});
    op(0, -1, Phase::setup, 0);
    alloc(1000, 1024, Category::parameter, 3, -1);
    for (int step = 1; step <= 2; ++step) {
      s.step_begins.push_back(static_cast<std::int32_t>(s.events.size()));
      op(1, 1, Phase::forward, step);
      const int activation = alloc(3000, 3072, Category::activation, 4, 5);
      if (step == 1) {
        release(activation, 3000, 3072);
        op(2, -1, Phase::optimizer, step);
        alloc(1000, 1024, Category::optimizer_state, -1, -1);
      } else {
        op(1, 1, Phase::backward, step);
        release(activation, 3000, 3072);
      }
    }
  }

  void op(int name, int scope, Phase phase, int step) {
    s.ops.push_back({name, scope, -1, phase, step, static_cast<std::int32_t>(s.events.size())});
  }
  int alloc(std::int64_t size, std::int64_t block, Category category, int label, int reason) {
    Allocation a;
    a.size = Bytes(size);
    a.born = static_cast<std::int32_t>(s.events.size());
    a.op = static_cast<std::int32_t>(s.ops.size()) - 1;
    a.category = category;
    a.label = label;
    a.reason = reason;
    s.allocations.push_back(a);
    const int id = static_cast<int>(s.allocations.size()) - 1;
    s.events.push_back({Event::Kind::alloc, id});
    t.block_bytes.push_back(block);
    now.requested += size;
    now.allocated += block;
    now.reserved = std::max(now.reserved, now.allocated + 900);
    t.samples.push_back(now);
    return id;
  }
  void release(int id, std::int64_t size, std::int64_t block) {
    s.allocations[id].died = static_cast<std::int32_t>(s.events.size());
    s.events.push_back({Event::Kind::free, id});
    now.requested -= size;
    now.allocated -= block;
    t.samples.push_back(now);
  }
  Estimate get() const {
    auto r = summarize(tape, s, t, setup, device);
    REQUIRE(r.ok());
    return r.value();
  }
  Sample now;
};

}  // namespace

TEST_CASE("peaks per step, and the level that a step leaves behind") {
  const Estimate e = Hand().get();
  REQUIRE(e.steps.size() == 3);
  CHECK(e.steps[0].step == 0);
  CHECK(e.steps[0].peak.allocated == Bytes(1024));
  CHECK(e.steps[1].peak.requested == Bytes(4000));
  CHECK(e.steps[1].peak.allocated == Bytes(4096));
  CHECK(e.steps[1].allocated_after == Bytes(2048));
  CHECK(e.steps[1].requested_after == Bytes(2000));
  CHECK(e.steps[2].peak.requested == Bytes(5000));
  CHECK(e.steps[2].peak.allocated == Bytes(5120));
  CHECK(e.steps[2].peak.reserved == Bytes(6020));
  CHECK(e.steps[2].peak.process == Bytes(6520));
}

TEST_CASE("the peak is located by allocated bytes, since reserved bytes stay on a plateau") {
  Hand h;
  const Estimate e = h.get();
  CHECK(e.peak.process == Bytes(6520));
  CHECK(e.peak_step == 2);
  CHECK(e.peak_phase == Phase::forward);
  CHECK(e.peak_op == "aten::mm");
  CHECK(e.peak_module == "layer1.conv");
}

TEST_CASE("parts add up to the process bytes exactly") {
  const Estimate e = Hand().get();
  Bytes sum;
  for (const CategoryPart& p : e.parts) sum += p.bytes;
  CHECK(sum == e.peak.process);
  auto part = [&](const std::string& name) {
    for (const CategoryPart& p : e.parts)
      if (name_of(p.part) == name) return p.bytes.count;
    return std::int64_t{-1};
  };
  CHECK(part("parameters") == 1000);
  CHECK(part("optimizer state") == 1000);
  CHECK(part("activations") == 3000);
  CHECK(part("rounding") == 120);
  CHECK(part("cached") == 900);
  CHECK(part("context") == 500);
}

TEST_CASE("live tensors come by size, with the reason they are alive") {
  const Estimate e = Hand().get();
  REQUIRE(e.live_at_peak.size() == 3);
  CHECK(e.live_at_peak[0].name == "relu_3");
  CHECK(e.live_at_peak[0].reason == "saved for backward by aten::mul");
  CHECK(e.live_at_peak[0].block == Bytes(3072));
  CHECK(e.live_at_peak[0].module == "layer1.conv");
  CHECK(e.live_at_peak[1].name == "weight");
  CHECK(e.live_at_peak[2].category == Category::optimizer_state);
}

TEST_CASE("what is not modelled widens the range in both directions, for every counter") {
  Hand h;
  h.s.notes.push_back({.text = "bounded by its inputs and outputs",
                       .evidence = Evidence::assumed,
                       .about = About::op,
                       .op = "aten::mystery",
                       .count = 3,
                       .off = Effect{Bytes(300), Bytes(700)}});
  const Estimate e = h.get();
  for (const auto counter : each_counter) {
    CHECK(e.low.*counter == e.peak.*counter - Bytes(300));
    CHECK(e.high.*counter == e.peak.*counter + Bytes(700));
  }
  REQUIRE(e.unmodelled.size() == 1);
  CHECK(e.unmodelled[0].count == 3);
}

TEST_CASE("the verdict follows from the range, the device and the margin") {
  Device device;
  device.total = Bytes::gib(40);  // margin: 5 % = 2 GiB
  Estimate e;
  auto verdict = [&](std::int64_t low_mib, std::int64_t peak_mib, std::int64_t high_mib) {
    e.low.process = Bytes::mib(low_mib);
    e.peak.process = Bytes::mib(peak_mib);
    e.high.process = Bytes::mib(high_mib);
    return judge(e, device).verdict;
  };
  CHECK(judge(e, device).margin == Bytes::gib(2));
  CHECK(verdict(30000, 30000, 30000) == Verdict::fits);
  CHECK(verdict(38912, 38912, 38912) == Verdict::fits);  // exactly the margin stays free
  CHECK(verdict(38913, 38913, 38913) == Verdict::tight);
  CHECK(verdict(40960, 40960, 40960) == Verdict::tight);  // exactly the device
  CHECK(verdict(40961, 40961, 40961) == Verdict::no_fit);
  CHECK(verdict(30000, 30000, 45000) == Verdict::unknown);
  CHECK(verdict(41000, 41000, 45000) == Verdict::no_fit);
  CHECK(judge(e, device).headroom == Bytes::mib(-40));
  CHECK(judge(e, device, Bytes()).margin == Bytes());
  e.out_of_memory = true;
  CHECK(verdict(30000, 30000, 30000) == Verdict::no_fit);
  e.out_of_memory = false;
  e.retries = 2;
  CHECK(verdict(30000, 30000, 30000) == Verdict::tight);
  device.total = Bytes::gib(8);  // 5 % would be 410 MiB
  CHECK(default_margin(device) == Bytes::mib(512));
}

TEST_CASE("what the context may take beyond its usual figure comes out of the margin, and of nothing else") {
  Device device;
  device.total = Bytes::gib(40);  // a margin of 2048 MiB
  Estimate e;
  RangeSource context{About::context, "the context", {}, {}};
  context.above.process = Bytes::mib(500);
  e.sources = {context};
  const auto verdict = [&](std::int64_t peak_mib, std::int64_t margin_mib) {
    e.low.process = e.peak.process = Bytes::mib(peak_mib);
    e.high.process = Bytes::mib(peak_mib + 500);
    return judge(e, device, Bytes::mib(margin_mib)).verdict;
  };
  CHECK(verdict(40960 - 2048, 2048) == Verdict::fits);
  CHECK(verdict(40960 - 2047, 2048) == Verdict::tight);
  CHECK(verdict(40960 - 500, 2048) == Verdict::tight);
  CHECK(verdict(40960 - 499, 2048) == Verdict::unknown);
  // A margin below it hides nothing of it.
  CHECK(verdict(40960 - 500, 0) == Verdict::fits);
  CHECK(verdict(40960 - 499, 0) == Verdict::unknown);
}

TEST_CASE("a replay that stops for lack of memory says where") {
  Hand h;
  const auto last_alloc = h.s.allocations.back().born;
  h.t.out_of_memory_event = last_alloc;
  h.t.out_of_memory_request = 2 << 20;
  h.t.samples.resize(last_alloc);
  const Estimate e = h.get();
  CHECK(e.out_of_memory);
  CHECK(e.out_of_memory_at == "a request of 2.00 MiB in forward by aten::mm in layer1.conv, step 2");
}
