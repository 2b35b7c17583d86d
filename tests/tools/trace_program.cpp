// Runs small programs (the format of tests/op_oracle) on paper and prints their allocations and frees as JSON, with
// what autograd keeps, so that they can be compared event by event with PyTorch's.   trace_program PROGRAMS.json  ->
// one JSON line each
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "estimators/runtime/torch/aten/op_table.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/autograd/engine.h"
#include "estimators/runtime/torch/profile/profile.h"
#include "estimators/setup/setup.h"

using namespace memplan;
using nlohmann::json;

namespace {

/// Variables in the order in which they were first bound, as in Python's dict.
struct Names {
  std::vector<std::pair<std::string, Value>> entries;
  Value* find(const std::string& name) {
    for (auto& [n, v] : entries)
      if (n == name) return &v;
    return nullptr;
  }
  Value& operator[](const std::string& name) {
    if (Value* v = find(name)) return *v;
    return entries.emplace_back(name, Value()).second;
  }
  Value& at(const std::string& name) {
    if (Value* v = find(name)) return *v;
    fail_input("no value named " + name);
  }
  void erase(const std::string& name) {
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].first == name) {
        entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
        return;
      }
  }
};

/// The places of a call's tensors by their memory: "args.0", "args.1.2" (in a list), keyword names.
void places(const Value& v, const std::string& where, std::vector<std::pair<std::string, const Storage*>>& out) {
  if (v.is_tensor() && v.tensor()) out.emplace_back(where, v.tensor()->storage.get());
  if (v.is_list())
    for (std::size_t i = 0; i < v.list().size(); ++i) places(v.list()[i], where + "." + std::to_string(i), out);
}

/// What the node behind a call's first output keeps, as places of the call's arguments and outputs.
json kept_by(const ValueList& results, const std::vector<std::pair<std::string, const Storage*>>& arguments) {
  json kept = json::array();
  if (results.empty() || !results[0].is_tensor() || !results[0].tensor() || !results[0].tensor()->grad_fn) return kept;
  for (const Tensor& t : results[0].tensor()->grad_fn->saved) {
    if (!t) continue;
    std::string where = "made by the op";
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i].is_tensor() && results[i].tensor() && results[i].tensor()->storage.get() == t->storage.get())
        where = "outputs." + std::to_string(i);
    for (const auto& [place, storage] : arguments)
      if (storage == t->storage.get()) where = place;
    kept.push_back(where);
  }
  return kept;
}

struct Program {
  Run& run;
  Names names;

  Value value(const json& j) {
    if (j.is_null()) return {};
    if (j.is_boolean()) return j.get<bool>();
    if (j.is_number_integer()) return j.get<std::int64_t>();
    if (j.is_number_float()) return j.get<double>();
    if (j.is_string()) return j.get<std::string>();
    if (j.is_array()) {
      ValueList list;
      for (const json& x : j) list.push_back(value(x));
      return list;
    }
    if (j.contains("v")) return names.at(j["v"]);
    return *dtype_from_name(j.at("dtype").get<std::string>());
  }
};

void mentions(const json& j, const std::string& name, bool& found) {
  if (j.is_object() && j.contains("v")) found = found || j["v"] == name;
  if (j.is_array())
    for (const json& x : j) mentions(x, name, found);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: trace_program PROGRAMS.json\n";
    return 2;
  }
  std::ifstream file(argv[1]);
  const json programs = json::parse(file);
  for (const json& p : programs) {
    const std::string gpu = p.value("device", "h100");
    // The emulated device's names; everything else about the card is in the device table.
    const Device device = choose_device(gpu == "h100" || gpu == "a100" ? gpu + "-80gb" : gpu).device;
    TrainingSetup setup;
    setup.runtime.version = p.value("torch", setup.runtime.version);
    json out{{"name", p["name"]}};
    json marks = json::array(), layouts = json::array(), kept = json::array();
    Run run(run_options(setup), device);
    Program program{run, {}};
    auto mark = [&](const std::string& text) { marks.push_back({text, run.schedule.events.size()}); };
    try {
      if (p.value("warm", true)) {
        run.use_cudnn_dropout();
        run.use_cublas_lt();
        ScopedValue<bool> thread(run.on_engine_thread, true);
        run.use_cublas_lt();
      }
      for (const json& v : p["values"]) {
        const auto dtype = *dtype_from_name(v["dtype"].get<std::string>());
        Dims sizes(v["sizes"].get<std::vector<std::int64_t>>());
        if (v.value("host", false)) {
          program.names[v["name"]] = run.host(sizes, dtype);
          continue;
        }
        Tensor t = v.contains("strides")
                       ? run.empty_strided(sizes, Dims(v["strides"].get<std::vector<std::int64_t>>()), dtype)
                       : run.empty(sizes, dtype);
        t->requires_grad_leaf = v.value("requires_grad", false);
        program.names[v["name"]] = t;
      }
      run.phase = Phase::forward;
      run.autocast = p.contains("autocast");
      if (run.autocast) run.autocast_dtype = *dtype_from_name(p["autocast"].get<std::string>());
      const json& calls = p["calls"];
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const json& c = calls[i];
        mark(c["op"]);
        run.begin_op(c["op"].get<std::string>());
        const Row* row = run.profile.ops->find(c["op"].get<std::string>());
        if (!row) fail_input("no row for " + c["op"].get<std::string>());
        {
          std::vector<Value> args;
          for (const json& a : c["args"]) args.push_back(program.value(a));
          std::vector<std::pair<std::string, Value>> kwargs;
          if (c.contains("kwargs"))
            for (auto& [k, v] : c["kwargs"].items()) kwargs.emplace_back(k, program.value(v));
          std::vector<std::pair<std::string, const Storage*>> given;
          for (std::size_t k = 0; k < args.size(); ++k) places(args[k], "args." + std::to_string(k), given);
          for (const auto& [k, v] : kwargs) places(v, k, given);
          ValueList results = call_op(run, *row, std::move(args), kwargs);
          kept.push_back(kept_by(results, given));
          if (results.size() == 1 && results[0].is_list() && c["outputs"].size() != 1) {
            ValueList inner = results[0].list();
            results = std::move(inner);
          }
          for (std::size_t o = 0; o < c["outputs"].size() && o < results.size(); ++o)
            if (!c["outputs"][o].is_null()) program.names[c["outputs"][o]] = results[o];
        }
        for (const json& o : c["outputs"])
          if (!o.is_null() && program.names.find(o)) {
            const Value& v = program.names[o];
            if (v.is_tensor() && v.tensor())
              layouts.push_back(
                  {o, v.tensor()->sizes.vector(), v.tensor()->strides.vector(), name_of(v.tensor()->dtype)});
          }
        // Names of intermediates die after their last use.
        for (std::size_t n = 0; n < program.names.entries.size();) {
          const std::string name = program.names.entries[n].first;
          bool input = false, later = false;
          for (const json& v : p["values"]) input = input || v["name"] == name;
          for (std::size_t k = i + 1; k < calls.size(); ++k) {
            mentions(calls[k]["args"], name, later);
            if (calls[k].contains("kwargs"))
              for (auto& [key, v] : calls[k]["kwargs"].items()) mentions(v, name, later);
          }
          if (p.contains("backward"))
            for (const json& b : p["backward"]) later = later || b == name;
          if (input || later)
            ++n;
          else
            program.names.erase(name);
        }
      }
      run.autocast = false;
      run.cast_cache.clear();
      if (p.contains("backward"))
        for (const json& b : p["backward"]) {
          mark("backward");
          backward(run, program.names.at(b).tensor());
          mark("backward end");
          program.names.erase(b);
        }
      mark("end");
      json events = json::array();
      for (std::size_t i = 0; i < run.schedule.events.size(); ++i) {
        const Event& e = run.schedule.events[i];
        const Allocation& a = run.schedule.allocations[e.allocation];
        events.push_back({e.kind == Event::Kind::alloc ? "alloc" : "free", a.size.count, e.allocation});
      }
      out["events"] = events;
      out["marks"] = marks;
      out["layouts"] = layouts;
      out["kept"] = kept;
    } catch (const Failure& f) {
      out["error"] = f.error().what + " " + f.error().where;
    }
    program.names.entries.clear();
    std::cout << out.dump() << "\n";
  }
}
