// Texts that people type, turned into values. Each throws Failure(usage) with what to type instead.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "estimators/base/names.h"
#include "estimators/graph/given_input.h"
#include "estimators/setup/setup.h"

namespace memplan::cli {

/// "512MiB", "1.5GB", "4096": GiB is 2^30, GB is 10^9, no unit is bytes. `flag` is named in the error.
Bytes parse_size(std::string_view text, std::string_view flag);

/// A whole number of at least `least`.
std::int64_t parse_count(std::string_view text, std::string_view flag, std::int64_t least = 1);
double parse_number(std::string_view text, std::string_view flag);

/// "x:float32:batch,3,224,224" or "float32:8,16": sizes are numbers or names; none for a tensor without dimensions.
GivenInput parse_input(std::string_view text, std::string_view flag);

/// PYTORCH_ALLOC_CONF, with PyTorch's own limits (c10/core/AllocatorConfig.cpp of 2.11).
AllocatorSetup parse_alloc_conf(std::string_view text, std::string_view flag);

/// Of --for: what settings can be pasted into.
inline constexpr std::array framework_names{
    Named<const char*>{"pytorch", "pytorch"},       Named<const char*>{"hf", "hf"},
    Named<const char*>{"accelerate", "accelerate"}, Named<const char*>{"deepspeed", "deepspeed"},
    Named<const char*>{"megatron", "megatron"},     Named<const char*>{"torchtitan", "torchtitan"},
    Named<const char*>{"lightning", "lightning"},
};

bool parse_yes_no(std::string_view text, std::string_view flag);
/// A name of --for.
std::string parse_framework(std::string_view text);
Mode parse_mode(std::string_view text);
/// "fp8" and "fp8-weights" are bf16 with `fp8` set; every other word resets it.
Precision parse_precision(std::string_view text, Fp8& fp8);
OptimizerSetup parse_optimizer(std::string_view text);
OptimizerImpl parse_optimizer_impl(std::string_view text);
Loss parse_loss(std::string_view text);
AttentionBackend parse_attention(std::string_view text);
ZeroGrad parse_zero_grad(std::string_view text);
Sharding parse_zero_stage(std::string_view text);
DType parse_floating(std::string_view text, std::string_view flag);
/// "1f1b", "interleaved:4": sets the schedule and the chunks per rank.
void parse_pipeline_schedule(std::string_view text, ParallelSetup& setup);
/// "10,12,10": blocks of every stage.
std::vector<std::int64_t> parse_split(std::string_view text);

}  // namespace memplan::cli
