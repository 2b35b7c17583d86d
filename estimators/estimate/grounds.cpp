#include "estimators/estimate/grounds.h"

#include <fmt/format.h>

#include "estimators/runtime/runtime.h"
#include "estimators/setup/field.h"
#include "estimators/setup/runtimes.h"
#include "estimators/setup/strategies.h"

namespace memplan {

Notes facts_of(const TrainingSetup& setup, const Device& device, Bytes communication) {
  Notes facts;
  const auto assume = [&](About about, std::string text) {
    facts.push_back({{}, std::move(text), Evidence::assumed, about});
  };
  const auto choose = [&](About about, std::string text) {
    facts.push_back({{}, std::move(text), Evidence::chosen, about});
  };
  const Runtime& runtime = runtime_of(setup);
  if (runs_nodes(setup.runtime))
    choose(About::program,
           fmt::format("{}, one session and {} runs with inputs of the same size (memplan explain MODEL {})",
                       runtime.title(setup), setup.steps, setting(Field::reference_program)));
  else
    choose(About::program,
           fmt::format("{} on {}, {} steps of the reference program (memplan explain MODEL {})", runtime.title(setup),
                       is_parallel(setup.parallel) ? "one of " + describe(setup.parallel) : std::string("one GPU"),
                       setup.steps, setting(Field::reference_program)));
  for (const Fact& doubt : runtime.doubts(setup)) facts.push_back(doubt);
  facts.push_back({{},
                   runtime.outside_assumption(setup, device),
                   device.context_measured ? Evidence::measured_here : Evidence::assumed,
                   About::context});
  if (device.total_is_bound) assume(About::device, "the device's total is an upper bound, no measured figure is known");
  if (in_megatron(setup.parallel))
    assume(About::framework,
           "Megatron-LM's buffers, layers and loss as its source documents them, around the model of this file; not "
           "compared with a run of it");
  if (in_deepspeed(setup.parallel)) {
    assume(About::framework, "ZeRO is DeepSpeed 0.19.8 with its defaults; other versions allocate differently");
    if (setup.offload.any())
      assume(About::framework, "DeepSpeed's offload as its source documents it; not compared with a run of it");
  }
  if (setup.fp8 != Fp8::none)
    assume(About::framework,
           "linears in 8 bits as Transformer Engine's source documents them; not compared with its kernels");
  if (setup.mode == Mode::training) {
    if (setup.loss == Loss::automatic)
      choose(
          About::loss,
          "the loss follows from the output: cross entropy for class scores (transformers' own for its causal language "
          "models), the model's own where it returns one");
    if (setup.inplace_activations)
      choose(About::in_place, "activations that the model's modules make in place are taken to be in place");
    if (setup.keep_output)
      choose(About::lifetime, "the model's output lives on until the next forward pass has returned");
    if (setup.optimizer.kind != OptimizerKind::none)
      choose(About::optimizer, "settings of the optimizer that the setup leaves out are torch.optim's defaults");
  }
  if (setup.allocator.expandable_segments) choose(About::allocator, "expandable_segments:True");
  if (communication.count > 0)
    assume(About::communication,
           fmt::format("NCCL takes {} for its communicators, outside PyTorch's counters (data/nccl/memory.csv)",
                       to_human(communication)));
  return facts;
}

Notes grounds_of(const Tape& tape, const Schedule& schedule, const TrainingSetup& setup, const Device& device,
                 Bytes communication) {
  Notes facts = facts_of(setup, device, communication);
  for (const Recovery& r : tape.recovered) {
    Fact fact{{}, r.from, r.evidence, r.about, r.op};
    fact.count = r.count;
    facts.push_back(std::move(fact));
  }
  facts.insert(facts.end(), tape.notes.begin(), tape.notes.end());
  for (Fact fact : schedule.notes) {
    if (fact.scope >= 0 && static_cast<std::size_t>(fact.scope) < tape.scopes.size())
      fact.module = tape.scopes[static_cast<std::size_t>(fact.scope)].path;
    facts.push_back(std::move(fact));
  }
  return facts;
}

}  // namespace memplan
