#include "memplan_torch/script_values.h"

#include <cmath>

namespace memplan::torch_side {

using nlohmann::json;

namespace {

constexpr int deepest_module = 200;

/// Of a constant that is known without reading a weight: one number, stored in a record small enough to be read.
json number_of(const at::Tensor& t) {
  if (t.numel() != 1 || !t.device().is_cpu() || t.layout() != at::kStrided || t.is_quantized() ||
      t.storage().nbytes() > 64)
    return nullptr;
  if (t.scalar_type() == at::kBool) return t.item<bool>();
  if (at::isIntegralType(t.scalar_type(), false)) return t.item<std::int64_t>();
  if (at::isFloatingType(t.scalar_type())) {
    const double d = t.item<double>();
    return std::isfinite(d) ? json(d) : json(nullptr);
  }
  return nullptr;
}

}  // namespace

ScriptValues::ScriptValues(const torch::jit::Module& root) { walk(root._ivalue(), "", 0); }

void ScriptValues::walk(const c10::IValue& value, const std::string& path, int depth) {
  const auto object = value.toObject();
  if (depth > deepest_module || !paths_.try_emplace(object.get(), path).second) return;
  const auto type = object->type();
  const auto inside = [&](const std::string& name) { return path.empty() ? name : path + "." + name; };
  // named_parameters(): those of the module itself, then its children's in order.
  for (std::size_t i = 0; i < type->numAttributes(); ++i) {
    const c10::IValue& slot = object->slots()[i];
    if (!slot.isTensor() || !slot.toTensor().defined()) continue;
    tensor(slot.toTensor(), inside(type->getAttributeName(i)), type->is_parameter(i) ? "parameter" : "buffer");
  }
  for (std::size_t i = 0; i < type->numAttributes(); ++i) {
    const c10::IValue& slot = object->slots()[i];
    if (slot.isObject() && slot.toObject()->type()->is_module())
      walk(slot, inside(type->getAttributeName(i)), depth + 1);
  }
}

int ScriptValues::tensor(const at::Tensor& t, const std::string& name, const char* kind) {
  const void* storage = t.has_storage() && t.storage().nbytes() > 0
                            ? static_cast<const void*>(t.storage().unsafeGetStorageImpl())
                            : t.unsafeGetTensorImpl();
  const bool strided = t.layout() == at::kStrided;
  Key key{storage, strided ? t.storage_offset() : 0, t.sizes().vec(),
          strided ? t.strides().vec() : std::vector<std::int64_t>{}};
  const auto [it, fresh] = ids_.try_emplace(std::move(key), static_cast<int>(tensors_.size()));
  if (!fresh) {
    // A second name of the same weight.
    auto& entry = tensors_[static_cast<std::size_t>(it->second)];
    if (!name.empty() && entry["name"] != name && !by_name_.count(name)) {
      by_name_[name] = it->second;
      entry["also"].push_back(name);
    }
    return it->second;
  }
  by_name_[name] = it->second;
  tensors_.push_back({{"name", name},
                      {"kind", kind},
                      {"dtype", c10::toString(t.scalar_type())},
                      {"sizes", t.sizes().vec()},
                      {"grad", t.requires_grad()},
                      {"number", number_of(t)}});
  return it->second;
}

std::string ScriptValues::path_of(const void* object) const {
  const auto it = paths_.find(object);
  return it == paths_.end() ? std::string() : it->second;
}

std::string ScriptValues::class_name(const c10::ClassType& type) {
  if (!type.name()) return {};
  std::string out;
  for (const std::string& atom : type.name()->atoms())
    if (atom != "__torch__" && atom.rfind("___torch_mangle_", 0) != 0) out += (out.empty() ? "" : ".") + atom;
  return out;
}

json ScriptValues::json_of(const c10::IValue& v) {
  const auto each = [&](const auto& items) {
    json out = json::array();
    for (const c10::IValue& item : items) out.push_back(json_of(item));
    return out;
  };
  if (v.isNone()) return nullptr;
  if (v.isBool()) return v.toBool();
  if (v.isInt()) return v.toInt();
  if (v.isDouble())
    return std::isfinite(v.toDouble()) ? json(v.toDouble())
                                       : json{{"f", std::isnan(v.toDouble()) ? "nan"
                                                    : v.toDouble() > 0       ? "inf"
                                                                             : "-inf"}};
  if (v.isString()) return v.toStringRef();
  if (v.isTensor()) return v.toTensor().defined() ? json{{"t", tensor(v.toTensor(), "", "constant")}} : json(nullptr);
  if (v.isList()) return {{"l", each(v.toListRef())}};
  if (v.isTuple()) return {{"u", each(v.toTupleRef().elements())}};
  if (v.isDevice()) return {{"device", v.toDevice().str()}};
  if (v.isGenericDict()) {
    json out = json::array();
    for (const auto& item : v.toGenericDict()) out.push_back(json::array({json_of(item.key()), json_of(item.value())}));
    return {{"d", out}};
  }
  if (v.isObject()) return {{"o", class_name(*v.toObject()->type())}};
  return {{"o", v.tagKind()}};
}

}  // namespace memplan::torch_side
