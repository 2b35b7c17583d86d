#include "cli/commands/parallel_program.h"

#include <fmt/format.h>

#include <map>

#include "cli/answer.h"
#include "cli/report/report.h"
#include "estimators/strategies/blocks.h"

namespace memplan::cli {

namespace {

const char* torch_dtype(DType d) { return d == DType::bfloat16 ? "torch.bfloat16" : d == DType::float16 ? "torch.float16" : "torch.float32"; }

std::string start() {
  return "import contextlib\nimport os\n\nimport torch.distributed as dist\n\n"
         "# Start it with torchrun --nproc-per-node=GPUS; memplan estimates one of the processes.\n"
         "torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))\ndist.init_process_group(\"nccl\")\n";
}

std::string ddp(const ParallelSetup& p) {
  std::string arguments = "model, device_ids=[torch.cuda.current_device()]";
  if (p.bucket_cap_mib != 25) arguments += fmt::format(", bucket_cap_mb={}", p.bucket_cap_mib);
  if (p.gradient_as_bucket_view) arguments += ", gradient_as_bucket_view=True";
  return start() + "model.to(\"cuda\")\nmodel = torch.nn.parallel.DistributedDataParallel(" + arguments + ")\n";
}

std::string fsdp(const Options& options) {
  const ParallelSetup& p = options.setup.parallel;
  const Tape tape = take(lower(take(load_model(options.argument)), options.setup));
  std::string policy;
  if (p.param_dtype) policy += fmt::format("param_dtype={}", torch_dtype(*p.param_dtype));
  if (p.reduce_dtype) policy += fmt::format("{}reduce_dtype={}", policy.empty() ? "" : ", ", torch_dtype(*p.reduce_dtype));
  const std::int64_t ranks = p.data * p.context, shard = shard_group(p);
  std::string text = start() + "from torch.distributed.device_mesh import init_device_mesh\nfrom torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n\n";
  text += shard < ranks ? fmt::format("mesh = init_device_mesh(\"cuda\", ({}, {}), mesh_dim_names=(\"replicate\", \"shard\"))\n", ranks / shard, shard) : fmt::format("mesh = init_device_mesh(\"cuda\", ({},))\n", ranks);
  text += fmt::format("policy = MixedPrecisionPolicy({})\n", policy);
  const auto globs = p.blocks.empty() ? std::vector<std::string>{"blocks"} : p.blocks;
  if (!p.blocks.empty() || !repeated_modules(tape).empty()) {
    text += "for name in [\n";
    std::string last;
    for (std::int32_t s : outermost(tape, named_modules(tape, globs, "--blocks")))
      if (const std::string& path = tape.scopes[static_cast<std::size_t>(s)].path; path != last) text += fmt::format("    \"{}\",\n", clean(last = path));
    text += fmt::format("]:\n    fully_shard(model.get_submodule(name), mesh=mesh, mp_policy=policy, reshard_after_forward={})\n", p.reshard_after_forward ? "True" : "False");
  }
  return text + "fully_shard(model, mesh=mesh, mp_policy=policy)\n";
}

/// Which parameters the ranks hold a part of tells the plan: rows of a weight are outputs, columns are inputs.
std::string tensor(const Options& options) {
  const Model model = take(load_model(options.argument));
  TrainingSetup alone = options.setup;
  alone.parallel = {};
  const Tape whole = take(lower(model, alone)), part = take(lower(model, options.setup));
  std::string plan;
  for (ValueId id : whole.parameters) {
    const TapeValue& a = whole.values[static_cast<std::size_t>(id.index)];
    const TapeValue& b = part.values[static_cast<std::size_t>(id.index)];
    if (a.sizes == b.sizes || a.sizes.size() != 2) continue;
    const std::string module = a.name.substr(0, a.name.rfind('.'));
    bool embedding = false, head = true;
    for (const Call& c : part.calls) {
      const auto* weight = c.args.size() > 1 ? std::get_if<ValueId>(&c.args[c.op == "memplan::vocab_embedding" ? 0 : 1].value) : nullptr;
      if (!weight || *weight != id) continue;
      embedding = embedding || c.op == "memplan::vocab_embedding";
    }
    for (const Scope& s : whole.scopes)
      if (s.path == module) head = s.parent >= 0 && whole.scopes[static_cast<std::size_t>(s.parent)].parent < 0;
    const std::string style = embedding                  ? "RowwiseParallel(input_layouts=Replicate())"
                              : a.sizes[0] == b.sizes[0] ? "RowwiseParallel()"
                              : head                     ? "ColwiseParallel(output_layouts=Replicate())"
                                                         : "ColwiseParallel()";
    plan += fmt::format("    \"{}\": {},\n", clean(module), style);
  }
  return start() + "from torch.distributed.device_mesh import init_device_mesh\nfrom torch.distributed.tensor import Replicate\n"
                   "from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module\n\n" +
         "# What is cut moves piece by piece, then the rest; what was tied is tied again.\nnames = {}\n"
         "for name, parameter in model.named_parameters(remove_duplicate=False):\n    names.setdefault(parameter, []).append(name)\n" +
         fmt::format("parallelize_module(model, init_device_mesh(\"cuda\", ({},)), {{\n{}}})\n", options.setup.parallel.tensor, plan) +
         "for first, *others in names.values():\n    for other in others:\n        module, _, last = other.rpartition(\".\")\n"
         "        setattr(model.get_submodule(module), last, model.get_parameter(first))\nmodel.to(\"cuda\")\n";
}

}  // namespace

std::string place_on_devices(const Options& options) {
  const ParallelSetup& p = options.setup.parallel;
  if (!is_parallel(p)) return "model.to(\"cuda\")\n";
  const bool only_data = p.tensor == 1 && p.pipeline == 1 && p.context == 1 && p.expert == 1;
  if (only_data && p.sharding == Sharding::fsdp) return fsdp(options);
  if (only_data && p.sharding == Sharding::none) return ddp(p);
  if (p.tensor > 1 && !p.sequence_parallel && p.data == 1 && p.pipeline == 1 && p.context == 1) return tensor(options);
  fail(ErrorKind::usage, fmt::format("there is no short program for {}", describe(p)), "--program", "docs/parallelism.md describes what is estimated");
}

}  // namespace memplan::cli
