// The flags that say what is estimated: device, shapes, training, parallelism.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "cli/flags/options.h"
#include "cli/flags/strategy_values.h"
#include "cli/flags/threshold.h"
#include "cli/flags/values.h"
#include "estimators/runtime/ort/versions/versions.h"
#include "estimators/runtime/torch/profile/environment.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/field.h"
#include "estimators/setup/names.h"
#include "estimators/setup/runtimes.h"

namespace memplan::cli {

namespace {

Margin parse_margin(const std::string& text) {
  const Threshold share = parse_threshold(text, "--margin");
  if (!share.bytes && share.percent > 100)
    fail(ErrorKind::usage, "a margin above 100 % never fits", "--margin", "give a percentage such as 5%");
  return {share.bytes, share.percent};
}

void parse_dimensions(const std::vector<std::string>& words, TrainingSetup& setup) {
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0)
      fail(ErrorKind::usage, fmt::format("'{}' is not a dimension", word), setting(Field::dims),
           "write " + setting(Field::dims, "NAME=NUMBER") + ", as in " + setting(Field::dims, "seq=2048"));
    setup.dims[word.substr(0, equals)] =
        parse_count(std::string_view(word).substr(equals + 1), setting(Field::dims, word.substr(0, equals)));
  }
}

void parse_autocast(const Given& g, Options& o) {
  TrainingSetup& s = o.setup;
  Fp8 none = Fp8::none;
  if (g.text() != "bf16" && g.text() != "fp16")
    fail(ErrorKind::usage, fmt::format("'{}' is not a value for {}", g.text(), g.name()), g.name(),
         g.text().starts_with("fp8")
             ? "use bf16 or fp16; " + setting(Field::precision, g.text()) + " is a precision of its own"
             : "use bf16 or fp16");
  const Precision amp = parse_precision("amp-" + g.text(), none);
  if (g.parsed.has("precision") && (s.precision != amp || s.fp8 != Fp8::none))
    fail(ErrorKind::usage, setting(Field::autocast) + " and " + setting(Field::precision) + " contradict each other",
         setting(Field::autocast), "give one of them");
  s.precision = amp;
}

void parse_momentum(const Given& g, Options& o) {
  OptimizerSetup& optimizer = o.setup.optimizer;
  if (optimizer.kind != OptimizerKind::sgd && optimizer.kind != OptimizerKind::rmsprop)
    fail(ErrorKind::usage, "only sgd and rmsprop have a momentum", setting(Field::momentum),
         "add " + setting(Field::optimizer, "sgd") + " or leave " + setting(Field::momentum) + " out");
  optimizer.momentum = parse_number(g.text(), g.name());
}

/// diff takes two of them, of which it makes two setups.
void parse_torch(const Given& g, Options& o) {
  o.torch = g.text();
  const bool two = o.command && o.command->id == in_diff && o.torch.find(',') != std::string::npos;
  for (const std::string& version : two ? split_words(o.torch) : std::vector<std::string>{o.torch})
    check_version(version);
}

void parse_runtime(const Given& g, Options& o) {
  const auto name = value_in(runtime_names, g.text());
  if (!name)
    fail(ErrorKind::usage, fmt::format("'{}' is not a value for {}", g.text(), g.name()), g.name(), "use torch or ort");
  o.setup.runtime.name = *name;
}

void parse_ort_options(const Given& g, Options& o) {
  for (const std::string& word : g.values) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == word.size())
      fail(ErrorKind::usage, fmt::format("'{}' is not an option of ONNX Runtime", word), g.name(),
           "write " + setting(Field::runtime_option, "OPTION=VALUE") + ", as in " +
               setting(Field::runtime_option, "arena_extend_strategy=kSameAsRequested"));
    set_ort_option(o.setup.ort, std::string_view(word).substr(0, equals), std::string_view(word).substr(equals + 1));
  }
}

/// Of flags that only the exporter understands.
void check_choice(const Given& g, Options&) {
  const std::vector<std::string> known = split_words(g.flag.choices, '|');
  if (std::find(known.begin(), known.end(), g.text()) == known.end())
    fail(ErrorKind::usage, fmt::format("'{}' is not a value for --{}", g.text(), g.flag.name), g.origin(),
         fmt::format("use {}", fmt::join(known, ", ")));
}

void parse_activation_budget(const Given& g, Options& o) {
  const double budget = parse_number(g.text(), g.name());
  if (!(budget >= 0 && budget <= 1))
    fail(ErrorKind::usage, fmt::format("'{}' is not a budget", g.text()), g.name(),
         "give a number from 0 to 1, as in " + setting(Field::activation_memory_budget, "0.5"));
  o.setup.activation_memory_budget = budget;
  o.setup.compile = true;
}

void parse_environment(const Given& g, Options& o) {
  for (const std::string& word : g.values) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0)
      fail(ErrorKind::usage, fmt::format("'{}' is not a variable with its value", word), g.name(),
           "write " + setting(Field::environment, "NAME=VALUE") + ", as in " +
               setting(Field::environment, "CUBLAS_WORKSPACE_CONFIG=:4096:8"));
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    check_environment(name, value);
    if (sets_allocator(name)) {
      parse_alloc_conf(value, g.name());
      if (g.parsed.has("alloc-conf"))
        fail(ErrorKind::usage, fmt::format("{} and {} set the same thing", setting(Field::allocator), name), g.name(),
             "give one of them");
    }
    o.setup.runtime.environment[name] = value;
  }
}

constexpr std::array
    setup_rows{
        Flag{"class", "", "NAME", "", "Model", "class of transformers (default: the one that the configuration names)",
             in_setup | in_ops | in_source, nullptr, false, false},
        Flag{"task", "", "T",
             "causal-lm|masked-lm|seq2seq-lm|sequence-classification|token-classification|question-answering|"
             "image-classification|base",
             "Model", "instead of a class", in_setup | in_ops | in_source, check_choice, false, false},
        Flag{"no-labels", "", "", "", "Model", "leave out the loss that the model computes itself",
             in_setup | in_ops | in_source, nullptr, false, false},
        Flag{"dtype", "", "D", "", "Model", "dtype of the parameters (default: as from_pretrained() makes them)",
             in_setup | in_ops | in_source, nullptr, false, false},
        Flag{"gradient-checkpointing", "", "", "", "Model",
             "switch on the model's own checkpointing, as the Trainer's option of that name does",
             in_setup | in_ops | in_source, nullptr, false, false},
        Flag{"trust-remote-code", "", "", "", "Model", "run code that a model of transformers brings along",
             in_setup | in_ops | in_source, nullptr, false, false},
        Flag{"download", "", "", "", "Model", "fetch the configuration of hf:org/name if the cache lacks it",
             in_setup | in_ops | in_source, nullptr, false, false},
        Flag{"gpu", "", "NAME|SIZE", "", "Device", "card (h100-80gb), class of cards (80GB) or exact size (79GiB)",
             in_setup | in_observe | in_record, [](const Given& g, Options& o) { o.gpu = g.text(); }},
        Flag{"margin", "", "SIZE|P%", "", "Device",
             "memory that must stay free for the verdict 'fits' (default 5 %, at least 512 MiB)",
             in_estimate | in_diff | in_planner | in_observe,
             [](const Given& g, Options& o) { o.setup.margin = parse_margin(g.text()); }},
        Flag{"reserve", "", "SIZE", "", "Device",
             "bytes outside PyTorch's counters, instead of the device's CUDA context", in_setup | in_observe,
             [](const Given& g, Options& o) { o.reserve = parse_size_with_unit(g.text(), g.name()); }},
        Flag{"torch", "", "X.Y", "", "Device",
             "version of PyTorch that runs the model (default: the one that wrote the file, else the newest known)",
             in_setup | in_ops, parse_torch, false, false},
        Flag{"cudnn", "", "auto|none|PATH", "", "Device",
             "cuDNN that is asked about convolutions that no table has (default: the one that python3's PyTorch "
             "brought)",
             in_setup, [](const Given& g, Options& o) { o.cudnn = g.text(); }},
        Flag{"onnxruntime", "", "auto|none|PYTHON", "", "Device",
             "Python whose ONNX Runtime rewrites a plain file as a session would (default: python3, if it has one)",
             in_setup, [](const Given& g, Options& o) { o.onnxruntime = g.text(); }},
        Flag{"ort-version", "", "X.Y", "", "Device",
             "version of ONNX Runtime that runs the file (default: the one that is installed, else the newest known)",
             in_setup, [](const Given& g, Options& o) { check_ort_version(o.ort_version = g.text()); }},
        Flag{"calibration", "", "auto|none|FILE", "", "Device",
             "what memplan calibrate measured of the card (default: the profile in ~/.config/memplan/gpus)",
             in_setup | in_observe, [](const Given& g, Options& o) { o.calibration = g.text(); }},
        Flag{"batch", "", "N", "", "Shapes", "batch size of an open batch dimension (default 1)",
             in_setup | in_ops | in_source, [](const Given& g, Options& o) { o.setup.batch = g.count(); }},
        Flag{"seq", "", "N", "", "Shapes", "length of an open sequence dimension", in_setup | in_ops | in_source,
             [](const Given& g, Options& o) { o.setup.sequence = g.count(); }},
        Flag{"seq-from", "", "N", "", "Shapes",
             "batches of the run have from N to --seq tokens: what that leaves in the allocator is in the range",
             in_setup, [](const Given& g, Options& o) { o.setup.shortest_sequence = g.count(); }},
        Flag{"input", "", "NAME:DTYPE:SHAPE", "", "Shapes",
             "an input of a TorchScript file or of a model that is exported here, as in x:float32:batch,3,224,224 "
             "(DTYPE:SHAPE: by position)",
             in_setup | in_ops | in_source,
             [](const Given& g, Options& o) {
               o.input_words = g.values;
               for (const std::string& word : g.values) o.inputs.push_back(parse_input(word, g.name()));
             },
             true},
        Flag{"dim", "", "NAME=N", "", "Shapes", "size of an open dimension, by name", in_setup | in_ops,
             [](const Given& g, Options& o) { parse_dimensions(g.words(), o.setup); }, true},
        Flag{"runtime", "", "NAME", choices<runtime_names>, "Device",
             "what runs the model: PyTorch's eager mode, or ONNX Runtime with its CUDA provider (inference of ONNX "
             "files)",
             in_setup, parse_runtime},
        Flag{"ort", "", "OPTION=VALUE", "", "Device",
             "ONNX Runtime: an option of the provider or session, as in arena_extend_strategy=kSameAsRequested",
             in_setup, parse_ort_options, true},
        Flag{"mode", "", "MODE", choices<mode_names>, "Training",
             "a training step or a forward pass (train and infer mean the same)", in_setup,
             [](const Given& g, Options& o) {
               o.setup.mode = parse_mode(g.text());
               o.mode_given = true;
             }},
        Flag{"precision", "", "P", choices<precision_names>, "Training",
             "amp-*: autocast over fp32 weights; bf16, fp16: everything converted; fp8: bf16 with linears in 8 bits "
             "(Transformer Engine)",
             in_setup, [](const Given& g, Options& o) { o.setup.precision = parse_precision(g.text(), o.setup.fp8); }},
        Flag{"amp", "", "P", "bf16|fp16", "Training", "short for --precision amp-bf16 or amp-fp16", in_setup,
             parse_autocast},
        Flag{"optimizer", "", "NAME", choices<optimizer_names>, "Training", "optimizer (default adamw)", in_setup,
             [](const Given& g, Options& o) { o.setup.optimizer = parse_optimizer(g.text()); }},
        Flag{"optimizer-impl", "", "I", choices<optimizer_impl_names>, "Training",
             "implementation of the optimizer (default auto: PyTorch's choice)", in_setup,
             [](const Given& g, Options& o) { o.setup.optimizer.impl = parse_optimizer_impl(g.text()); }},
        Flag{"momentum", "", "X", "", "Training", "momentum of sgd or rmsprop", in_setup, parse_momentum},
        Flag{"accumulate", "", "N", "", "Training", "micro-batches per optimizer step", in_setup,
             [](const Given& g, Options& o) {
               constexpr std::int64_t most = 1'000'000'000'000;  // searches multiply it
               if (g.count() > most)
                 fail(ErrorKind::usage, fmt::format("a step has at most {} micro-batches here", most), g.name());
               o.setup.accumulate = g.count();
             }},
        Flag{"clip", "", "", "", "Training", "clip the gradient norm before the optimizer step", in_setup,
             [](const Given&, Options& o) { o.setup.clip_grad_norm = true; }},
        Flag{"checkpoint", "", "GLOB|blocks|every:N|groups:N[/blocks]|optimal[:SIZE]", "", "Training",
             "modules that run under torch.utils.checkpoint: by path, the model's repeated blocks, every Nth of them, "
             "N at "
             "a time, or the cheapest choice under a budget",
             in_setup, parse_checkpoint, true},
        Flag{"checkpoint-save", "", "OPS", "", "Training",
             "ops whose outputs checkpointed modules keep: matmul, attention, convolution or ATen names", in_setup,
             parse_checkpoint_save, true},
        Flag{"offload", "", "WHAT", choices<offload_names>, "Training", "what lives in host memory", in_setup,
             parse_offload, true},
        Flag{"lora", "", "r=N,...", "", "Training",
             "low-rank adapters on a frozen model: r=16,targets=*.q_proj|*.v_proj,dropout=0.1", in_setup, parse_lora},
        Flag{"qlora", "", "r=N,...", "", "Training", "the same on 4-bit weights (NF4 with double quantization)",
             in_setup, parse_lora},
        Flag{"kv-cache", "", "sequences=N,length=N,...", "", "Training",
             "keys and values kept during inference; dtype=bf16|fp16|fp32|fp8, block=16 for pages", in_setup,
             parse_kv_cache},
        Flag{"channels-last", "", "", "", "Training", "model and images in torch.channels_last", in_setup,
             [](const Given&, Options& o) { o.setup.channels_last = true; }},
        Flag{"loss-history", "", "", "", "Training", "a list keeps every step's loss together with its graph", in_setup,
             [](const Given&, Options& o) { o.setup.keep_loss_history = true; }},
        Flag{"empty-cache", "", "", "", "Training", "torch.cuda.empty_cache() after every step", in_setup,
             [](const Given&, Options& o) { o.setup.empty_cache = true; }},
        Flag{"compile", "", "", "", "Training",
             "torch.compile(model): compiled by PyTorch on the emulated GPU for train.py:fn, ./checkpoint, hf:org/name "
             "or a recording of it; modelled for a graph file",
             in_setup, [](const Given&, Options& o) { o.setup.compile = true; }},
        Flag{"activation-memory-budget", "", "SHARE", "", "Training",
             "torch._functorch.config.activation_memory_budget, 0 to 1 (default 1): the share of what the fastest "
             "compiled step keeps for its backward pass; implies --compile",
             in_setup, parse_activation_budget},
        Flag{"loss", "", "NAME", choices<loss_names>, "Training",
             "loss (default auto: from the shape of the output; causal-lm: as transformers takes it)", in_setup,
             [](const Given& g, Options& o) { o.setup.loss = parse_loss(g.text()); }},
        Flag{"attention", "", "B", choices<attention_names>, "Training",
             "backend of scaled dot product attention (default auto: PyTorch's choice)", in_setup,
             [](const Given& g, Options& o) { o.setup.attention = parse_attention(g.text()); }},
        Flag{"freeze", "", "GLOB", "", "Training", "parameters that are not trained, by name", in_setup,
             [](const Given& g, Options& o) { o.setup.frozen = g.words(); }, true},
        Flag{"zero-grad", "", "WHEN", choices<zero_grad_names>, "Training",
             "zero_grad at the beginning or end of a step, or before its backward pass; keep: set_to_none=False",
             in_setup, [](const Given& g, Options& o) { o.setup.zero_grad = parse_zero_grad(g.text()); }},
        Flag{"steps", "", "N", "", "Training", "simulated steps (default 3)", in_setup,
             [](const Given& g, Options& o) { o.setup.steps = g.count(); }},
        Flag{"alloc-conf", "", "CONF", "", "Training",
             "PYTORCH_ALLOC_CONF, as in expandable_segments:True,max_split_size_mb:128", in_setup,
             [](const Given& g, Options& o) {
               o.setup.allocator = parse_alloc_conf(g.text(), g.name());
               o.alloc_conf = g.text();
             }},
        Flag{"env", "", "NAME=VALUE", "", "Training",
             "a variable of the environment that PyTorch runs in, as in CUBLAS_WORKSPACE_CONFIG=:4096:8 (memplan does "
             "not look at its own)",
             in_setup, parse_environment, true},
        Flag{"gpus", "", "N", "", "Parallel", "GPUs of the whole job; what the other degrees leave is data-parallel",
             in_setup, [](const Given& g, Options& o) { o.setup.parallel.gpus = g.count(); }},
        Flag{"dp", "", "N", "", "Parallel", "data-parallel ranks", in_setup,
             [](const Given& g, Options& o) { o.setup.parallel.data = g.count(); }},
        Flag{"ddp", "", "", "", "Parallel", "replicate with DistributedDataParallel (the default on several GPUs)",
             in_setup, nullptr},
        Flag{"bucket-view", "", "", "", "Parallel", "DDP: gradient_as_bucket_view=True", in_setup,
             [](const Given&, Options& o) { o.setup.parallel.gradient_as_bucket_view = true; }},
        Flag{"bucket-cap", "", "MIB", "", "Parallel", "DDP: bucket_cap_mb (PyTorch's default: 25)", in_setup,
             [](const Given& g, Options& o) { o.setup.parallel.bucket_cap_mib = g.count(); }},
        Flag{"lazy-buckets", "", "", "", "Parallel", "DDP: lazy_bucket_allocation=True (PyTorch 2.15)", in_setup,
             [](const Given&, Options& o) { o.setup.parallel.lazy_buckets = true; }},
        Flag{"zero", "", "STAGE", choices<zero_stage_names>, "Parallel", "DeepSpeed ZeRO", in_setup,
             [](const Given& g, Options& o) { o.setup.parallel.sharding = parse_zero_stage(g.text()); }},
        Flag{"overlap-comm", "", "YES", choices<yes_no_names>, "Parallel",
             "ZeRO: overlap_comm (default: DeepSpeed's, yes for stage 3 only)", in_setup,
             [](const Given& g, Options& o) {
               o.setup.parallel.overlap_communication = parse_yes_no(g.text(), g.name());
             }},
        Flag{"reduce-bucket", "", "N", "", "Parallel", "ZeRO: reduce_bucket_size in elements (default 500000000)",
             in_setup, [](const Given& g, Options& o) { o.setup.parallel.reduce_bucket = g.count(); }},
        Flag{"megatron", "", "", "", "Parallel",
             "Megatron-LM: fp32 gradients in one buffer, fp32 weights in the optimizer; with --sp and --tp its layers "
             "and "
             "loss",
             in_setup, [](const Given&, Options& o) { o.setup.parallel.sharding = Sharding::megatron; }},
        Flag{"dist-opt", "", "", "", "Parallel", "Megatron-LM with its distributed optimizer (implies --megatron)",
             in_setup, [](const Given&, Options& o) { o.setup.parallel.sharding = Sharding::megatron_dist; }},
        Flag{"fsdp", "", "", "", "Parallel", "FSDP2: fully_shard on every block and on the root", in_setup,
             [](const Given&, Options& o) { o.setup.parallel.sharding = Sharding::fsdp; }},
        Flag{"no-reshard", "", "", "", "Parallel", "FSDP2: reshard_after_forward=False", in_setup,
             [](const Given&, Options& o) { o.setup.parallel.reshard_after_forward = false; }},
        Flag{"hsdp", "", "N", "", "Parallel",
             "FSDP2 within groups of N ranks, replicated between them (implies --fsdp)", in_setup,
             [](const Given& g, Options& o) {
               o.setup.parallel.sharding = Sharding::fsdp;
               o.setup.parallel.shard_size = g.count();
             }},
        Flag{"reduce-buffers", "", "N", "", "Parallel",
             "FSDP2: set_reduce_scatter_max_input_buffers(N) (default 1; PyTorch 2.13)", in_setup,
             [](const Given& g, Options& o) { o.setup.parallel.reduce_buffers = g.count(); }},
        Flag{"keep-unsharded", "", "", "", "Parallel", "FSDP2: set_keep_unsharded_storage(True) (PyTorch 2.15)",
             in_setup, [](const Given&, Options& o) { o.setup.parallel.keep_unsharded = true; }},
        Flag{"fsdp-dtype", "", "D", choices<floating_names>, "Parallel", "FSDP2: MixedPrecisionPolicy(param_dtype)",
             in_setup,
             [](const Given& g, Options& o) { o.setup.parallel.param_dtype = parse_floating(g.text(), g.name()); }},
        Flag{"reduce-dtype", "", "D", choices<floating_names>, "Parallel", "FSDP2: MixedPrecisionPolicy(reduce_dtype)",
             in_setup,
             [](const Given& g, Options& o) { o.setup.parallel.reduce_dtype = parse_floating(g.text(), g.name()); }},
        Flag{"blocks", "", "GLOB", "", "Parallel",
             "modules that FSDP2 shards and pipelines cut between (default: the repeated blocks)", in_setup,
             [](const Given& g, Options& o) { o.setup.parallel.blocks = g.words(); }, true},
        Flag{"tp", "", "N", "", "Parallel", "tensor-parallel ranks", in_setup,
             [](const Given& g, Options& o) { o.setup.parallel.tensor = g.count(); }},
        Flag{"sp", "", "", "", "Parallel", "sequence parallelism within the tensor-parallel ranks", in_setup,
             [](const Given&, Options& o) { o.setup.parallel.sequence_parallel = true; }},
        Flag{"loss-parallel", "", "", "", "Parallel",
             "logits and cross entropy stay divided among the tensor-parallel ranks: loss_parallel()", in_setup,
             [](const Given&, Options& o) { o.setup.parallel.loss_parallel = true; }},
        Flag{"pp", "", "N", "", "Parallel", "pipeline stages", in_setup,
             [](const Given& g, Options& o) { o.setup.parallel.pipeline = g.count(); }},
        Flag{"pp-schedule", "", "S", "gpipe|1f1b|interleaved:V|zero-bubble[:V]|zbv", "Parallel",
             "schedule of the pipeline (default 1f1b)", in_setup,
             [](const Given& g, Options& o) { parse_pipeline_schedule(g.text(), o.setup.parallel); }},
        Flag{"pp-split", "", "N,N,...", "", "Parallel", "blocks of every stage, in order (default: as even as they go)",
             in_setup, [](const Given& g, Options& o) { o.setup.parallel.split = parse_split(g.text()); }},
        Flag{"micro-batches", "", "N", "", "Parallel", "micro-batches of --batch samples per step of a pipeline",
             in_setup, [](const Given& g, Options& o) { o.setup.parallel.micro_batches = g.count(); }},
        Flag{"cp", "", "N", "", "Parallel", "context-parallel ranks: each takes a share of the sequence", in_setup,
             [](const Given& g, Options& o) { o.setup.parallel.context = g.count(); }},
        Flag{"ep", "", "N", "", "Parallel", "expert-parallel ranks, cut out of the data-parallel ones", in_setup,
             [](const Given& g, Options& o) { o.setup.parallel.expert = g.count(); }},
    };

}  // namespace

std::span<const Flag> setup_flags() { return setup_rows; }

}  // namespace memplan::cli
