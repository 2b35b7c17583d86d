#include "planner/tapes.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/base/unwrap.h"
#include "estimators/transforms/transforms.h"
#include "planner/checkpointing/plan.h"

namespace memplan {

namespace {

/// What of a setup shapes the whole model's tape; the rest of it stays the same in a search.
std::string key_of(const TrainingSetup& s) {
  const auto& dtype = s.parallel.param_dtype;
  return fmt::format("{} {} {} {} {} {} {}", s.batch.value_or(0), s.parallel.context, static_cast<int>(s.precision),
                     static_cast<int>(s.mode), dtype ? static_cast<int>(*dtype) : -1, s.lora ? s.lora->rank : 0,
                     s.lora && s.lora->quantized);
}

/// What of a setup shapes a rank's tape (the transforms of estimators/transforms/transforms.cpp).
std::string key_of_rank(const TrainingSetup& s, std::int64_t blocks) {
  const ParallelSetup& p = s.parallel;
  return fmt::format("{} {} {} {} {} {} {} {} {}", key_of(s), blocks, fmt::join(s.checkpoint, ","),
                     fmt::join(s.checkpoint_save, ","), p.tensor, p.sequence_parallel, p.loss_parallel, in_megatron(p),
                     p.expert);
}

}  // namespace

std::shared_ptr<const Tape> Tapes::of(const TrainingSetup& setup) {
  // A recording is asked for the whole setup, and a compiled module is another program.
  if (model_.recorded || setup.compile) return std::make_shared<const Tape>(unwrap(tape_of(model_, setup)));
  return std::make_shared<const Tape>(unwrap(tape_of_rank(*of_model(setup), setup)));
}

Result<Estimate> Tapes::estimate_to_judge(const TrainingSetup& setup, const Device& device, Bytes margin) {
  return catching([&] { return unwrap(memplan::estimate_to_judge(model_, *of(setup), setup, device, margin)); });
}

Result<Estimate> Tapes::estimate_to_judge(const TrainingSetup& setup, const Device& device, Bytes margin,
                                          const std::vector<RangeSource>& open) {
  return catching([&] {
    Estimate e = unwrap(estimate_planned_tape(*of(setup), setup, device));
    if (judge(e, device, margin).verdict == Verdict::fits) conclude_range(e, open);
    return e;
  });
}

std::shared_ptr<const Tape> Tapes::of_model(const TrainingSetup& setup) {
  // Two batches of two or three precisions, which a search goes back to; each batch that it tries has a tape of its
  // own.
  constexpr std::size_t most = 6;
  const std::string key = key_of(setup);
  const std::scoped_lock hold(lock_);
  auto place = std::find_if(recent_.begin(), recent_.end(), [&](const auto& r) { return r.first == key; });
  if (place == recent_.end()) {
    if (recent_.size() == most) recent_.erase(recent_.begin());
    recent_.emplace_back(key, std::make_shared<const Tape>(unwrap(tape_of_model(model_, setup, true))));
  } else {
    std::rotate(place, place + 1, recent_.end());
  }
  return recent_.back().second;
}

const Tape& Tapes::whole(const TrainingSetup& setup) {
  auto& place = whole_[key_of(setup)];
  if (!place) place = std::make_unique<const Tape>(unwrap(tape_of_model(model_, setup)));
  return *place;
}

Depth Tapes::depth(const TrainingSetup& setup) {
  const std::string key = key_of(setup);
  auto it = depths_.find(key);
  if (it == depths_.end()) it = depths_.emplace(key, depth_of(whole(setup))).first;
  return it->second;
}

const Tape& Tapes::shortened(const TrainingSetup& setup, std::int64_t blocks) {
  auto& place = short_[{key_of(setup), blocks}];
  if (!place) {
    std::optional<Tape> tape = with_blocks(whole(setup), blocks);
    if (!tape) fail(ErrorKind::internal, fmt::format("the model cannot be had with {} blocks", blocks));
    place = std::make_unique<const Tape>(std::move(*tape));
  }
  return *place;
}

std::shared_ptr<const Tape> Tapes::made_for_rank(const TrainingSetup& setup, std::int64_t blocks) {
  return std::make_shared<const Tape>(
      unwrap(tape_of_rank(blocks > 0 ? shortened(setup, blocks) : whole(setup), setup)));
}

std::shared_ptr<const Tape> Tapes::of_rank(const TrainingSetup& setup, std::int64_t blocks) {
  if (setup.parallel.tensor < 2 || setup.fp8 != Fp8::none) return made_for_rank(setup, blocks);
  std::shared_ptr<const Tape>& place = cut_[key_of_rank(setup, blocks)];
  if (!place) place = made_for_rank(setup, blocks);
  return place;
}

}  // namespace memplan
