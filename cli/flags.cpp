#include "cli/flags.h"

#include <algorithm>
#include <array>
#include <vector>

#include "cli/report/formats.h"
#include "cli/values.h"
#include "estimators/base/text.h"
#include "estimators/setup/names.h"

namespace memplan::cli {

namespace {

constexpr std::size_t many = 1000;

constexpr std::array command_table{
    Command{"estimate", "MODEL", "estimate one setup (the default command)", in_estimate},
    Command{"explain", "MODEL", "what lives at the peak and why; print the reference program", in_explain},
    Command{"report", "REPORT.json", "a saved JSON report in another format", in_report},
    Command{"suggest", "MODEL", "what must change so that it fits, fastest first, with settings to paste", in_suggest},
    Command{"check", "[TARGET...]", "the gate: every target of memplan.toml against its limits and the baseline",
            in_check, many},
    Command{"diff", "A [B]", "what moved between two reports, models or setups (--to)", in_diff, 2},
    Command{"baseline", "write|update|show [TARGET...]", "the peaks that memplan check compares with", in_baseline,
            many},
    Command{"config", "show [TARGET...]", "memplan.toml as it is understood; --effective: every value with its origin",
            in_config, many},
    Command{"validate", "MODEL", "the estimate against PyTorch itself, on the emulated GPU or a real one", in_validate},
    Command{"size", "MODEL", "the largest batch and sequence of a card, and the smallest or cheapest cards", in_size},
    Command{"sweep", "MODEL", "a table over lists of values: --batch 1,2,4..64 --amp none,bf16 --gpu l4,a10", in_sweep},
    Command{"devices", "[NAME]", "the GPUs that memplan knows, or one of them", in_devices},
    Command{"ops", "[MODEL]", "the ops that memplan models, or those of a model", in_ops},
    Command{"observe", "-- COMMAND ...", "run a PyTorch script on an emulated GPU: what would it have needed?",
            in_observe},
    Command{"schema", "[NAME]",
            "the JSON Schema of what --format json prints: report (the default), observe, planner, validate",
            in_schema},
    Command{"completions", "bash|zsh|fish", "print a completion script for a shell", in_completions},
    Command{"man", "", "print the manual page", in_man},
};

const std::array flag_table{
    Flag{"gpu", "", "NAME|SIZE", "", "Device", "card (h100-80gb), class of cards (80GB) or exact size (79GiB)",
         in_setup | in_observe},
    Flag{"margin", "", "SIZE|P%", "", "Device",
         "memory that must stay free for the verdict 'fits' (default 5 %, at least 512 MiB)",
         in_estimate | in_diff | in_planner | in_observe},
    Flag{"reserve", "", "SIZE", "", "Device", "bytes outside PyTorch's counters, instead of the device's CUDA context",
         in_setup | in_observe},

    Flag{"batch", "", "N", "", "Shapes", "batch size of an open batch dimension (default 1)", in_setup | in_ops},
    Flag{"seq", "", "N", "", "Shapes", "length of an open sequence dimension", in_setup | in_ops},
    Flag{"input", "", "NAME:DTYPE:SHAPE", "", "Shapes",
         "an input of a TorchScript file, as in x:float32:batch,3,224,224 (DTYPE:SHAPE: by position)",
         in_setup | in_ops, true},
    Flag{"dim", "", "NAME=N", "", "Shapes", "any open dimension by name", in_setup | in_ops, true},

    Flag{"mode", "", "MODE", choices<mode_names>, "Training",
         "a training step or a forward pass (train and infer do as well)", in_setup},
    Flag{"precision", "", "P", choices<precision_names>, "Training",
         "amp-*: autocast over fp32 weights; bf16, fp16: everything converted; fp8: bf16 with linears in 8 bits "
         "(Transformer Engine)",
         in_setup},
    Flag{"amp", "", "P", "bf16|fp16", "Training", "short for --precision amp-bf16 or amp-fp16", in_setup},
    Flag{"optimizer", "", "NAME", choices<optimizer_names>, "Training", "optimizer (default adamw)", in_setup},
    Flag{"optimizer-impl", "", "I", choices<optimizer_impl_names>, "Training",
         "implementation of the optimizer (default auto: PyTorch's choice)", in_setup},
    Flag{"momentum", "", "X", "", "Training", "momentum of sgd or rmsprop", in_setup},
    Flag{"accumulate", "", "N", "", "Training", "micro-batches per optimizer step", in_setup},
    Flag{"clip", "", "", "", "Training", "clip the gradient norm before the optimizer step", in_setup},
    Flag{"checkpoint", "", "GLOB|blocks|every:N|groups:N[/blocks]|optimal[:SIZE]", "", "Training",
         "modules that run under torch.utils.checkpoint: by path, the model's repeated blocks, every Nth of them, N at "
         "a time, or the cheapest choice under a budget",
         in_setup, true},
    Flag{"checkpoint-save", "", "OPS", "", "Training",
         "ops whose outputs checkpointed modules keep: matmul, attention, convolution or ATen names", in_setup, true},
    Flag{"offload", "", "WHAT", choices<offload_names>, "Training", "what lives in host memory", in_setup, true},
    Flag{"lora", "", "r=N,...", "", "Training",
         "low-rank adapters on a frozen model: r=16,targets=*.q_proj|*.v_proj,dropout=0.1", in_setup},
    Flag{"qlora", "", "r=N,...", "", "Training", "the same on 4-bit weights (NF4 with double quantization)", in_setup},
    Flag{"kv-cache", "", "sequences=N,length=N,...", "", "Training",
         "keys and values kept during inference; dtype=bf16|fp16|fp32|fp8, block=16 for pages", in_setup},
    Flag{"channels-last", "", "", "", "Training", "model and images in torch.channels_last", in_setup},
    Flag{"loss-history", "", "", "", "Training", "a list keeps every step's loss together with its graph", in_setup},
    Flag{"empty-cache", "", "", "", "Training", "torch.cuda.empty_cache() after every step", in_setup},
    Flag{"loss", "", "NAME", choices<loss_names>, "Training", "loss (default auto: from the shape of the output)",
         in_setup},
    Flag{"attention", "", "B", choices<attention_names>, "Training",
         "backend of scaled dot product attention (default auto: PyTorch's choice)", in_setup},
    Flag{"freeze", "", "GLOB", "", "Training", "parameters that are not trained, by name", in_setup, true},
    Flag{"zero-grad", "", "WHEN", choices<zero_grad_names>, "Training",
         "zero_grad at the begin or end of a step; keep: set_to_none=False", in_setup},
    Flag{"steps", "", "N", "", "Training", "simulated steps (default 3)", in_setup},
    Flag{"alloc-conf", "", "CONF", "", "Training",
         "PYTORCH_ALLOC_CONF, as in expandable_segments:True,max_split_size_mb:128", in_setup},

    Flag{"gpus", "", "N", "", "Parallel", "GPUs of the whole job; what the other degrees leave is data-parallel",
         in_setup},
    Flag{"dp", "", "N", "", "Parallel", "data-parallel ranks", in_setup},
    Flag{"ddp", "", "", "", "Parallel", "replicate with DistributedDataParallel (the default on several GPUs)",
         in_setup},
    Flag{"bucket-view", "", "", "", "Parallel", "DDP: gradient_as_bucket_view=True", in_setup},
    Flag{"bucket-cap", "", "MIB", "", "Parallel", "DDP: bucket_cap_mb (default 25)", in_setup},
    Flag{"zero", "", "STAGE", choices<zero_stage_names>, "Parallel", "DeepSpeed ZeRO", in_setup},
    Flag{"overlap-comm", "", "YES", choices<yes_no_names>, "Parallel",
         "ZeRO: overlap_comm (default: DeepSpeed's, yes for stage 3 only)", in_setup},
    Flag{"reduce-bucket", "", "N", "", "Parallel", "ZeRO: reduce_bucket_size in elements (default 500000000)",
         in_setup},
    Flag{"megatron", "", "", "", "Parallel",
         "Megatron-LM: fp32 gradients in one buffer, fp32 weights in the optimizer; with --sp and --tp its layers and "
         "loss",
         in_setup},
    Flag{"dist-opt", "", "", "", "Parallel", "Megatron-LM with its distributed optimizer (implies --megatron)",
         in_setup},
    Flag{"fsdp", "", "", "", "Parallel", "FSDP2: fully_shard on every block and on the root", in_setup},
    Flag{"no-reshard", "", "", "", "Parallel", "FSDP2: reshard_after_forward=False", in_setup},
    Flag{"hsdp", "", "N", "", "Parallel", "FSDP2 within groups of N ranks, replicated between them (implies --fsdp)",
         in_setup},
    Flag{"fsdp-dtype", "", "D", choices<floating_names>, "Parallel", "FSDP2: MixedPrecisionPolicy(param_dtype)",
         in_setup},
    Flag{"reduce-dtype", "", "D", choices<floating_names>, "Parallel", "FSDP2: MixedPrecisionPolicy(reduce_dtype)",
         in_setup},
    Flag{"blocks", "", "GLOB", "", "Parallel",
         "modules that FSDP2 shards and pipelines cut between (default: the repeated blocks)", in_setup, true},
    Flag{"tp", "", "N", "", "Parallel", "tensor-parallel ranks", in_setup},
    Flag{"sp", "", "", "", "Parallel", "sequence parallelism within the tensor-parallel ranks", in_setup},
    Flag{"pp", "", "N", "", "Parallel", "pipeline stages", in_setup},
    Flag{"pp-schedule", "", "S", "gpipe|1f1b|interleaved:V|zero-bubble[:V]|zbv", "Parallel",
         "schedule of the pipeline (default 1f1b)", in_setup},
    Flag{"pp-split", "", "N,N,...", "", "Parallel", "blocks of every stage, in order (default: as even as they go)",
         in_setup},
    Flag{"micro-batches", "", "N", "", "Parallel", "micro-batches of --batch samples per step of a pipeline", in_setup},
    Flag{"cp", "", "N", "", "Parallel", "context-parallel ranks: each takes a share of the sequence", in_setup},
    Flag{"ep", "", "N", "", "Parallel", "expert-parallel ranks, cut out of the data-parallel ones", in_setup},

    Flag{"format", "", "F", report_format_names(), "Output",
         "what goes to stdout (default text); docs/cli.md says what each is for", in_reports},
    Flag{"export", "", "FORMAT=FILE", "", "Output", "also write the report to a file in this format", in_documents,
         true, false},
    Flag{"allow", "", "KNOBS", "", "Planner",
         "knobs that may be turned besides the usual ones: weights, optimizer, adapters, or all", in_suggest, true},
    Flag{"keep", "", "KNOBS", "", "Planner",
         "knobs that stay: allocator, implementation, batch, checkpoint, precision, parallel, offload, or all",
         in_suggest, true},
    Flag{"keep-global-batch", "", "YES", choices<yes_no_names>, "Planner",
         "samples per optimizer step stay (default yes: smaller micro-batches are accumulated)", in_suggest},
    Flag{"for", "", "FRAMEWORK", choices<framework_names>, "Planner", "settings to paste into (default pytorch)",
         in_suggest},
    Flag{"emit-flags", "", "", "", "Planner", "print only the flags of the first recommendation", in_suggest, false,
         false},
    Flag{"prices", "", "FILE", "", "Planner", "lines 'card,price per hour': the cheapest cards come first", in_size},
    Flag{
        "utilization", "", "SHARE", "", "Planner",
        "share of the card that may be used, 0.9 or 90% (vLLM's gpu_memory_utilization; default: what --margin leaves)",
        in_size},
    Flag{"wanted", "", "N", "", "Planner", "recommendations to list (default 3)", in_suggest},

    Flag{"output", "o", "FILE", "", "Output", "write the report to a file, which appears only when it is complete",
         in_reports, false, false},
    Flag{"top", "", "N", "", "Output", "rows of the tensor table (0: all)", in_setup | in_documents | in_observe},
    Flag{"quiet", "q", "", "", "Output", "one line: verdict, peak, limit", in_documents},
    Flag{"color", "", "WHEN", "auto|always|never", "Output", "colours (auto: on a terminal, unless NO_COLOR is set)",
         in_reports},
    Flag{"ascii", "", "", "", "Output", "plain ASCII", in_reports},
    Flag{"width", "", "N", "", "Output", "columns (default 100, less on a narrow terminal)", in_reports},
    Flag{"timeline", "", "", "", "Output",
         "with every event of the run, other sizes and other cards (html, perfetto and snapshot always are)",
         in_estimate},
    Flag{"no-search", "", "", "", "Output", "leave out inference, the largest batch, other cards and what would fit",
         in_estimate},

    Flag{"fail-on", "", "WHAT", "no-fit|tight|unknown|regression|warning|never", "Gate",
         "what ends with exit code 1 (default no-fit,unknown; with a baseline also regression)",
         in_estimate | in_gate | in_observe, true},
    Flag{"exit-zero", "", "", "", "Gate", "exit code 0 instead of 1", in_estimate | in_check | in_planner | in_observe},
    Flag{"config", "", "FILE", "", "Gate", "the configuration (default: the nearest memplan.toml from here upward)",
         in_gate},
    Flag{"max-peak", "", "SIZE|P%", "", "Gate", "what the peak may be at most; P% is of the card", in_estimate},
    Flag{"warn-peak", "", "SIZE|P%", "", "Gate", "warns when the peak is above it", in_estimate},
    Flag{
        "baseline", "", "FILE", "", "Gate",
        "any earlier JSON report to compare with (FILE#TARGET: one of a gate's; check: default .memplan/baseline.json)",
        in_estimate | in_gate},
    Flag{"max-increase", "", "SIZE|P%", "", "Gate", "what the peak may grow over the baseline's", in_estimate},
    Flag{"warn-increase", "", "SIZE|P%", "", "Gate", "warns when the peak grew by more", in_estimate},
    Flag{"force", "f", "", "", "Gate", "replace a baseline that is there", in_baseline, false, false},
    Flag{"effective", "", "", "", "Gate", "every value with its origin: flag, environment, file or default", in_config,
         false, false},
    Flag{"to", "", "FLAGS", "", "Compare", "the flags of the other setup, as in --to '--batch 16 --amp bf16'", in_diff,
         false, false},

    Flag{"on", "", "WHERE", "", "Validate", "emulated[:CARD] (no GPU needed) or cuda[:N]: where PyTorch runs the steps",
         in_validate},
    Flag{"measured", "", "FILE|SIZE", "", "Validate",
         "compare with a memory snapshot, a memory_stats() JSON, or a figure such as 11.3GiB", in_validate, false,
         false},
    Flag{"counter", "", "NAME", "requested|allocated|reserved|process", "Validate",
         "what a figure of --measured is (default allocated; process: nvidia-smi)", in_validate},
    Flag{"tolerance", "", "P%", "", "Validate", "difference of the peak above which the exit code is 1 (default 2 %)",
         in_validate},
    Flag{"timeout", "", "SECONDS", "", "Validate", "time that PyTorch may take (default 600)", in_validate},

    Flag{"program", "", "", "", "Explain", "print the PyTorch script whose memory is estimated", in_explain, false,
         false},
    Flag{"evidence", "", "", "", "Explain", "list the facts that the estimate rests on, and where they come from",
         in_explain, false, false},
    Flag{"tensor", "", "TEXT", "", "Explain", "only tensors whose name contains TEXT", in_explain, false, false},
    Flag{"module", "", "TEXT", "", "Explain", "only tensors made in modules whose path contains TEXT", in_explain,
         false, false},
    Flag{"unsupported", "", "", "", "Explain", "only the ops of the model that memplan has no row for", in_ops, false,
         false},

    Flag{"world", "", "N", "", "Script",
         "ranks of the job; each runs by itself, with RANK, LOCAL_RANK and WORLD_SIZE set", in_observe},
    Flag{"ranks", "", "N,N", "", "Script", "only these ranks of --world", in_observe},
    Flag{"devices", "", "N", "", "Script", "GPUs that a process sees (default: as --world, at most 8)", in_observe},
    Flag{"stop-after", "", "N", "", "Script", "end the script after N optimizer steps", in_observe},
    Flag{"no-limit", "", "", "", "Script", "never run out of memory: how much would it need?", in_observe},
    Flag{"jobs", "", "N", "", "Script", "ranks that run at once (default: one per core)", in_observe},

    Flag{"help", "h", "", "", "General", "this text", in_all, false, false},
    Flag{"version", "V", "", "", "General", "print the version", in_all, false, false},
};

}  // namespace

std::span<const Command> commands() { return command_table; }
std::span<const Flag> flags() { return flag_table; }

const Command* find_command(std::string_view name) {
  for (const Command& c : command_table)
    if (c.name == name) return &c;
  return nullptr;
}

const Flag* find_flag(std::string_view name) {
  for (const Flag& f : flag_table)
    if (f.name == name) return &f;
  return nullptr;
}

std::string_view nearest_flag(std::string_view name, std::uint32_t commands) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const Flag& f : flag_table) {
    if (!(f.commands & commands)) continue;
    const std::size_t d = edit_distance(name, f.name);
    if (d < best_distance) {
      best_distance = d;
      best = f.name;
    }
  }
  return best;
}

}  // namespace memplan::cli
