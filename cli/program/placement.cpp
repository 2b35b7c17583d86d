#include "cli/program/placement.h"

#include <fmt/format.h>

#include "cli/program/python.h"
#include "estimators/setup/strategies.h"

namespace memplan::cli {

namespace {

const char* torch_dtype(DType d) {
  return d == DType::bfloat16 ? "torch.bfloat16" : d == DType::float16 ? "torch.float16" : "torch.float32";
}

std::string start() {
  return "import contextlib\nimport os\n\nimport torch.distributed as dist\n\n"
         "# Start it with torchrun --nproc-per-node=GPUS; memplan estimates one of the processes.\n"
         "torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))\ndist.init_process_group(\"nccl\")\n";
}

std::string ddp(const ParallelSetup& p) {
  std::string arguments = "model, device_ids=[torch.cuda.current_device()]";
  if (p.bucket_cap_mib) arguments += fmt::format(", bucket_cap_mb={}", *p.bucket_cap_mib);
  if (p.gradient_as_bucket_view) arguments += ", gradient_as_bucket_view=True";
  if (p.lazy_buckets) arguments += ", lazy_bucket_allocation=True";
  return start() + "model.to(\"cuda\")\nmodel = torch.nn.parallel.DistributedDataParallel(" + arguments + ")\n";
}

std::string fsdp(const ParallelSetup& p, const ModelParts& parts) {
  std::string policy;
  if (p.param_dtype) policy += fmt::format("param_dtype={}", torch_dtype(*p.param_dtype));
  if (p.reduce_dtype)
    policy += fmt::format("{}reduce_dtype={}", policy.empty() ? "" : ", ", torch_dtype(*p.reduce_dtype));
  const std::int64_t ranks = p.data * p.context, shard = shard_group(p);
  std::string text = start() +
                     "from torch.distributed.device_mesh import init_device_mesh\nfrom torch.distributed.fsdp import "
                     "MixedPrecisionPolicy, fully_shard\n\n";
  text += shard < ranks
              ? fmt::format("mesh = init_device_mesh(\"cuda\", ({}, {}), mesh_dim_names=(\"replicate\", \"shard\"))\n",
                            ranks / shard, shard)
              : fmt::format("mesh = init_device_mesh(\"cuda\", ({},))\n", ranks);
  text += fmt::format("policy = MixedPrecisionPolicy({})\n", policy);
  if (!parts.units.empty())
    text += fmt::format(
        "for name in {}:\n    fully_shard(model.get_submodule(name), mesh=mesh, mp_policy=policy, "
        "reshard_after_forward={})\n",
        python_list(parts.units), p.reshard_after_forward ? "True" : "False");
  text += "fully_shard(model, mesh=mesh, mp_policy=policy)\n";
  if (p.reduce_buffers != ParallelSetup().reduce_buffers)
    text += fmt::format("model.set_reduce_scatter_max_input_buffers({})\n", p.reduce_buffers);
  if (p.keep_unsharded) text += "model.set_keep_unsharded_storage(True)\n";
  return text;
}

std::string tensor(const ParallelSetup& p, const ModelParts& parts) {
  std::string plan;
  for (const auto& [module, style] : parts.tensor_plan)
    plan += fmt::format("    {}: {},\n", python_string(module), style);
  return start() +
         fmt::format(
             "from torch.distributed.device_mesh import init_device_mesh\nfrom torch.distributed.tensor import "
             "Replicate{}\n"
             "from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, {}parallelize_module\n\n",
             p.loss_parallel ? ", Shard" : "", p.loss_parallel ? "loss_parallel, " : "") +
         "# What is cut moves piece by piece, then the rest; what was tied is tied again.\nnames = {}\n"
         "for name, parameter in model.named_parameters(remove_duplicate=False):\n    names.setdefault(parameter, "
         "[]).append(name)\n" +
         fmt::format("parallelize_module(model, init_device_mesh(\"cuda\", ({},)), {{\n{}}})\n", p.tensor, plan) +
         "for first, *others in names.values():\n    for other in others:\n        module, _, last = "
         "other.rpartition(\".\")\n"
         "        setattr(model.get_submodule(module), last, model.get_parameter(first))\nmodel.to(\"cuda\")\n";
}

bool only_data(const ParallelSetup& p) { return p.tensor == 1 && p.pipeline == 1 && p.context == 1 && p.expert == 1; }

}  // namespace

bool has_short_program(const ParallelSetup& p) {
  if (in_megatron(p)) return false;
  if (!is_parallel(p)) return true;
  if (only_data(p)) return strategy_of(p).units || strategy_of(p).buckets;
  return p.tensor > 1 && !p.sequence_parallel && p.data == 1 && p.pipeline == 1 && p.context == 1;
}

std::string place_on_devices(const ParallelSetup& p, const ModelParts& parts) {
  if (!is_parallel(p) && !in_megatron(p)) return "model.to(\"cuda\")\n";
  if (!has_short_program(p))
    fail(ErrorKind::usage, fmt::format("there is no short program for {}", describe(p)), "--program",
         "docs/parallelism.md describes what is estimated");
  if (!only_data(p)) return tensor(p, parts);
  return strategy_of(p).units ? fsdp(p, parts) : ddp(p);
}

}  // namespace memplan::cli
