// Prints what memplan says a model's steps ask the allocator for: one event per line ("+4096 forward aten::relu
// layer1.0"), or with --peaks one JSON line of requested peaks. For comparison with recordings of PyTorch.
//   trace_model MODEL [--peaks] [batch=8] [seq=128] [precision=amp-bf16] [optimizer=sgd] [momentum=0.9]
//   [mode=inference] [sm=80] [loss=cross-entropy]
#include <fmt/format.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <utility>

#include "estimators/pipeline.h"

using namespace memplan;

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  bool peaks = false;
  for (int i = 2; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--peaks")
      peaks = true;
    else
      flags[a.substr(0, a.find('='))] = a.substr(a.find('=') + 1);
  }
  if (argc < 2) return 2;
  TrainingSetup s;
  if (flags.count("batch")) s.batch = std::atoll(flags["batch"].c_str());
  if (flags.count("seq")) s.sequence = std::atoll(flags["seq"].c_str());
  if (flags["mode"] == "inference") s.mode = Mode::inference;
  if (flags["precision"] == "amp-bf16") s.precision = Precision::amp_bf16;
  if (flags["precision"] == "amp-fp16") s.precision = Precision::amp_fp16;
  if (flags["precision"] == "bf16") s.precision = Precision::bf16;
  if (flags["optimizer"] == "sgd") s.optimizer = {OptimizerKind::sgd, OptimizerImpl::automatic, 0.0, false, 0.0, false};
  for (auto [name, kind] : {std::pair{"adafactor", OptimizerKind::adafactor},
                            {"adagrad", OptimizerKind::adagrad},
                            {"rmsprop", OptimizerKind::rmsprop},
                            {"adam", OptimizerKind::adam}})
    if (flags["optimizer"] == name) {
      s.optimizer.kind = kind;
      s.optimizer.weight_decay = 0;
    }
  if (flags.count("checkpoint")) s.checkpoint = {flags["checkpoint"]};
  if (flags.count("clip")) s.clip_grad_norm = true;
  if (flags["loss"] == "cross-entropy") s.loss = Loss::cross_entropy;
  if (flags.count("momentum")) s.optimizer.momentum = std::atof(flags["momentum"].c_str());
  Device device;
  if (flags["sm"] == "80") {
    device.sm_major = 8;
    device.multiprocessors = 108;
  }
  auto check = [](const auto& r) {
    if (r.ok()) return;
    std::cerr << r.error().what << "\n  " << r.error().where << "\n  " << r.error().hint << "\n";
    std::exit(3);
  };
  auto model = load_model(argv[1]);
  check(model);
  auto tape = tape_of(*model, s);
  check(tape);
  auto schedule = run_steps(*tape, s, device);
  check(schedule);
  std::int64_t current = 0, peak = 0;
  std::size_t op = 0, step = 0;
  std::vector<std::int64_t> step_peaks, after;
  std::size_t events = schedule->events.size();
  for (std::size_t i = 0; i <= events; ++i) {
    if ((step < schedule->step_begins.size() && i == static_cast<std::size_t>(schedule->step_begins[step])) ||
        i == events) {
      if (step > 0) step_peaks.push_back(peak), after.push_back(current);
      peak = current;
      ++step;
      if (!peaks && i < events) fmt::print("== step {}\n", step);
    }
    if (i == events) break;
    while (op + 1 < schedule->ops.size() && schedule->ops[op + 1].first_event <= static_cast<std::int32_t>(i)) ++op;
    const Event& e = schedule->events[i];
    const Allocation& a = schedule->allocations[e.allocation];
    const bool alloc = e.kind == Event::Kind::alloc;
    current += alloc ? a.size.count : -a.size.count;
    peak = std::max(peak, current);
    if (peaks) continue;
    const OpRecord& o = schedule->ops[op];
    fmt::print("{}{} #{} {} {} {} {}\n", alloc ? '+' : '-', a.size.count, e.allocation, name_of(o.phase),
               schedule->names[o.name], o.scope >= 0 ? tape->scopes[o.scope].path : std::string("."),
               a.label >= 0 ? schedule->names[a.label] : std::string());
  }
  if (peaks) {
    fmt::print("{{\"peaks\":[{}],\"after\":[{}],\"events\":{},\"widened\":[", fmt::join(step_peaks, ","),
               fmt::join(after, ","), events);
    const char* between = "";
    for (const Fact& f : schedule->notes)
      if (f.off) fmt::print("{}\"{} x{}\"", std::exchange(between, ","), f.op, f.count);
    fmt::print("]}}\n");
  }
}
