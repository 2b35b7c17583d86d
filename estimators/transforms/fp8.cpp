#include "estimators/transforms/fp8.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"
#include "estimators/setup/setup.h"

namespace memplan {

namespace {

/// The weight of a call that an nn.Linear makes; none for other calls.
std::optional<ValueId> weight_of(const Tape& tape, const Call& call) {
  if ((call.op != "aten::linear" && call.op != "memplan::column_linear") || call.scope < 0 || call.args.size() < 2)
    return std::nullopt;
  if (!tape.scopes[static_cast<std::size_t>(call.scope)].module_class.ends_with("Linear")) return std::nullopt;
  const auto* id = std::get_if<ValueId>(&call.args[1].value);
  if (!id || !id->valid() || tape.values[static_cast<std::size_t>(id->index)].kind != ValueKind::parameter)
    return std::nullopt;
  return *id;
}

ValueId owner(const Tape& tape, ValueId id) {
  const ValueId first = tape.values[static_cast<std::size_t>(id.index)].same_storage_as;
  return first.valid() ? first : id;
}

}  // namespace

void linears_in_fp8(Tape& tape, const TrainingSetup& setup) {
  check_fp8(setup);
  std::vector<std::pair<Call*, ValueId>> layers;
  for (Call& call : tape.calls)
    if (const auto weight = weight_of(tape, call)) layers.emplace_back(&call, *weight);
  std::int64_t done = 0, odd = 0;
  for (const auto& [call, weight] : layers) {
    // The last one makes the logits, and so does whatever shares its weight.
    if (owner(tape, weight) == owner(tape, layers.back().second)) continue;
    TapeValue& v = tape.values[static_cast<std::size_t>(weight.index)];
    if (v.sizes.size() != 2 || v.sizes[0] % 16 != 0 || v.sizes[1] % 16 != 0) {
      ++odd;
      continue;
    }
    ++done;
    call->op = call->op == "aten::linear" ? "transformer_engine::linear" : "transformer_engine::column_linear";
    if (setup.fp8 != Fp8::primary) continue;
    v.dtype = DType::float8_e4m3fn;
    v.keeps_dtype = true;
  }
  if (done == 0)
    fail(ErrorKind::usage, "no nn.Linear besides the last one can run in 8 bits", setting(Field::precision, "fp8"),
         "use " + setting(Field::precision, "bf16") + "; weights must be multiples of 16 in both directions");
  tape.notes.push_back(
      {"MP015",
       fmt::format("{} calls of nn.Linear run in 8 bits as Transformer Engine is documented to do; that was not "
                   "compared with its kernels{}",
                   done,
                   odd > 0 ? fmt::format("; {} stay in bfloat16 because their weights are no multiples of 16", odd)
                           : std::string()),
       Evidence::assumed, About::framework});
}

void check_fp8(const TrainingSetup& s) {
  if (s.fp8 == Fp8::none) return;
  const bool training = s.mode == Mode::training;
  const auto refuse = [](const char* what, std::string field, std::string hint) {
    fail(ErrorKind::usage, fmt::format("{} is not modelled", what), std::move(field), std::move(hint));
  };
  if (s.precision != Precision::bf16)
    refuse("8 bits in another model than one of bfloat16", setting(Field::precision),
           "use " + setting(Field::precision, "fp8") + " alone");
  if (s.lora)
    refuse("8 bits under adapters", s.lora->quantized ? setting(Field::lora_quantized) : setting(Field::lora),
           "use " + setting(Field::precision, "bf16"));
  if (s.offload.any())
    refuse("8 bits with offload", setting(Field::offload), "use " + setting(Field::precision, "bf16"));
  if (s.parallel.sharding != Sharding::none && !is_megatron(s.parallel.sharding))
    refuse("8 bits with sharded weights",
           s.parallel.sharding == Sharding::fsdp ? setting(Field::fsdp) : setting(Field::zero),
           "use DDP, " + setting(Field::megatron) + " or " + setting(Field::distributed_optimizer));
  if (training && s.fp8 == Fp8::primary && !is_megatron(s.parallel.sharding))
    refuse("training on weights of 8 bits without an optimizer that has wider ones",
           setting(Field::precision, "fp8-weights"),
           "add " + setting(Field::megatron) + " or " + setting(Field::distributed_optimizer) + ", or use " +
               setting(Field::precision, "fp8"));
}

}  // namespace memplan
