#include "estimators/runtime/torch/profile/profile.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "estimators/pipeline.h"
#include "estimators/runtime/torch/aten/op_table.h"
#include "tests/unit/tape_builder.h"

using namespace memplan;

namespace {

constexpr std::int64_t extra = 12345;

/// PyTorch 2.11 with another cuBLAS workspace, a gelu that takes a buffer more, and larger blocks.
TorchProfile changed() {
  TorchProfile p = profile_named("2.11");
  p.version = "test";
  p.workspaces.cublas_of_sm[90] = Bytes::mib(64);
  p.allocator.min_block = 4096;
  p.op_changes.push_back([](OpTable& table) {
    table.replace("aten::gelu", "self", [](Run& r, Args& a) -> ValueList {
      Tensor buffer = r.scratch(Bytes(extra));
      return call_op(r, profile_named("2.11").ops->at("aten::gelu"), {a[0]}, {});
    });
  });
  return finished(p);
}

Schedule schedule_of(const TrainingSetup& setup) {
  auto made = run_steps(testing::two_layer_tape(3, 8, 64), setup, choose_device("h100-80gb").device);
  REQUIRE(made.ok());
  return std::move(made.value());
}

/// Sizes of all allocations in their order, without those of `extra` bytes.
std::vector<std::int64_t> sizes_of(const Schedule& schedule) {
  std::vector<std::int64_t> sizes;
  for (const Allocation& a : schedule.allocations)
    if (a.size.count != extra) sizes.push_back(a.size.count);
  return sizes;
}

}  // namespace

TEST_CASE("a profile's overrides change the schedule, and only what they name") {
  const TorchProfile profile = changed();
  TrainingSetup setup;
  const Schedule before = schedule_of(setup);
  setup.runtime.profile = &profile;
  const Schedule after = schedule_of(setup);

  const auto count = [](const Schedule& s, std::int64_t bytes) {
    return std::count_if(s.allocations.begin(), s.allocations.end(),
                         [&](const Allocation& a) { return a.size == Bytes(bytes); });
  };
  CHECK(count(before, 32 << 20) == 2);  // one for each thread
  CHECK(count(after, 32 << 20) == 0);
  CHECK(count(after, 64 << 20) == 2);
  CHECK(count(before, extra) == 0);
  CHECK(count(after, extra) == 3 * setup.steps);  // one for every call of gelu
  std::vector<std::int64_t> expected = sizes_of(before);
  std::replace(expected.begin(), expected.end(), std::int64_t{32 << 20}, std::int64_t{64 << 20});
  CHECK(sizes_of(after) == expected);

  // The table that the copy was made of has its own row still.
  const bool replaced = profile_named("2.11").ops->at("aten::gelu").kernel != profile.ops->at("aten::gelu").kernel;
  CHECK(replaced);
  CHECK(schedule_of({}).allocations.size() == before.allocations.size());
}

TEST_CASE("a profile decides the blocks of the allocator and the sentence that names the version") {
  const TorchProfile profile = changed();
  TrainingSetup setup;
  setup.runtime.profile = &profile;
  const Device device = choose_device("h100-80gb").device;
  const auto estimate = estimate_tape(testing::two_layer_tape(1, 8, 64), setup, device);
  REQUIRE(estimate.ok());
  CHECK(estimate->assumptions[0].starts_with("PyTorch test eager on one GPU"));
  for (const LiveTensor& t : estimate->live_at_peak) CHECK(t.block.count % 4096 == 0);
}

TEST_CASE("cuBLASLt takes no workspace of its own where it shares that of cuBLAS") {
  TorchProfile profile = profile_named("2.11");
  profile.workspaces.cublas_lt_shares_cublas = true;
  TrainingSetup setup;
  const Device device = choose_device("h100-80gb").device;
  const auto workspaces = [&] {
    Run run(run_options(setup), device);
    run.use_cublas_lt();
    return run.close().allocations.size();
  };
  CHECK(workspaces() == 2);
  setup.runtime.profile = &profile;
  CHECK(workspaces() == 1);
}

TEST_CASE("a version without a profile is refused with the versions that have one") {
  TrainingSetup setup;
  setup.runtime.version = "1.4";
  const auto made = run_steps(testing::two_layer_tape(1, 8, 64), setup, choose_device("h100-80gb").device);
  REQUIRE_FALSE(made.ok());
  CHECK(made.error().kind == ErrorKind::usage);
  CHECK(made.error().hint == "known versions: 2.6, 2.7, 2.8, 2.9, 2.10, 2.11, 2.12, 2.13, 2.14, 2.15");
}
