#include "cli/program/parts.h"

#include <algorithm>
#include <set>

#include "estimators/base/unwrap.h"
#include "estimators/setup/setup.h"
#include "estimators/transforms/blocks.h"
#include "estimators/transforms/lora.h"
#include "planner/checkpointing/plan.h"

namespace memplan::cli {

namespace {

const ValueId* weight_of(const Call& c) {
  const bool embeds = c.op == "memplan::vocab_embedding";
  return c.args.size() > 1 ? std::get_if<ValueId>(&c.args[embeds ? 0 : 1].value) : nullptr;
}

/// Which parameters the ranks hold a part of tells the plan: rows of a weight are outputs, columns are inputs. Outside
/// of the blocks, only the head has as many outputs as the embedding has words.
std::vector<std::pair<std::string, std::string>> tensor_plan(const Model& model, const Tape& part,
                                                             const TrainingSetup& setup) {
  TrainingSetup alone = setup;
  alone.parallel = {};
  const Tape whole = unwrap(tape_of(model, alone));
  std::set<std::int32_t> embeddings;
  std::int64_t vocabulary = 0;
  for (const Call& c : part.calls)
    if (const ValueId* weight = weight_of(c); weight && c.op == "memplan::vocab_embedding") {
      embeddings.insert(weight->index);
      vocabulary = whole.values[static_cast<std::size_t>(weight->index)].sizes[0];
    }
  std::vector<std::pair<std::string, std::string>> plan;
  const char* logits = setup.parallel.loss_parallel
                           ? "ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)"
                           : "ColwiseParallel(output_layouts=Replicate())";
  for (ValueId id : whole.parameters) {
    const TapeValue& a = whole.values[static_cast<std::size_t>(id.index)];
    const TapeValue& b = part.values[static_cast<std::size_t>(id.index)];
    if (a.sizes == b.sizes || a.sizes.size() != 2) continue;
    plan.emplace_back(a.name.substr(0, a.name.rfind('.')), embeddings.count(id.index) > 0
                                                               ? "RowwiseParallel(input_layouts=Replicate())"
                                                           : a.sizes[0] == b.sizes[0] ? "RowwiseParallel()"
                                                           : a.sizes[0] == vocabulary ? logits
                                                                                      : "ColwiseParallel()");
  }
  return plan;
}

void add_units(ModelParts& parts, const Tape& tape, const ParallelSetup& p) {
  if (p.blocks.empty() && repeated_modules(tape).empty()) return;
  const auto globs = p.blocks.empty() ? std::vector<std::string>{"blocks"} : p.blocks;
  for (std::int32_t s : outermost(tape, named_modules(tape, globs, Field::blocks))) {
    const Scope& scope = tape.scopes[static_cast<std::size_t>(s)];
    if (parts.units.empty() || parts.units.back() != scope.path) parts.units.push_back(scope.path);
    const std::string name = scope.module_class.substr(scope.module_class.rfind('.') + 1);
    if (!name.empty() &&
        std::find(parts.unit_classes.begin(), parts.unit_classes.end(), name) == parts.unit_classes.end())
      parts.unit_classes.push_back(name);
  }
}

}  // namespace

ModelParts parts_of(const Model& model, const Tape& tape, const TrainingSetup& setup) {
  ModelParts parts;
  if (setup.lora) parts.adapted = adapter_targets(tape, *setup.lora);
  std::int32_t last = -1;
  for (const CheckpointRegion& region : tape.checkpoints) {
    if (region.first <= last) continue;  // inside of the one before
    last = region.last;
    std::vector<std::string> paths{tape.scopes[static_cast<std::size_t>(region.scope)].path};
    for (std::int32_t other : region.others) paths.push_back(tape.scopes[static_cast<std::size_t>(other)].path);
    if (std::find(parts.checkpointed.begin(), parts.checkpointed.end(), paths) == parts.checkpointed.end())
      parts.checkpointed.push_back(std::move(paths));
  }
  if (nests(tape)) parts.nested = checkpoint_stretches(tape);
  if (is_parallel(setup.parallel)) add_units(parts, tape, setup.parallel);
  if (setup.parallel.tensor > 1) parts.tensor_plan = tensor_plan(model, tape, setup);
  return parts;
}

ModelParts parts_of(const Model& model, const TrainingSetup& setup, const Device& device) {
  return parts_of(model, unwrap(with_planned_checkpoints(model, setup, device)).tape, setup);
}

}  // namespace memplan::cli
