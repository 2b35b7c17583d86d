#include "estimators/runtime/torch/aten/registry.h"

#include <fmt/format.h>

#include <cstdlib>

#include "estimators/base/text.h"
#include "estimators/runtime/torch/aten/autocast.h"
#include "estimators/runtime/torch/aten/collectives.h"
#include "estimators/runtime/torch/aten/fp8.h"

namespace memplan {

namespace {

Value parse_default(std::string_view text) {
  if (text == "None") return {};
  if (text == "True") return true;
  if (text == "False") return false;
  if (text == "[]") return ValueList{};
  if (text.find_first_of(".e") != std::string_view::npos) return std::strtod(std::string(text).c_str(), nullptr);
  return static_cast<std::int64_t>(std::strtoll(std::string(text).c_str(), nullptr, 10));
}

}  // namespace

Row& Registry::add(std::string_view name, std::string_view schema, Kernel kernel, Fidelity fidelity) {
  Row* row = new Row;  // the table lives as long as the process
  row->name = name;
  row->kernel = kernel;
  row->fidelity = fidelity;
  while (!schema.empty()) {
    const auto comma = schema.find(',');
    std::string_view item = trim(schema.substr(0, comma));
    schema = comma == std::string_view::npos ? std::string_view{} : schema.substr(comma + 1);
    const auto equals = item.find('=');
    row->arguments.emplace_back(trim(item.substr(0, equals)));
    row->defaults.push_back(equals == std::string_view::npos ? Value{} : parse_default(trim(item.substr(equals + 1))));
  }
  if (!rows_.emplace(row->name, row).second) fail(ErrorKind::internal, "two rows for " + row->name);
  order_.push_back(row);
  return *row;
}

const Row* Registry::find(std::string_view name) const {
  auto it = rows_.find(name);
  return it == rows_.end() ? nullptr : it->second;
}

const Registry& registry() {
  static const Registry* table = [] {
    auto* r = new Registry;
    register_creation(*r);
    register_views(*r);
    register_arithmetic(*r);
    register_elementwise(*r);
    register_selection(*r);
    register_reductions(*r);
    register_matmul(*r);
    register_products(*r);
    register_convolution(*r);
    register_normalization(*r);
    register_pooling(*r);
    register_spatial(*r);
    register_softmax(*r);
    register_attention(*r);
    register_rearrange(*r);
    register_indexing(*r);
    register_scatter(*r);
    register_sorting(*r);
    register_losses(*r);
    register_spectral(*r);
    register_recurrent(*r);
    register_symbolic(*r);
    register_quantized(*r);
    register_fp8(*r);
    register_collectives(*r);
    apply_autocast_lists(*r);
    return r;
  }();
  return *table;
}

ValueList call_op(Run& run, const Row& row, std::vector<Value> args,
                  const std::vector<std::pair<std::string, Value>>& kwargs) {
  if (args.size() > row.arguments.size())
    fail_input(fmt::format("{} got {} arguments, it takes {}", row.name, args.size(), row.arguments.size()), row.name);
  const std::size_t given = args.size();
  args.resize(row.arguments.size());
  for (std::size_t i = given; i < args.size(); ++i) args[i] = row.defaults[i];
  for (const auto& [name, value] : kwargs) {
    for (std::size_t i = 0; i < row.arguments.size(); ++i)
      if (row.arguments[i] == name) args[i] = value;
    // Keywords without a column (device, layout, pin_memory …) do not change memory.
  }
  Args a(row.name, std::move(args));
  if (run.autocast && row.autocast != Autocast::none) {
    {
      // Casts stand before the op: they are made even where a recomputation stops inside of it.
      Restore<bool> made(run.phantom, false);
      cast_arguments(run, row, a);
    }
    // Inside a listed op autocast is off, as the dispatcher excludes its key.
    Restore<bool> off(run.autocast, false);
    return row.kernel(run, a);
  }
  return row.kernel(run, a);
}

}  // namespace memplan
