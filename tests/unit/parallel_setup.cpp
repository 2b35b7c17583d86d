#include <doctest/doctest.h>

#include "estimators/base/error.h"
#include "estimators/setup/parallel.h"

using namespace memplan;

namespace {

std::string error_of(const ParallelSetup& setup) {
  try {
    resolve(setup);
  } catch (const Failure& f) {
    CHECK(f.error().kind == ErrorKind::usage);
    return f.error().what;
  }
  return {};
}

bool mentions(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("degrees follow from each other") {
  ParallelSetup p;
  CHECK(resolve(p).gpus == 1);
  CHECK_FALSE(is_parallel(resolve(p)));
  p.gpus = 64;
  p.tensor = 8;
  p.pipeline = 2;
  CHECK(resolve(p).data == 4);
  CHECK(resolve(p).micro_batches == 2);
  p.gpus = 0;
  p.data = 3;
  CHECK(resolve(p).gpus == 48);
  p.gpus = 48;
  CHECK(resolve(p).data == 3);
}

TEST_CASE("nonsense is refused with the reason") {
  ParallelSetup p;
  p.gpus = 8;
  p.tensor = 3;
  CHECK(mentions(error_of(p), "8 GPUs cannot be divided into groups of 3"));
  p.tensor = 2;
  p.data = 2;
  CHECK(mentions(error_of(p), "the degrees make 4"));
  p = {};
  p.gpus = -1;
  CHECK(mentions(error_of(p), "cannot train"));
  p = {};
  p.tensor = 0;
  CHECK(mentions(error_of(p), "tensor-parallel"));
  p = {};
  p.sharding = Sharding::fsdp;
  CHECK(mentions(error_of(p), "there is 1"));
  p.gpus = 8;
  CHECK(error_of(p).empty());
  p.shard_size = 3;
  CHECK(mentions(error_of(p), "shard groups of 3"));
  p = {};
  p.gpus = 8;
  p.reshard_after_forward = false;
  CHECK(mentions(error_of(p), "only FSDP"));
  p = {};
  p.sequence_parallel = true;
  CHECK(mentions(error_of(p), "tensor-parallel group"));
  p = {};
  p.loss_parallel = true;
  CHECK(mentions(error_of(p), "divided among tensor-parallel ranks"));
  p.tensor = 2;
  CHECK(error_of(p).empty());
  p.sharding = Sharding::megatron;
  CHECK(mentions(error_of(p), "Megatron-LM always divides"));
  p = {};
  p.micro_batches = 4;
  CHECK(mentions(error_of(p), "belong to a pipeline"));
  p.pipeline = 4;
  p.schedule = PipelineSchedule::interleaved;
  p.virtual_stages = 2;
  p.micro_batches = 6;
  CHECK(mentions(error_of(p), "rounds of 4"));
  p = {};
  p.split = {4, 4};
  CHECK(mentions(error_of(p), "belong to a pipeline"));
  p.pipeline = 3;
  CHECK(mentions(error_of(p), "2 stages were given, but the pipeline has 3"));
  p.split = {4, 0, 4};
  CHECK(mentions(error_of(p), "stage 1 has 0 blocks"));
  p.split = {4, 2, 4};
  CHECK(error_of(p).empty());
  p = {};
  p.data = 8;
  p.expert = 3;
  CHECK(mentions(error_of(p), "experts"));
}
