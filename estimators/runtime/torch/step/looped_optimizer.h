// What the optimizers of torch.optim have in common: a walk over the parameters, alone or grouped by dtype.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "estimators/runtime/torch/step/optimizer.h"

namespace memplan {

/// A Python list: its items are let go from the last to the first (Objects/listobject.c, list_dealloc).
struct PyList : TensorList {
  PyList() = default;
  PyList(PyList&&) = default;
  PyList& operator=(PyList&&) = default;
  ~PyList() {
    while (!empty()) pop_back();
  }
};

/// Tensors of one dtype are updated together by foreach; every group is one pass of a loop in Python.
struct LoopedOptimizer : Optimizer {
  LoopedOptimizer(Run&, const OptimizerSetup& s, const TensorList& p) : setup(s), parameters(p) {}

  OptimizerSetup setup;
  TensorList parameters;

  void step(Run& r) override {
    r.phase = Phase::optimizer;
    r.scope = r.call = -1;
    ScopedValue<bool> no_grad(r.grad_mode, false);
    r.begin_op("optimizer.step");
    std::vector<std::pair<DType, std::vector<std::size_t>>> groups;
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i]->grad) continue;
      init(r, i);
      all.push_back(i);
      const DType d = parameters[i]->dtype;
      auto it = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == d; });
      if (it == groups.end()) it = groups.insert(groups.end(), {d, {}});
      it->second.push_back(i);
    }
    if (setup.impl == OptimizerImpl::loop) {
      one_by_one(r, all);
    } else if (setup.impl != OptimizerImpl::fused) {
      for (auto& [dtype, group] : groups)
        foreach (r, group)
          ;
    }
  }

  virtual void init(Run&, std::size_t) {}
  /// Those without such a version walk the group one by one all the same.
  virtual void foreach (Run& r, const std::vector<std::size_t>& group) { one_by_one(r, group); }
  virtual void single(Run&, std::size_t) = 0;
  virtual void end_loop() {}

  void one_by_one(Run& r, const std::vector<std::size_t>& parameters_of) {
    for (const std::size_t i : parameters_of) single(r, i);
    end_loop();
  }

  Tensor state_like(Run& r, const Tensor& p, const char* name) { return mark(r, r.empty_like(p), p, name); }
  Tensor mark(Run& r, Tensor t, const Tensor& p, const char* name) {
    r.set_category(t, Category::optimizer_state);
    if (p->name >= 0) r.label(t, r.schedule.names[p->name] + "." + name);
    r.set_reason(t, "optimizer state, kept for the whole run");
    return t;
  }
  /// torch._foreach_* that returns new tensors: one per parameter of the group.
  PyList list_like(Run& r, const std::vector<std::size_t>& group) {
    PyList list;
    for (std::size_t i : group) list.push_back(r.empty_like(parameters[i]));
    return list;
  }
  /// weight decay that is not decoupled makes a copy of the gradients.
  PyList decayed(Run& r, const std::vector<std::size_t>& group) {
    PyList list;
    if (setup.weight_decay == 0) return list;
    for (std::size_t i : group) list.push_back(r.empty_like(parameters[i]->grad));
    return list;
  }
};

}  // namespace memplan
