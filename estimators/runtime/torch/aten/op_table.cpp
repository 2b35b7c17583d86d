#include "estimators/runtime/torch/aten/op_table.h"

#include <fmt/format.h>

#include <cstdlib>
#include <variant>

#include "estimators/base/text.h"
#include "estimators/runtime/torch/aten/autocast.h"
#include "estimators/runtime/torch/aten/collectives.h"
#include "estimators/runtime/torch/aten/fp8.h"
#include "estimators/runtime/torch/aten/ops.h"
#include "estimators/runtime/torch/profile/profile.h"

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

Row make_row(std::string_view name, std::string_view schema, Kernel kernel, Fidelity fidelity) {
  Row row;
  row.name = name;
  row.kernel = kernel;
  row.fidelity = fidelity;
  while (!schema.empty()) {
    const auto comma = schema.find(',');
    std::string_view item = trim(schema.substr(0, comma));
    schema = comma == std::string_view::npos ? std::string_view{} : schema.substr(comma + 1);
    const auto equals = item.find('=');
    row.arguments.emplace_back(trim(item.substr(0, equals)));
    row.defaults.push_back(equals == std::string_view::npos ? Value{} : parse_default(trim(item.substr(equals + 1))));
  }
  return row;
}

}  // namespace

Row& OpTable::add(std::string_view name, std::string_view schema, Kernel kernel, Fidelity fidelity) {
  if (!index_.emplace(name, rows_.size()).second) fail(ErrorKind::internal, "two rows for " + std::string(name));
  return rows_.emplace_back(make_row(name, schema, kernel, fidelity));
}

Row& OpTable::replace(std::string_view name, std::string_view schema, Kernel kernel, Fidelity fidelity) {
  const auto it = index_.find(name);
  if (it == index_.end()) fail(ErrorKind::internal, "no row to replace: " + std::string(name));
  return rows_[it->second] = make_row(name, schema, kernel, fidelity);
}

void OpTable::also(std::string_view name, std::string_view row) {
  const auto it = index_.find(row);
  if (it == index_.end()) fail(ErrorKind::internal, "no row to name again: " + std::string(row));
  index_.emplace(name, it->second);
}

const Row* OpTable::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &rows_[it->second];
}

const Row& OpTable::at(std::string_view name) const {
  const Row* row = find(name);
  if (!row) fail(ErrorKind::internal, "no row for " + std::string(name));
  return *row;
}

OpTable base_ops() {
  OpTable table;
  for (const auto add_family : {register_creation,
                                register_views,
                                register_arithmetic,
                                register_elementwise,
                                register_selection,
                                register_reductions,
                                register_matmul,
                                register_products,
                                register_convolution,
                                register_normalization,
                                register_pooling,
                                register_spatial,
                                register_softmax,
                                register_attention,
                                register_rearrange,
                                register_multihead_attention,
                                register_indexing,
                                register_scatter,
                                register_sorting,
                                register_losses,
                                register_spectral,
                                register_triangular,
                                register_recurrent,
                                register_symbolic,
                                register_statistics,
                                register_quantized,
                                register_fp8,
                                register_collectives,
                                register_loss_parallel,
                                register_factories,
                                register_quantiles,
                                register_composites,
                                register_linear_algebra,
                                register_matrix_functions,
                                register_margin_losses,
                                register_short_time,
                                register_strided,
                                register_other_names})
    add_family(table);
  return table;
}

namespace {

/// What a row gets is of the file: an argument of another type than the op has is no defect of the row.
ValueList run_row(Run& run, const Row& row, Args& a) {
  try {
    return row.kernel(run, a);
  } catch (const std::bad_variant_access&) {
    fail_input(fmt::format("an argument of {} is of another type than the op takes", row.name), row.name,
               "the model file describes a call that PyTorch would refuse too");
  }
}

}  // namespace

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
  Args a(row, std::move(args));
  if (run.autocast && row.autocast != Autocast::none) {
    {
      // Casts stand before the op: they are made even where a recomputation stops inside of it.
      ScopedValue<bool> made(run.phantom, false);
      cast_arguments(run, row, a);
    }
    // Inside a listed op autocast is off, as the dispatcher excludes its key.
    ScopedValue<bool> off(run.autocast, false);
    return run_row(run, row, a);
  }
  return run_row(run, row, a);
}

ValueList call_op(Run& run, std::string_view name, std::vector<Value> args) {
  return call_op(run, run.profile.ops->at(name), std::move(args), {});
}

Tensor op::call(Run& run, std::string_view name, std::vector<Value> args) {
  return call_op(run, name, std::move(args))[0].tensor();
}

const Row& row_named(const Run& run, std::string_view name) { return run.profile.ops->at(name); }

}  // namespace memplan
