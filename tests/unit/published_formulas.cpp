// Figures that others published for transformers, against what the engine makes of a transformer's calls.
#include <doctest/doctest.h>

#include "estimators/pipeline.h"
#include "estimators/restore/lifetimes.h"
#include "estimators/transforms/depth.h"
#include "estimators/transforms/pipeline_parallel.h"
#include "estimators/transforms/transforms.h"
#include "planner/cost/profile.h"
#include "rank_states.h"
#include "tape_builder.h"

using namespace memplan;

namespace {

struct Shape {
  std::int64_t heads, hidden, layers, batch, pipeline, virtual_stages;
  std::int64_t sequence = 2048, ranks = 8, rows = 64;  ///< of the vocabulary, per rank
};

Arg list(std::vector<std::int64_t> numbers) {
  Arg::List out;
  for (std::int64_t n : numbers) out.push_back({n});
  return {out};
}

/// Blocks of GPT as Korthikanti et al. count them (arXiv 2205.05198, section 4): 16-bit, dropout, GELU, unfused
/// attention.
class Gpt : public testing::TapeBuilder {
 public:
  Gpt(const Shape& s, int count) : s_(s) {
    const auto root = scope("", "Model", -1);
    input({s.batch, s.sequence});
    tape.values[static_cast<std::size_t>(x.index)].dtype = DType::int64;
    const auto table = scope("embedding", "torch.nn.modules.sparse.Embedding", root);
    const ValueId w = weight("embedding.weight", {s.rows * s.ranks, s.hidden});
    x = call("aten::embedding", {{w}, {x}}, table);
    for (int i = 0; i < count; ++i) block("blocks." + std::to_string(i), root);
    tape.outputs = {x};
    mark_last_uses(tape);
  }

  /// The logits, by a layer of its own.
  void head() {
    x = call("aten::linear", {{norm("norm", x, 0)}, {weight("head.weight", {s_.rows * s_.ranks, s_.hidden})}},
             scope("head", "torch.nn.modules.linear.Linear", 0));
    tape.outputs = {x};
    mark_last_uses(tape);
  }

 private:
  ValueId norm(const std::string& path, ValueId in, std::int32_t parent) {
    const auto at = scope(path, "LayerNorm", parent);
    const ValueId w = weight(path + ".weight", {s_.hidden}), b = weight(path + ".bias", {s_.hidden});
    return call("aten::layer_norm", {{in}, list({s_.hidden}), {w}, {b}, {1e-5}, {true}}, at);
  }

  ValueId weight(const std::string& name, std::vector<std::int64_t> sizes) {
    const ValueId w = value(name, ValueKind::parameter, std::move(sizes));
    tape.parameters.push_back(w);
    return w;
  }

  ValueId linear_of(const std::string& path, ValueId in, std::int64_t out, std::int64_t into, std::int32_t parent) {
    const auto at = scope(path, "torch.nn.modules.linear.Linear", parent);
    const ValueId w = weight(path + ".weight", {out, into}), b = weight(path + ".bias", {out});
    return call("aten::linear", {{in}, {w}, {b}}, at);
  }

  ValueId dropout(ValueId in, std::int32_t at) { return call("aten::dropout", {{in}, {0.1}, {true}}, at); }

  ValueId heads(ValueId in, std::int32_t at) {
    const ValueId split = call("aten::view", {{in}, list({s_.batch, s_.sequence, -1, s_.hidden / s_.heads})}, at);
    return call("aten::transpose.int", {{split}, {std::int64_t{1}}, {std::int64_t{2}}}, at);
  }

  void block(const std::string& path, std::int32_t root) {
    const auto at = scope(path, "Block", root), attention = scope(path + ".attention", "Attention", at);
    const std::int64_t h = s_.hidden;
    const ValueId normed = norm(path + ".norm1", x, at);
    const ValueId q = heads(linear_of(path + ".attention.q", normed, h, h, attention), attention);
    const ValueId k = heads(linear_of(path + ".attention.k", normed, h, h, attention), attention);
    const ValueId v = heads(linear_of(path + ".attention.v", normed, h, h, attention), attention);
    const auto core = scope(path + ".attention.core", "Core", attention);
    const ValueId turned = call("aten::transpose.int", {{k}, {std::int64_t{-2}}, {std::int64_t{-1}}}, core);
    ValueId scores = call("aten::matmul", {{q}, {turned}}, core);
    scores = call("aten::mul.Tensor", {{scores}, {0.125}}, core);
    const ValueId weights = dropout(call("aten::softmax.int", {{scores}, {std::int64_t{-1}}}, core), core);
    const ValueId mixed = call("aten::matmul", {{weights}, {v}}, core);
    const ValueId back = call("aten::transpose.int", {{mixed}, {std::int64_t{1}}, {std::int64_t{2}}}, attention);
    const ValueId joined = call("aten::reshape", {{back}, list({s_.batch, s_.sequence, -1})}, attention);
    x = call("aten::add.Tensor", {{x}, {dropout(linear_of(path + ".attention.o", joined, h, h, attention), at)}}, at);
    const auto mlp = scope(path + ".mlp", "MLP", at);
    const ValueId wide = linear_of(path + ".mlp.fc1", norm(path + ".norm2", x, at), 4 * h, h, mlp);
    const ValueId narrow = linear_of(path + ".mlp.fc2", call("aten::gelu", {{wide}}, mlp), h, 4 * h, mlp);
    x = call("aten::add.Tensor", {{x}, {dropout(narrow, at)}}, at);
  }

  const Shape s_;
};

/// Blocks of Llama 3 8B as in its published configuration: 32 heads of 128, 8 key/value heads, features 14,336; RMSNorm
/// as one op, rotary tables that all blocks share, silu(gate) * up in eager mode.
class Llama : public testing::TapeBuilder {
 public:
  static constexpr std::int64_t hidden = 4096, heads = 32, kv_heads = 8, dim = 128, features = 14336, batch = 1,
                                sequence = 1024;

  explicit Llama(int count) {
    const auto root = scope("", "Model", -1);
    input({batch, sequence});
    tape.values[static_cast<std::size_t>(x.index)].dtype = DType::int64;
    const auto table = scope("embed_tokens", "torch.nn.modules.sparse.Embedding", root);
    x = call("aten::embedding", {{weight("embed_tokens.weight", {128, hidden})}, {x}}, table);
    cos_ = value("cos", ValueKind::buffer, {sequence, dim});
    sin_ = value("sin", ValueKind::buffer, {sequence, dim});
    tape.buffers = {cos_, sin_};
    for (int i = 0; i < count; ++i) block("layers." + std::to_string(i), root);
    tape.outputs = {x};
    mark_last_uses(tape);
  }

 private:
  ValueId weight(const std::string& name, std::vector<std::int64_t> sizes) {
    const ValueId w = value(name, ValueKind::parameter, std::move(sizes));
    tape.parameters.push_back(w);
    return w;
  }

  ValueId norm(const std::string& path, ValueId in, std::int32_t parent) {
    const auto at = scope(path, "torch.nn.modules.normalization.RMSNorm", parent);
    return call("aten::rms_norm", {{in}, list({hidden}), {weight(path + ".weight", {hidden})}, {1e-5}}, at);
  }

  ValueId linear_of(const std::string& path, ValueId in, std::int64_t out, std::int64_t into, std::int32_t parent) {
    return call("aten::linear", {{in}, {weight(path + ".weight", {out, into})}},
                scope(path, "torch.nn.modules.linear.Linear", parent));
  }

  ValueId split_heads(ValueId in, std::int32_t at) {
    const ValueId split = call("aten::view", {{in}, list({batch, sequence, -1, dim})}, at);
    return call("aten::transpose.int", {{split}, {std::int64_t{1}}, {std::int64_t{2}}}, at);
  }

  /// x cos + rotate_half(x) sin: what autograd saves of it are the tables.
  ValueId rotated(ValueId in, std::int32_t at) {
    const ValueId low = call("aten::slice.Tensor", {{in}, {std::int64_t{3}}, {std::int64_t{0}}, {dim / 2}}, at);
    const ValueId high = call("aten::slice.Tensor", {{in}, {std::int64_t{3}}, {dim / 2}, {dim}}, at);
    const ValueId half =
        call("aten::cat", {{Arg::List{{call("aten::neg", {{high}}, at)}, {low}}}, {std::int64_t{-1}}}, at);
    return call("aten::add.Tensor",
                {{call("aten::mul.Tensor", {{in}, {cos_}}, at)}, {call("aten::mul.Tensor", {{half}, {sin_}}, at)}}, at);
  }

  void block(const std::string& path, std::int32_t root) {
    const auto at = scope(path, "LlamaDecoderLayer", root),
               attention = scope(path + ".self_attn", "LlamaAttention", at), mlp = scope(path + ".mlp", "LlamaMLP", at);
    const std::string a = path + ".self_attn", m = path + ".mlp";
    const ValueId normed = norm(path + ".input_layernorm", x, at);
    const ValueId q =
        rotated(split_heads(linear_of(a + ".q_proj", normed, heads * dim, hidden, attention), attention), attention);
    const ValueId k =
        rotated(split_heads(linear_of(a + ".k_proj", normed, kv_heads * dim, hidden, attention), attention), attention);
    const ValueId v = split_heads(linear_of(a + ".v_proj", normed, kv_heads * dim, hidden, attention), attention);
    const ValueId mixed =
        call("aten::scaled_dot_product_attention", {{q}, {k}, {v}, {}, {0.0}, {true}, {}, {true}}, attention);
    const ValueId back = call("aten::transpose.int", {{mixed}, {std::int64_t{1}}, {std::int64_t{2}}}, attention);
    const ValueId joined = call("aten::reshape", {{back}, list({batch, sequence, -1})}, attention);
    x = call("aten::add.Tensor", {{x}, {linear_of(a + ".o_proj", joined, hidden, heads * dim, attention)}}, at);
    const ValueId again = norm(path + ".post_attention_layernorm", x, at);
    const ValueId gate = call("aten::silu", {{linear_of(m + ".gate_proj", again, features, hidden, mlp)}}, mlp);
    const ValueId product =
        call("aten::mul.Tensor", {{gate}, {linear_of(m + ".up_proj", again, features, hidden, mlp)}}, mlp);
    x = call("aten::add.Tensor", {{x}, {linear_of(m + ".down_proj", product, hidden, features, mlp)}}, at);
  }

  ValueId cos_, sin_;
};

TrainingSetup half() {
  TrainingSetup setup;
  setup.precision = Precision::bf16;
  setup.loss = Loss::sum;
  return setup;
}

/// Bytes that one more block leaves for the backward pass on one rank.
double kept_per_block(const Shape& shape, const TrainingSetup& setup) {
  double kept[2];
  for (int i = 0; i < 2; ++i) {
    const Tape rank = unwrap(tape_of_rank(Gpt(shape, 2 + i).tape, setup));
    kept[i] = unwrap(profile(rank, setup, Device{})).turn.front();
  }
  return kept[1] - kept[0];
}

TrainingSetup ranks_of(const Shape& shape, bool sequence, std::vector<std::string> checkpoint) {
  TrainingSetup setup = half();
  setup.parallel.tensor = shape.ranks;
  setup.parallel.sequence_parallel = sequence;
  setup.parallel = resolve(setup.parallel);
  setup.checkpoint = std::move(checkpoint);
  return setup;
}

/// Layers whose activations the first pipeline rank holds at once.
double layers_in_flight(const Shape& shape) {
  if (shape.pipeline == 1) return static_cast<double>(shape.layers);
  ParallelSetup p;
  p.pipeline = shape.pipeline;
  p.virtual_stages = shape.virtual_stages;
  p.schedule = shape.virtual_stages > 1 ? PipelineSchedule::interleaved : PipelineSchedule::one_f_one_b;
  p.micro_batches = 4 * shape.pipeline;
  return static_cast<double>(most_in_flight(actions_of(resolve(p), 0)) * shape.layers /
                             (shape.pipeline * shape.virtual_stages));
}

constexpr Shape m22b{64, 6144, 48, 4, 1, 1}, m175b{96, 12288, 96, 1, 8, 3}, m530b{128, 20480, 105, 1, 35, 3},
    m1t{160, 25600, 128, 1, 64, 1};

}  // namespace

TEST_CASE(
    "activations of GPT under tensor parallelism are those of Korthikanti et al. (arXiv 2205.05198, figures 1 and 7)") {
  struct Row {
    Shape shape;
    double tensor, selective, full;  // GiB
  };
  for (const Row& row : {Row{m22b, 59.25, 29.25, 4.5}, Row{m175b, 66.84375, 37.7812, 5.8125},
                         Row{m530b, 114.0234, 70.5859, 10.8594}, Row{m1t, 131.25, 81.25, 12.5}}) {
    CAPTURE(row.shape.hidden);
    const double layers = layers_in_flight(row.shape) / 0x1p30;
    // Mean and reciprocal deviation of a norm, two fp32 per token and norm, are not in the formulas: below 1e-3 of
    // them.
    CHECK(kept_per_block(row.shape, ranks_of(row.shape, false, {})) * layers ==
          doctest::Approx(row.tensor).epsilon(1e-3));
    CHECK(kept_per_block(row.shape, ranks_of(row.shape, false, {"*.core"})) * layers ==
          doctest::Approx(row.selective).epsilon(1e-3));
    CHECK(kept_per_block(row.shape, ranks_of(row.shape, false, {"blocks"})) * layers ==
          doctest::Approx(row.full).epsilon(1e-3));
  }
}

TEST_CASE("with sequence parallelism DTensor keeps the gathered inputs of cut layers, which Megatron gathers again") {
  // Megatron: 34 / t + 5 a s / (h t) bytes per s b h. Inputs of q, k, v (one tensor) and of fc1 stay whole in PyTorch:
  // 2 x 2 (1 - 1 / t) more.
  for (const Shape& shape : {m22b, m175b, m530b, m1t}) {
    CAPTURE(shape.hidden);
    const double sbh = static_cast<double>(shape.sequence * shape.batch * shape.hidden),
                 t = static_cast<double>(shape.ranks);
    const double scores = 5.0 * static_cast<double>(shape.heads * shape.sequence) / static_cast<double>(shape.hidden);
    CHECK(kept_per_block(shape, ranks_of(shape, true, {})) ==
          doctest::Approx(sbh * ((34 + scores) / t + 4 * (1 - 1 / t))).epsilon(1e-3));
  }
}

TEST_CASE(
    "Megatron-LM's layers gather their inputs again: activations and states of GPT are those of Korthikanti et al. in "
    "every column") {
  struct Row {
    Shape shape;
    double states, tensor, sequence, selective, both;  // GiB
  };
  for (const Row& row :
       {Row{m22b, 45.5625, 59.25, 39.5625, 29.25, 9.5625}, Row{m175b, 45.5625, 66.84375, 41.4141, 37.7812, 12.3516},
        Row{m530b, 31.6406, 114.0234, 66.5137, 70.5859, 23.0762}, Row{m1t, 32.9590, 131.25, 76.5625, 81.25, 26.5625}}) {
    CAPTURE(row.shape.hidden);
    const double layers = layers_in_flight(row.shape) / 0x1p30;
    const auto kept = [&](bool sequence, std::vector<std::string> checkpoint) {
      TrainingSetup setup = ranks_of(row.shape, sequence, std::move(checkpoint));
      setup.parallel.sharding = Sharding::megatron;
      return kept_per_block(row.shape, setup) * layers;
    };
    CHECK(kept(false, {}) == doctest::Approx(row.tensor).epsilon(1e-3));
    CHECK(kept(true, {}) == doctest::Approx(row.sequence).epsilon(1e-3));
    CHECK(kept(false, {"*.core"}) == doctest::Approx(row.selective).epsilon(1e-3));
    CHECK(kept(true, {"*.core"}) == doctest::Approx(row.both).epsilon(1e-3));
    // 18 bytes per parameter: bf16 weights, fp32 gradients, weights and moments. The table counts 12 h^2 parameters per
    // layer, without biases and norms: at most 13 h of them.
    TrainingSetup setup = ranks_of(row.shape, true, {});
    setup.parallel.sharding = Sharding::megatron;
    setup.steps = 2;
    double held[2];
    for (int i = 0; i < 2; ++i)
      held[i] = testing::states(unwrap(tape_of_rank(Gpt(row.shape, 2 + i).tape, setup)), setup);
    const double per_rank = static_cast<double>(row.shape.layers / row.shape.pipeline);
    CHECK((held[1] - held[0]) * per_rank / 0x1p30 == doctest::Approx(row.states).epsilon(1e-3));
  }
}

TEST_CASE(
    "Megatron-LM's loss keeps the softmax of a rank's part of the vocabulary in fp32, and no rank has whole logits") {
  Shape shape{8, 256, 2, 3, 1, 1};
  shape.sequence = 128;
  shape.rows = 997;
  TrainingSetup setup = ranks_of(shape, true, {});
  setup.loss = Loss::cross_entropy;
  const std::int64_t vocabulary = shape.rows * shape.ranks, tokens = shape.batch * shape.sequence;
  const auto count = [&](Sharding way, std::int64_t bytes) {
    setup.parallel.sharding = way;
    Gpt model(shape, 2);
    model.head();
    const Schedule s = unwrap(run_steps(unwrap(tape_of_rank(model.tape, setup)), setup, Device{}));
    std::int64_t n = 0;
    for (const Allocation& a : s.allocations)
      n += a.size.count == bytes && a.op >= 0 && s.ops[static_cast<std::size_t>(a.op)].step == 2;
    return n;
  };
  // Logits and their gradient in bf16, the softmax, which becomes the gradient, in fp32. Nothing else has these sizes.
  CHECK(count(Sharding::megatron, 2 * tokens * vocabulary / shape.ranks) == 2);
  CHECK(count(Sharding::megatron, 4 * tokens * vocabulary / shape.ranks) == 1);
  CHECK(count(Sharding::megatron, 2 * tokens * vocabulary) == 0);
  CHECK(count(Sharding::none, 2 * tokens * vocabulary) > 0);
}

TEST_CASE("a block of GPT on one GPU keeps 34 + 5 a s / h bytes per s b h") {
  const double sbh = 2048.0 * 4 * 6144, scores = 5.0 * 64 * 2048 / 6144;
  CHECK(kept_per_block(m22b, half()) == doctest::Approx(sbh * (34 + scores)).epsilon(1e-4));
}

TEST_CASE(
    "a block of Llama 3 8B keeps 2 (4 h + 2 a d + 2 k d + 4 f) bytes per token in bf16 and a log-sum-exp of 4 a: "
    "167,936 + 128") {
  TrainingSetup setup = half();
  setup.attention = AttentionBackend::flash;
  const double kept = unwrap(profile(Llama(3).tape, setup, Device{})).turn.front() -
                      unwrap(profile(Llama(2).tape, setup, Device{})).turn.front();
  // Not in the formula: the reciprocal deviation of two norms, fp32 per token, and what
  // _scaled_dot_product_flash_attention returns besides: the state of the random numbers (two integers of 8 bytes) and
  // an unused one.
  CHECK(kept == Llama::sequence * (167936 + 128 + 2 * 4) + 3 * 8);
}

TEST_CASE("a model with fewer blocks is the model that was built with fewer blocks") {
  Shape shape{4, 64, 8, 2, 1, 1};
  shape.sequence = 32;
  const Tape eight = Gpt(shape, 8).tape;
  CHECK(depth_of(eight).blocks == 8);
  CHECK(depth_of(eight).run == 8);
  for (int count : {2, 5}) {
    const auto fewer = with_blocks(eight, count);
    REQUIRE(fewer);
    const Counters a = unwrap(estimate_tape(*fewer, half(), Device{})).peak,
                   b = unwrap(estimate_tape(Gpt(shape, count).tape, half(), Device{})).peak;
    CHECK(a.requested == b.requested);
    CHECK(a.allocated == b.allocated);
    CHECK(a.reserved == b.reserved);
  }
  CHECK_FALSE(with_blocks(eight, 0));
  CHECK_FALSE(with_blocks(eight, 9));
}
