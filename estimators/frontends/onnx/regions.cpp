#include "estimators/frontends/onnx/regions.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "estimators/frontends/onnx/inferred.h"
#include "estimators/tape/differentiable.h"
#include "estimators/tape/uses.h"

namespace memplan::onnx_format {

namespace {

bool is_layer(std::string_view op) {
  op = op.substr(0, op.find('.'));
  for (const std::string_view layer : {"aten::linear", "aten::addmm", "aten::convolution", "aten::conv1d",
                                       "aten::conv2d", "aten::conv3d", "aten::embedding", "aten::lstm", "aten::gru"})
    if (op == layer) return true;
  return false;
}

class Regions {
 public:
  Regions(Tape& tape, const std::set<std::int32_t>& without_gradients)
      : tape_(tape), without_gradients_(without_gradients), gradients_(tape) {}

  void run(const std::vector<std::int32_t>& region) {
    std::vector<Call> calls = std::move(tape_.calls);
    tape_.calls.clear();
    for (std::size_t i = 0; i < calls.size();) {
      std::size_t end = i + 1;
      while (end < calls.size() && region[end] == region[i]) ++end;
      const std::span<Call> part(calls.begin() + static_cast<std::ptrdiff_t>(i), end - i);
      if (region[i] >= 0) settle(part, without_gradients_.contains(region[i]));
      for (Call& c : part) put(std::move(c));
      i = end;
    }
  }

 private:
  void put(Call call) {
    gradients_.follow(call);
    tape_.calls.push_back(std::move(call));
  }

  void settle(std::span<Call> part, bool proven) {
    std::vector<ValueId> read;
    std::set<std::int32_t> weights;  // what the region makes of parameters alone: "self.weight * self.scale"
    bool layers = false;
    Bytes made;
    for (const Call& c : part) {
      bool any = false, alone = true;
      for_each_value(c, [&](ValueId id) {
        const ValueKind kind = tape_.values[static_cast<std::size_t>(id.index)].kind;
        const bool wanted = gradients_.wants(id);
        any = any || (wanted && kind == ValueKind::parameter) || weights.contains(id.index);
        alone = alone && (kind == ValueKind::parameter || kind == ValueKind::constant || weights.contains(id.index));
        if (wanted && std::ranges::find(read, id) == read.end()) read.push_back(id);
      });
      layers = layers || (any && is_layer(c.op));
      for (const ValueId id : c.outputs)
        if (any && alone && id.valid()) weights.insert(id.index);
      for (const auto& [dtype, sizes] : c.known_shapes) made += bytes_of(dtype, sizes);
    }
    if (read.empty()) return;
    if (layers || proven) detach(part, read);
    if (proven) return;
    note(tape_.notes, {{},
                       layers ? "a region with layers, without gradients or without autocast: taken to be without "
                                "gradients"
                              : "a region without gradients or without autocast, counted as the calls around it",
                       Evidence::told_by_pattern,
                       About::mode,
                       {},
                       {},
                       -1,
                       1,
                       layers ? Effect{Bytes(), made} : Effect{made, made}});
  }

  void detach(std::span<Call> part, const std::vector<ValueId>& read) {
    std::map<std::int32_t, ValueId> instead;
    for (const ValueId id : read) {
      TapeValue v;
      v.name = tape_.values[static_cast<std::size_t>(id.index)].name;
      Call c;
      c.op = "aten::detach";
      c.args = {{id}};
      c.scope = part.front().scope;
      c.outputs = {instead[id.index] = tape_.add_value(std::move(v))};
      put(std::move(c));
    }
    for (Call& c : part)
      replace_values(c, [&](ValueId id) {
        const auto it = instead.find(id.index);
        return Arg{it == instead.end() ? id : it->second};
      });
  }

  Tape& tape_;
  const std::set<std::int32_t>& without_gradients_;
  Differentiable gradients_;
};

}  // namespace

void write_in_place(Tape& tape, std::size_t first, std::string_view op) {
  if (op.empty()) return;
  const std::string whole = "aten::" + std::string(op), prefix = whole + ".";
  for (std::size_t i = first; i < tape.calls.size(); ++i) {
    Call& call = tape.calls[i];
    if ((call.op != whole && !call.op.starts_with(prefix)) || call.args.empty() ||
        !std::holds_alternative<ValueId>(call.args[0].value))
      continue;
    call.op.insert(whole.size(), "_");
    const auto* scaled = call.args.size() > 1 ? std::get_if<ValueId>(&call.args[1].value) : nullptr;
    if (op != "add" || !scaled || i == 0) continue;
    const Call& product = tape.calls[i - 1];
    if (product.op != "aten::mul.Tensor" || product.args.size() != 2 || product.scope != call.scope ||
        product.outputs.size() != 1 || product.outputs[0] != *scaled ||
        std::holds_alternative<ValueId>(product.args[1].value))
      continue;
    call.args[1] = product.args[0];
    tape.calls.erase(tape.calls.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    return;
  }
}

void settle_regions(Tape& tape, const std::vector<std::int32_t>& region,
                    const std::set<std::int32_t>& without_gradients) {
  if (std::ranges::any_of(region, [](std::int32_t r) { return r >= 0; })) Regions(tape, without_gradients).run(region);
}

}  // namespace memplan::onnx_format
