#include "estimators/frontends/torch_export/signature.h"

#include <fmt/format.h>

#include <algorithm>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"
#include "estimators/tape/uses.h"

namespace memplan::torch_export {

namespace {

bool same_layout(const TensorMeta& a, const TensorMeta& b) {
  if (a.dtype != b.dtype || a.sizes.size() != b.sizes.size()) return false;
  for (std::size_t i = 0; i < a.sizes.size(); ++i)
    if (a.sizes[i].size != b.sizes[i].size || a.sizes[i].symbol != b.sizes[i].symbol) return false;
  return true;
}

}  // namespace

ValueId SignatureValues::add(ValueKind kind, const InputSpec& spec) {
  const Name& name = program_.names[static_cast<std::size_t>(spec.name)];
  if (!name.tensor) fail_input(fmt::format("the file gives no sizes for '{}'", name.text), {}, "the file is damaged");
  TapeValue v;
  v.name = spec.target.empty() ? name.text : spec.target;
  v.kind = kind;
  v.dtype = name.tensor->dtype;
  for (const Dim& d : name.tensor->sizes) {
    const auto n = evaluate(d, symbols_);
    if (!n)
      fail_input(fmt::format("a size of '{}' cannot be worked out: '{}'", v.name, d.symbol), v.name,
                 "bind its symbols with " + setting(Field::dims));
    v.sizes.push_back(*n);
  }
  v.requires_grad = kind == ValueKind::parameter && name.tensor->requires_grad;
  // torch.tensor(3.0) in a forward pass makes a CPU tensor, and an op takes a 0-dim one without copying it.
  v.on_host = kind == ValueKind::constant && v.sizes.empty();
  return tape_.add_value(std::move(v));
}

std::set<std::string_view> SignatureValues::members_of_several() const {
  std::unordered_map<std::string_view, const Name*> members;
  std::set<std::string_view> several;
  for (const InputSpec& spec : program_.inputs) {
    if ((spec.kind != InputKind::parameter && spec.kind != InputKind::buffer) || spec.name < 0 || spec.stored.empty())
      continue;
    const Name& name = program_.names[static_cast<std::size_t>(spec.name)];
    const auto [it, added] = members.try_emplace(spec.stored, &name);
    if (!added && name.tensor && it->second->tensor && !same_layout(*name.tensor, *it->second->tensor))
      several.insert(spec.stored);
  }
  return several;
}

Arg SignatureValues::user_input(const InputSpec& spec) {
  const Name& name = program_.names[static_cast<std::size_t>(spec.name)];
  if (name.tensor) {
    tape_.inputs.push_back(add(ValueKind::user_input, spec));
    return {tape_.inputs.back()};
  }
  if (!name.number) return {};
  const auto n = evaluate(*name.number, symbols_);
  if (!n)
    fail_input(fmt::format("the input '{}' is a number that nothing fixes", name.text), name.text,
               "export the model with a constant there");
  return {*n};
}

ValueId SignatureValues::parameter(const InputSpec& spec, bool told) {
  if (told)
    if (const auto it = stored_.find(spec.stored); it != stored_.end()) {
      tape_.notes.push_back({"MP005",
                             fmt::format("parameters '{}' and '{}' are tied and counted once",
                                         tape_.values[static_cast<std::size_t>(it->second.index)].name, spec.target),
                             Evidence::proven_by_file, About::weights});
      return it->second;
    }
  const ValueId v = add(ValueKind::parameter, spec);
  tape_.parameters.push_back(v);
  if (told) stored_.emplace(spec.stored, v);
  return v;
}

/// Whether all tensors of two modules, "a.rope." and "b.rope.", are the same ones.
bool SignatureValues::hold_the_same(std::string_view here, std::string_view there) {
  if (by_target_.empty())
    for (const InputSpec& in : program_.inputs) by_target_.emplace(in.target, in.stored);
  const auto members = [&](std::string_view module) {
    std::map<std::string_view, std::string_view> out;
    for (auto it = by_target_.lower_bound(module); it != by_target_.end() && it->first.starts_with(module); ++it)
      out.emplace(it->first.substr(module.size()), it->second);
    return out;
  };
  const auto of_this = members(here);
  const bool all = std::ranges::none_of(of_this, [](const auto& m) { return m.second.empty(); });
  return all && of_this == members(there);
}

/// Two modules that register one tensor have a copy each on the GPU; one module in two places has one. The archive
/// tells neither from the other, but that the second's tensors are all the same as the first's.
ValueId SignatureValues::buffer_of_shared_module(const InputSpec& spec) {
  if (spec.stored.empty()) return {};
  const auto it = buffers_.find(spec.stored);
  if (it == buffers_.end()) return {};
  const auto module_of = [](std::string_view path) { return path.substr(0, path.rfind('.') + 1); };
  const std::string_view here = module_of(spec.target), there = module_of(it->second.first->target);
  if (here.empty() || there.empty() || here == there) return {};
  const auto [same, fresh] = same_modules_.try_emplace({here, there}, false);
  if (fresh) same->second = hold_the_same(here, there);
  if (!same->second) return {};
  const TapeValue& v = tape_.values[static_cast<std::size_t>(it->second.second.index)];
  copies_ += bytes_of(v.dtype, v.sizes);
  return it->second.second;
}

void SignatureValues::make_inputs() {
  std::set<NameId> read;
  for (const Node& n : program_.graphs.front().nodes)
    for (const NodeInput& in : n.inputs) for_each_value(in.value, [&](ValueId id) { read.insert(id.index); });
  const std::set<std::string_view> several = members_of_several();
  inputs_.resize(program_.inputs.size());
  for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
    const InputSpec& spec = program_.inputs[i];
    if (spec.name < 0) continue;
    switch (spec.kind) {
      case InputKind::user:
        inputs_[i] = user_input(spec);
        break;
      case InputKind::parameter: {
        const bool told = !spec.stored.empty() && !several.count(spec.stored);
        const ValueId v = parameter(spec, told);
        inputs_[i] = {v};
        if (!told && !read.count(spec.name)) unread_.emplace(spec.target, v);
        break;
      }
      case InputKind::buffer:
      case InputKind::constant: {
        const bool told = spec.kind == InputKind::buffer && !several.count(spec.stored);
        if (const ValueId shared = told ? buffer_of_shared_module(spec) : ValueId(); shared.valid()) {
          inputs_[i] = {shared};
          break;
        }
        const ValueId v = add(spec.kind == InputKind::buffer ? ValueKind::buffer : ValueKind::constant, spec);
        inputs_[i] = {v};
        tape_.buffers.push_back(v);
        if (told && !spec.stored.empty()) buffers_.try_emplace(spec.stored, &spec, v);
        break;
      }
      case InputKind::other:
        break;
    }
  }
  if (copies_ > Bytes())
    tape_.notes.push_back({"MP005",
                           "buffers of a module that stands in several places are counted once",
                           Evidence::told_by_pattern,
                           About::weights,
                           {},
                           {},
                           -1,
                           1,
                           Effect{Bytes(), copies_}});
}

void SignatureValues::use_in_scope(ValueId value, std::string_view scope) {
  if (unread_.empty() || !value.valid()) return;
  TapeValue& v = tape_.values[static_cast<std::size_t>(value.index)];
  if (v.kind != ValueKind::parameter) return;
  const std::size_t dot = v.name.rfind('.');
  const std::string leaf = dot == std::string::npos ? v.name : v.name.substr(dot + 1);
  const std::string here = scope.empty() ? leaf : fmt::format("{}.{}", scope, leaf);
  const auto it = unread_.find(here);
  if (here == v.name || it == unread_.end()) return;
  const ValueId own = it->second;
  TapeValue& other = tape_.values[static_cast<std::size_t>(own.index)];
  if (other.sizes != v.sizes || other.dtype != v.dtype) return;
  unread_.erase(it);
  tape_.notes.push_back({"MP005", fmt::format("parameters '{}' and '{}' are tied and counted once", here, v.name),
                         Evidence::told_by_name, About::weights});
  // named_parameters() lists a tied parameter once, under its first name and at that place.
  auto place = [&](ValueId id) { return std::find(tape_.parameters.begin(), tape_.parameters.end(), id); };
  if (place(own) < place(value)) {
    tape_.parameters.erase(place(value));
    *place(own) = value;
    v.name = here;
  } else {
    tape_.parameters.erase(place(own));
  }
}

}  // namespace memplan::torch_export
