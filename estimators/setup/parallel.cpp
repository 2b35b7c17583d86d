#include "estimators/setup/parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"
#include "estimators/setup/strategies.h"

namespace memplan {

namespace {

constexpr std::int64_t most_micro_batches = 16'384, most_gpus = 1'048'576;

struct Degree {
  Field field;
  const char* what;
  std::int64_t ranks;
};

[[noreturn]] void refuse(std::string what, std::string where, std::string hint) {
  fail(ErrorKind::usage, std::move(what), std::move(where), std::move(hint));
}

[[noreturn]] void refuse_many(std::string where) {
  refuse(fmt::format("a job has at most {} GPUs here", most_gpus), std::move(where), "give fewer");
}

void check_degrees(const ParallelSetup& p) {
  if (p.gpus < 0) refuse(fmt::format("{} GPUs cannot train a model", p.gpus), setting(Field::gpus), "give at least 1");
  for (const Degree& d : {Degree{Field::data_parallel, "data-parallel ranks", p.data == 0 ? 1 : p.data},
                          Degree{Field::tensor_parallel, "tensor-parallel ranks", p.tensor},
                          Degree{Field::pipeline_parallel, "pipeline stages", p.pipeline},
                          Degree{Field::context_parallel, "context-parallel ranks", p.context},
                          Degree{Field::expert_parallel, "expert-parallel ranks", p.expert}})
    if (d.ranks < 1)
      refuse(fmt::format("{} {} are not possible", d.ranks, d.what), setting(d.field), "give at least 1");
    else if (d.ranks > most_gpus)
      refuse_many(setting(d.field));
  if (p.gpus > most_gpus) refuse_many(setting(Field::gpus));
  if (p.virtual_stages < 1)
    refuse("an interleaved schedule needs at least 1 chunk per rank", setting(Field::pipeline_schedule),
           "write interleaved:2");
  if (p.micro_batches < 0)
    refuse("a step needs at least 1 micro-batch", setting(Field::micro_batches), "give at least 1");
  // Each has buffers of its own in every chunk.
  if (p.micro_batches > most_micro_batches / p.virtual_stages)
    refuse(fmt::format("a rank of a pipeline runs at most {} micro-batches of all its chunks in a step here",
                       most_micro_batches),
           setting(Field::micro_batches), "give fewer");
  if (p.bucket_cap_mib && *p.bucket_cap_mib < 1)
    refuse("a DDP bucket needs at least 1 MiB", setting(Field::bucket_cap), "leave it out for PyTorch's own");
}

void fill(ParallelSetup& p) {
  // Each is at most 2^20, so that two of them can be multiplied.
  std::int64_t others = p.tensor * p.pipeline;
  if (others <= most_gpus) others *= p.context;
  if (others > most_gpus || std::max<std::int64_t>(1, p.data) * others > most_gpus) refuse_many({});
  const std::string product = fmt::format("tp {} x pp {} x cp {}", p.tensor, p.pipeline, p.context);
  if (p.data == 0) {
    if (p.gpus == 0) p.gpus = others;
    if (p.gpus % others != 0)
      refuse(fmt::format("{} GPUs cannot be divided into groups of {} ({})", p.gpus, others, product),
             setting(Field::gpus), fmt::format("use a multiple of {}", others));
    p.data = p.gpus / others;
  } else if (p.gpus == 0) {
    p.gpus = p.data * others;
  }
  if (p.data * others != p.gpus)
    refuse(fmt::format("{} GPUs were given, but the degrees make {} (dp {} x {})", p.gpus, p.data * others, p.data,
                       product),
           setting(Field::gpus),
           fmt::format("use {} or leave {} or {} out", setting(Field::gpus, p.data * others), setting(Field::gpus),
                       setting(Field::data_parallel)));
}

void check_data(const ParallelSetup& p) {
  const std::int64_t ranks = p.data * p.context;
  const DataStrategy& strategy = strategy_of(p);
  if (strategy.shares_out() && !strategy.lone_rank && ranks < 2)
    refuse(fmt::format("{} shares out among data-parallel ranks, and there is 1", name_of(p.sharding)),
           setting(strategy.field),
           "give " + setting(Field::gpus, "N") + " or " + setting(Field::data_parallel, "N") + " with N of at least 2");
  if (!strategy.units) {
    if (!p.reshard_after_forward)
      refuse("only FSDP reshards after the forward pass", setting(Field::keep_gathered), "add " + setting(Field::fsdp));
    if (p.shard_size > 0)
      refuse("HSDP is FSDP within groups of ranks", setting(Field::shard_size), "add " + setting(Field::fsdp));
    if (p.param_dtype)
      refuse("only FSDP has a mixed-precision policy", setting(Field::param_dtype),
             "add " + setting(Field::fsdp) + ", or use " + setting(Field::autocast));
    if (p.reduce_buffers != ParallelSetup().reduce_buffers)
      refuse("only FSDP has buffers of its reduce-scatter", setting(Field::reduce_buffers),
             "add " + setting(Field::fsdp));
    if (p.keep_unsharded)
      refuse("only FSDP has unsharded storage", setting(Field::keep_unsharded), "add " + setting(Field::fsdp));
    if (p.reduce_dtype)
      refuse("only FSDP has a reduce dtype", setting(Field::reduce_dtype), "add " + setting(Field::fsdp));
  }
  if (strategy.framework != Framework::deepspeed) {
    if (p.overlap_communication)
      refuse("only ZeRO has overlap_comm", setting(Field::overlap_communication),
             "add " + setting(Field::zero, "1") + ", 2 or 3");
    if (p.reduce_bucket != ParallelSetup().reduce_bucket)
      refuse("only ZeRO has a reduce bucket", setting(Field::reduce_bucket),
             "add " + setting(Field::zero, "1") + ", 2 or 3");
  }
  if (p.reduce_bucket < 1)
    refuse("a reduce bucket needs at least 1 element", setting(Field::reduce_bucket),
           "leave it out for DeepSpeed's 500000000");
  if (!strategy.buckets || ranks < 2) {
    if (p.gradient_as_bucket_view)
      refuse("only DDP has gradient buckets", setting(Field::gradient_as_bucket_view),
             "add " + setting(Field::ddp) + " and at least 2 GPUs");
    if (p.bucket_cap_mib)
      refuse("only DDP has gradient buckets", setting(Field::bucket_cap),
             "add " + setting(Field::ddp) + " and at least 2 GPUs");
  }
  if (p.lazy_buckets && (!strategy.buckets || ranks < 2))
    refuse("only DDP has gradient buckets", setting(Field::lazy_buckets),
           "add " + setting(Field::ddp) + " and at least 2 GPUs");
  if (p.reduce_buffers < 1)
    refuse("a reduce-scatter needs at least 1 buffer", setting(Field::reduce_buffers), "leave it out for PyTorch's 1");
  if (p.shard_size == 1 || p.shard_size < 0)
    refuse("an HSDP shard group needs at least 2 ranks", setting(Field::shard_size),
           "use DDP to replicate without sharding");
  if (p.shard_size > 0 && ranks % p.shard_size != 0)
    refuse(fmt::format("{} data-parallel ranks cannot be divided into shard groups of {}", ranks, p.shard_size),
           setting(Field::shard_size), "use a divisor of the ranks");
  if (p.reduce_dtype && !is_floating(*p.reduce_dtype))
    refuse("gradients are reduced in a floating dtype", setting(Field::reduce_dtype), "use fp32, bf16 or fp16");
}

void check_split(const ParallelSetup& p) {
  const std::int64_t stages = p.pipeline * p.virtual_stages;
  if (static_cast<std::int64_t>(p.split.size()) != stages)
    refuse(fmt::format("{} stages were given, but the pipeline has {}{}", p.split.size(), stages,
                       p.virtual_stages > 1 ? fmt::format(" ({} ranks x {} chunks)", p.pipeline, p.virtual_stages)
                                            : std::string()),
           setting(Field::pipeline_split), "give the number of blocks of every stage, in order");
  for (std::size_t i = 0; i < p.split.size(); ++i)
    if (p.split[i] < 1)
      refuse(fmt::format("stage {} has {} blocks", i, p.split[i]), setting(Field::pipeline_split),
             "give every stage at least 1 block");
}

void check_model_parallel(const ParallelSetup& p) {
  if (p.sequence_parallel && p.tensor < 2)
    refuse("sequence parallelism lies within a tensor-parallel group", setting(Field::sequence_parallel),
           "add " + setting(Field::tensor_parallel, "N") + " with N of at least 2");
  if (p.loss_parallel && p.tensor < 2)
    refuse("the loss is divided among tensor-parallel ranks", setting(Field::loss_parallel),
           "add " + setting(Field::tensor_parallel, "N") + " with N of at least 2");
  if (p.loss_parallel && in_megatron(p))
    refuse("Megatron-LM always divides the loss among tensor-parallel ranks", setting(Field::loss_parallel),
           "leave it out");
  if (p.pipeline < 2) {
    if (p.micro_batches > 0)
      refuse("micro-batches belong to a pipeline", setting(Field::micro_batches),
             "add " + setting(Field::pipeline_parallel, "N") + ", or use " + setting(Field::accumulate));
    if (p.virtual_stages > 1)
      refuse("an interleaved schedule needs a pipeline", setting(Field::pipeline_schedule),
             "add " + setting(Field::pipeline_parallel, "N") + " with N of at least 2");
    if (!p.split.empty())
      refuse("stages belong to a pipeline", setting(Field::pipeline_split),
             "add " + setting(Field::pipeline_parallel, "N") + " with N of at least 2");
  } else if (p.schedule == PipelineSchedule::zbv && p.virtual_stages != 2) {
    refuse("the zbv schedule has 2 chunks per rank", setting(Field::pipeline_schedule), "write zbv");
  } else if ((p.schedule == PipelineSchedule::gpipe || p.schedule == PipelineSchedule::one_f_one_b) &&
             p.virtual_stages > 1) {
    refuse(fmt::format("the {} schedule has 1 chunk per rank", name_of(p.schedule)), setting(Field::pipeline_schedule),
           "use interleaved:V");
  } else if (p.schedule == PipelineSchedule::interleaved && p.virtual_stages < 2) {
    refuse("an interleaved schedule has at least 2 chunks per rank", setting(Field::pipeline_schedule),
           "write interleaved:2");
  } else if (p.schedule == PipelineSchedule::interleaved && p.micro_batches % p.pipeline != 0) {
    refuse(fmt::format("the interleaved schedule runs micro-batches in rounds of {}; {} cannot be divided", p.pipeline,
                       p.micro_batches),
           setting(Field::micro_batches), fmt::format("use a multiple of {}", p.pipeline));
  } else if (p.schedule == PipelineSchedule::zero_bubble &&
             p.micro_batches % std::max<std::int64_t>(1, p.micro_batches / p.pipeline) != 0) {
    const std::int64_t rounds = p.micro_batches / p.pipeline;
    refuse(fmt::format("the zero-bubble schedule runs micro-batches in {} equal rounds; {} cannot be divided", rounds,
                       p.micro_batches),
           setting(Field::micro_batches), fmt::format("use a multiple of {}", p.pipeline));
  }
  if (p.pipeline > 1 && !p.split.empty()) check_split(p);
  if ((p.data * p.context) % p.expert != 0)
    refuse(fmt::format("experts are spread over data-parallel ranks; {} ranks cannot be divided by {}",
                       p.data * p.context, p.expert),
           setting(Field::expert_parallel), "use a divisor of dp x cp");
}

}  // namespace

Ranks resolve(ParallelSetup p) {
  check_degrees(p);
  fill(p);
  if (p.pipeline > 1 && p.micro_batches == 0) p.micro_batches = p.pipeline;
  check_data(p);
  check_model_parallel(p);
  return Ranks(std::move(p));
}

std::string describe(const ParallelSetup& p) {
  const DataStrategy& strategy = strategy_of(p);
  if (!is_parallel(p)) return strategy.lone_rank ? fmt::format("1 GPU: {}", strategy.title) : "1 GPU";
  std::string text = fmt::format("{} GPUs:", p.gpus);
  const auto add = [&](std::string part) { text += (text.back() == ':' ? " " : ", ") + std::move(part); };
  const std::int64_t ranks = p.data * p.context;
  if (p.shard_size > 0 && p.shard_size < ranks)
    add(fmt::format("HSDP {} x {}", ranks / p.shard_size, p.shard_size));
  else if (strategy.shares_out() || strategy.lone_rank)
    add(fmt::format("{} over {}", strategy.title, ranks));
  else if (p.data > 1)
    add(fmt::format("{} over {}", strategy.title, p.data));
  if (strategy.lone_rank && strategy.state) text += " with the distributed optimizer";
  if (!p.reshard_after_forward) text += " without resharding";
  if (p.keep_unsharded) text += " with its storage kept";
  if (p.lazy_buckets) text += " with lazy buckets";
  if (p.tensor > 1)
    add(fmt::format("tensor parallel {}{}{}", p.tensor, p.sequence_parallel ? " with sequence parallel" : "",
                    !p.loss_parallel      ? ""
                    : p.sequence_parallel ? " and loss parallel"
                                          : " with loss parallel"));
  if (p.pipeline > 1)
    add(fmt::format("pipeline {} ({}{}{}, {} micro-batches)", p.pipeline, name_of(p.schedule),
                    p.virtual_stages > 1 && p.schedule != PipelineSchedule::zbv ? fmt::format(":{}", p.virtual_stages)
                                                                                : std::string(),
                    p.split.empty() ? std::string() : fmt::format(", blocks {}", fmt::join(p.split, ",")),
                    p.micro_batches));
  if (p.context > 1) add(fmt::format("context parallel {}", p.context));
  if (p.expert > 1) add(fmt::format("expert parallel {}", p.expert));
  return text;
}

}  // namespace memplan
