#include <algorithm>
#include <vector>

#include "estimators/restore/passes.h"
#include "estimators/tape/uses.h"

namespace memplan {

namespace {

/// The value in a call's place, made by no call: a parameter of known sizes. Null for all others.
const TapeValue* parameter_in(const Tape& tape, const Call& call, std::size_t place, ValueId& id) {
  id = value_at(call, place);
  if (!id.valid()) return nullptr;
  const TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
  return v.kind == ValueKind::parameter ? &v : nullptr;
}

bool reads_result(const Call& call, std::size_t place, const Call& of) {
  return of.outputs.size() == 1 && value_at(call, place) == of.outputs[0];
}

/// The one dimension that a norm over all others keeps; -1 where there is none.
std::int64_t kept_dimension(const Call& norm, std::int64_t rank) {
  const auto* dims = norm.args.size() > 2 ? std::get_if<Arg::List>(&norm.args[2].value) : nullptr;
  if (!dims || static_cast<std::int64_t>(dims->size()) + 1 != rank) return -1;
  std::vector<bool> reduced(static_cast<std::size_t>(rank), false);
  for (const Arg& a : *dims)
    if (const auto* d = std::get_if<std::int64_t>(&a.value); d && *d >= -rank && *d < rank)
      reduced[static_cast<std::size_t>(*d < 0 ? *d + rank : *d)] = true;
  return std::ranges::count(reduced, false) == 1 ? std::ranges::find(reduced, false) - reduced.begin() : -1;
}

/// nn.utils.weight_norm is a hook of the module that reads the weight, and the line is one that calls the module: it
/// names neither the gain g nor the direction v (torch/nn/utils/weight_norm.py).
bool is_hook(const TapeValue& v, const TapeValue& g, std::string_view line) {
  return v.name.ends_with("_v") && g.name.ends_with("_g") &&
         std::string_view(v.name).substr(0, v.name.size() - 1) ==
             std::string_view(g.name).substr(0, g.name.size() - 1) &&
         line.find(leaf_of(v.name)) == std::string_view::npos;
}

/// The products v * (g / norm) of one quotient: an exporter that shares equal calls leaves one of the norm and of the
/// quotient, where the module ran several times. Empty where something else reads one of the two.
std::vector<std::size_t> products_of(const Tape& tape, std::size_t norm, const Call& scale, ValueId v) {
  const ValueId length = tape.calls[norm].outputs[0], quotient = scale.outputs[0];
  std::vector<std::size_t> out;
  for (std::size_t i = norm + 2; i < tape.calls.size(); ++i) {
    const Call& call = tape.calls[i];
    if (reads_value(call, length)) return {};
    if (!reads_value(call, quotient)) continue;
    if (call.op != "aten::mul.Tensor" || value_at(call, 0) != v || value_at(call, 1) != quotient) return {};
    out.push_back(i);
  }
  const auto is_one = [&](ValueId id) { return id == length || id == quotient; };
  return std::ranges::any_of(tape.outputs, is_one) ? std::vector<std::size_t>{} : out;
}

}  // namespace

void recover_weight_norms(Tape& tape) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i + 2 < tape.calls.size(); ++i) {
    const Call &norm = tape.calls[i], &scale = tape.calls[i + 1];
    const Call& product = tape.calls[i + 2];
    const bool told = norm.op == "aten::linalg_vector_norm" && scale.op == "aten::div.Tensor" &&
                      product.op == "aten::mul.Tensor" && scale.source == norm.source && product.source == norm.source;
    if (!told || !reads_result(scale, 1, norm) || !reads_result(product, 1, scale)) continue;
    ValueId v, g, again;
    const TapeValue* weight = parameter_in(tape, norm, 0, v);
    const TapeValue* gain = parameter_in(tape, scale, 0, g);
    if (!weight || !gain || !parameter_in(tape, product, 0, again) || v != again) continue;
    if (norm.source.find("_weight_norm(") == std::string::npos && !is_hook(*weight, *gain, norm.source)) continue;
    const std::int64_t dim = kept_dimension(norm, static_cast<std::int64_t>(weight->sizes.size()));
    if (dim < 0) continue;
    const std::vector<std::size_t> products = products_of(tape, i, scale, v);
    if (products.empty()) continue;
    for (const std::size_t at : products) {
      Call& made = tape.calls[at];
      made.op = "aten::_weight_norm";
      made.args = {{v}, {g}, {dim}};
      made.kwargs.clear();
    }
    tape.calls.erase(tape.calls.begin() + static_cast<std::ptrdiff_t>(i),
                     tape.calls.begin() + static_cast<std::ptrdiff_t>(i) + 2);
    ++count;
  }
  if (count > 0)
    tape.recovered.push_back({"aten::_weight_norm", "the norm, quotient and product that an exporter makes of it",
                              count, Evidence::told_by_source_line, About::op});
}

}  // namespace memplan
