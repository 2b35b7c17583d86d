#include "estimators/frontends/recording/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "estimators/base/error.h"
#include "estimators/frontends/recording/calls_tape.h"
#include "estimators/frontends/recording/setups.h"
#include "estimators/frontends/recording/sizes.h"
#include "estimators/setup/field.h"
#include "estimators/setup/names.h"

namespace memplan::recording {

namespace {

std::string list_of(const std::vector<std::int64_t>& numbers) {
  std::string out;
  for (const std::int64_t n : numbers) out += (out.empty() ? "" : ", ") + std::to_string(n);
  return out;
}

std::vector<std::int64_t> with_batch(const StoredValue& input, std::int64_t batch) {
  std::vector<std::int64_t> sizes = input.sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (batch > 0 && i < input.is_batch.size() && input.is_batch[i]) sizes[i] = batch;
  return sizes;
}

void add_weights(const std::vector<StoredValue>& stored, ValueKind kind, std::vector<ValueId>& ids, Tape& tape) {
  std::map<std::string, ValueId, std::less<>> by_name;
  for (const StoredValue& s : stored) {
    TapeValue v;
    v.name = s.name;
    v.kind = kind;
    v.dtype = s.dtype;
    v.sizes = s.sizes;
    v.requires_grad = s.requires_grad;
    if (const auto first = by_name.find(s.same_as); !s.same_as.empty() && first != by_name.end())
      v.same_storage_as = first->second;
    ids.push_back(tape.add_value(std::move(v)));
    by_name.emplace(s.name, ids.back());
  }
}

/// Whether the recorded events tell those of a batch.
bool answers(const Run& run, std::int64_t batch) {
  for (const Program& p : run.programs)
    if (std::find(p.batches.begin(), p.batches.end(), batch) != p.batches.end()) return true;
  return run.programs.size() == 1 && run.programs.front().batches.size() >= 3;
}

/// The program of a batch. Where the module does other things at other sizes, only the recorded ones are known.
const Program& program_of(const Run& run, std::int64_t batch, bool script) {
  for (const Program& p : run.programs)
    if (std::find(p.batches.begin(), p.batches.end(), batch) != p.batches.end()) return p;
  std::vector<std::int64_t> recorded;
  for (const Program& p : run.programs) recorded.insert(recorded.end(), p.batches.begin(), p.batches.end());
  std::sort(recorded.begin(), recorded.end());
  const Program& only = run.programs.front();
  const std::string remedy =
      script ? fmt::format("record the script again with memplan observe, batch {} among its batches", batch)
             : fmt::format("record it: memplan.record(…, batches=[{}])", batch);
  if (run.programs.size() > 1)
    fail(ErrorKind::usage,
         fmt::format("the {} does other things at other batches, so batch {} has to be recorded; recorded are {}",
                     script ? "script" : "module", batch, list_of(recorded)),
         setting(Field::batch), remedy);
  if (only.batches.size() < 3)
    fail(ErrorKind::usage,
         fmt::format("batch {} was not recorded, and other sizes can only be told from three or more; recorded: {}",
                     batch, list_of(recorded)),
         setting(Field::batch), remedy);
  return only;
}

void tell(const Recording& recording, const Run& run, const Program& p, std::int64_t batch, Tape& tape) {
  std::string text = fmt::format("recorded with PyTorch {} on the {} ({}); kernels and workspaces are that card's",
                                 recording.torch, recording.evidence, recording.gpu);
  const bool ran = std::find(p.batches.begin(), p.batches.end(), batch) != p.batches.end();
  if (batch > 0 && ran)
    text += fmt::format("; batch {} is one that ran", batch);
  else if (batch > 0)
    text += fmt::format("; batch {} by each allocation's line through the batches {}", batch, list_of(p.batches));
  tape.notes.push_back({"MP060 recording", std::move(text), Evidence::recorded, About::program});
  if (run.setup.compile)
    tape.notes.push_back(
        {"MP066 compiled",
         fmt::format("PyTorch compiled the module (torch.compile, {}) without building Triton's "
                     "kernels; the steps are those with warm caches, and the range holds a first run's",
                     run.compiled_with.empty() ? "its default mode" : run.compiled_with),
         Evidence::recorded, About::program});
  if (!run.unknown.empty()) {
    std::string names;
    for (const std::string& u : run.unknown) names += (names.empty() ? "" : ", ") + u;
    tape.notes.push_back({"MP061 size-only-a-device-knows",
                          fmt::format("the module asked for sizes that only a device knows: {}", names)});
  }
}

/// cuBLAS takes a workspace by the compute capability (getChosenWorkspaceSize, CublasHandlePool.cpp of PyTorch 2.11).
std::int64_t cublas_workspace(const Device& device) {
  return device.sm() == 90 ? std::int64_t{32} << 20 : std::int64_t{2 * 4096 + 8 * 16} << 10;
}

/// Shapes of weights, gradients and optimizer state: that of the parameter which their name begins with.
class Shapes {
 public:
  Shapes(const Recording& recording, Schedule& out) : out_(out) {
    for (const auto* list : {&recording.parameters, &recording.buffers})
      for (const StoredValue& v : *list) values_.emplace(v.name, &v);
  }

  std::int32_t of(const std::string& label, Bytes size) {
    const auto at = values_.find(label);
    const auto found = at != values_.end() ? at : values_.find(label.substr(0, label.rfind('.')));
    if (found == values_.end()) return -1;
    std::int64_t numel = 1;
    for (const std::int64_t n : found->second->sizes) numel = checked_mul(numel, n);
    // In another precision, or a step counter, it would be the wrong one.
    if (bytes_of(found->second->dtype, numel) != size) return -1;
    const auto [known, fresh] = shapes_.emplace(found->first, static_cast<std::int32_t>(out_.shapes.size()));
    if (fresh) out_.shapes.push_back({static_cast<std::uint8_t>(found->second->dtype), found->second->sizes});
    return known->second;
  }

 private:
  Schedule& out_;
  std::map<std::string, const StoredValue*, std::less<>> values_;
  std::map<std::string, std::int32_t, std::less<>> shapes_;
};

/// On a card of another compute capability PyTorch may choose other kernels; only cuBLAS's workspace is known by rule.
void move_to(const Device& device, const Recording& recording, Schedule& s) {
  const Device recorded = choose_device(recording.gpu).device;
  if (recorded.sm() == device.sm()) return;
  const std::int64_t have = cublas_workspace(recorded), want = cublas_workspace(device);
  Bytes workspaces;
  for (Allocation& a : s.allocations) {
    if (a.category != Category::workspace && a.category != Category::temporary) continue;
    if (a.category == Category::workspace && a.size.count == have) a.size = Bytes(want);
    if (a.category == Category::workspace) workspaces += a.size;
  }
  s.notes.push_back(
      {"", fmt::format("recorded on {}; record with gpu=\"{}\" for the kernels of this one", recording.gpu, device.key),
       Evidence::assumed, About::device, "kernels of another card", "", -1, 1, Effect{workspaces, workspaces}});
}

/// The events of the first `steps` steps. What has no bytes at this batch is not asked for: a library that needs no
/// workspace there.
template <class Describe>
void copy_events(const Program& p, const std::vector<std::int64_t>& bytes, std::size_t steps, const Describe& describe,
                 Schedule& s) {
  const auto end = steps < p.step_begins.size() ? static_cast<std::size_t>(p.step_begins[steps]) : p.events.size();
  std::vector<std::int32_t> index(bytes.size(), -1);  // of an allocation in the schedule
  std::size_t op = 0, step = 0;
  for (std::size_t at = 0; at < end; ++at) {
    const auto now = static_cast<std::int32_t>(s.events.size());
    for (; op < p.ops.size() && static_cast<std::size_t>(p.ops[op].first_event) <= at; ++op)
      s.ops.push_back({p.ops[op].name, p.ops[op].scope, -1, p.ops[op].phase, p.ops[op].step, now});
    for (; step < p.step_begins.size() && static_cast<std::size_t>(p.step_begins[step]) <= at; ++step)
      s.step_begins.push_back(now);
    const std::int32_t e = p.events[at];
    const auto number = static_cast<std::size_t>(e > 0 ? e : -e) - 1;
    if (bytes[number] == 0) continue;
    if (e < 0) {
      s.allocations[static_cast<std::size_t>(index[number])].died = now;
      s.events.push_back({Event::Kind::free, index[number]});
      continue;
    }
    index[number] = static_cast<std::int32_t>(s.allocations.size());
    Allocation a;
    a.size = Bytes(bytes[number]);
    a.born = now;
    a.op = static_cast<std::int32_t>(s.ops.size()) - 1;
    a.stream = p.streams.empty() ? 0 : p.streams[number];
    a.category = p.categories[number];
    describe(a, p.labels[number]);
    s.allocations.push_back(a);
    s.events.push_back({Event::Kind::alloc, index[number]});
  }
  for (; step < std::min(steps, p.step_begins.size()); ++step)
    s.step_begins.push_back(static_cast<std::int32_t>(s.events.size()));
}

}  // namespace

void add_module(const Recording& recording, std::int64_t batch, Tape& tape) {
  add_weights(recording.parameters, ValueKind::parameter, tape.parameters, tape);
  add_weights(recording.buffers, ValueKind::buffer, tape.buffers, tape);
  for (const StoredValue& input : recording.inputs) {
    TapeValue v;
    v.name = input.name;
    v.kind = ValueKind::user_input;
    v.dtype = input.dtype;
    v.sizes = with_batch(input, batch);
    tape.inputs.push_back(tape.add_value(std::move(v)));
  }
}

Tape tape_of_steps(const std::shared_ptr<const Recording>& recording, std::int64_t batch, const TrainingSetup& setup) {
  auto steps = std::make_shared<Steps>(Steps{recording, run_of(*recording, setup), batch});
  const Run& run = recording->runs[steps->run];
  const Program& program = program_of(run, batch, !recording->script.empty());
  Tape tape;
  tape.scopes = run.scopes;
  add_module(*recording, batch, tape);
  tell(*recording, run, program, batch, tape);
  tape.recorded = std::move(steps);
  return tape;
}

Tape tape_of_nearest(const Recording& recording, std::int64_t batch, const TrainingSetup& setup) {
  const std::optional<std::size_t> nearest = nearest_run(recording, setup);
  // Says what was recorded, and how to record more.
  const Run& run = recording.runs[nearest ? *nearest : run_of(recording, setup)];
  Tape tape = tape_of_calls(recording, run, batch);
  tape.exported.in_dtype = run.setup.precision == setup.precision;
  tape.notes.push_back({"MP062 recorded-calls",
                        fmt::format("worked out from the calls of a recorded forward pass ({}, PyTorch {}); this setup "
                                    "itself did not run",
                                    name_of_run(run), recording.torch),
                        Evidence::proven_by_file, About::program});
  if (run.setup.precision != setup.precision)
    tape.notes.push_back(
        {"MP063 other-precision",
         fmt::format("the calls ran in {}: code that asks for the precision may take another way in {}",
                     name_of(run.setup.precision), name_of(setup.precision)),
         Evidence::assumed, About::cast});
  if (run.setup.mode != setup.mode)
    tape.notes.push_back({"MP064 other-mode", "the calls ran in training; evaluation may take other ways",
                          Evidence::assumed, About::mode});
  return tape;
}

Tape tape_of(const std::shared_ptr<const Recording>& recording, std::int64_t batch, const TrainingSetup& setup) {
  const std::optional<std::size_t> exact = exact_run(*recording, setup);
  const bool steps = exact && answers(recording->runs[*exact], batch);
  return steps || !nearest_run(*recording, setup) ? tape_of_steps(recording, batch, setup)
                                                  : tape_of_nearest(*recording, batch, setup);
}

std::optional<std::int64_t> open_batch(const Recording& recording, const TrainingSetup& setup) {
  if (recording.batches.empty()) return std::nullopt;
  const auto exact = exact_run(recording, setup), nearest = nearest_run(recording, setup);
  const bool steps = exact && recording.runs[*exact].programs.size() == 1 &&
                     recording.runs[*exact].programs.front().batches.size() >= 3;
  const bool calls = nearest && recording.runs[*nearest].calls->batches.size() >= 3;
  return steps || calls ? std::optional(recording.batches.front()) : std::nullopt;
}

Schedule schedule_of(const Steps& steps, const TrainingSetup& setup, const Device& device) {
  const Recording& recording = *steps.recording;
  if (run_of(recording, setup) != steps.run)
    fail(ErrorKind::internal, "the steps of one recorded setup were asked for those of another");
  const Run& run = recording.runs[steps.run];
  const Program& p = program_of(run, steps.batch, !recording.script.empty());
  const BatchSizes sizes = sizes_at(p, steps.batch);
  Schedule s;
  s.names = run.strings;
  Shapes shapes(recording, s);
  copy_events(
      p, sizes.bytes, static_cast<std::size_t>(setup.steps),
      [&](Allocation& a, std::int32_t label) {
        a.label = label;
        if (label >= 0) a.shape_at = shapes.of(run.strings[static_cast<std::size_t>(label)], a.size);
      },
      s);
  if (sizes.open > 0)
    s.notes.push_back({"", fmt::format("drawn between the nearest recorded batches, {}", list_of(p.batches)),
                       Evidence::nearest_table_entry, About::workspace, "sizes that follow no line in the batch", "",
                       -1, sizes.open, Effect{Bytes(sizes.most), Bytes(sizes.most)}});
  move_to(device, recording, s);
  return s;
}

}  // namespace memplan::recording
