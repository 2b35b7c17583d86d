#include "estimators/frontends/onnx/folded.h"

#include <cmath>
#include <utility>

#include "estimators/frontends/onnx/fx_text.h"
#include "estimators/frontends/onnx/metadata.h"

namespace memplan::onnx_format {

std::vector<std::string_view> folded_from(const Graph& graph, GraphValueId id) {
  constexpr const char* key = "pkg.onnxscript.optimizer.folded_from";
  std::string_view text = note_at(graph.values[static_cast<std::size_t>(id)].metadata, key);
  if (const auto stored = graph.initializers.find(id); text.empty() && stored != graph.initializers.end())
    text = note_at(stored->second.metadata, key);
  return parse_python_strings(text);
}

std::string_view op_of_name(std::string_view name) {
  const auto end = name.find_last_not_of("0123456789");
  return end != name.npos && end + 1 < name.size() && name[end] == '_' ? name.substr(0, end) : name;
}

std::vector<Arg> folded_arguments(std::string_view op, Arg parameter, const std::vector<std::int64_t>& sizes) {
  std::vector<Arg> args{std::move(parameter)};
  if (op.ends_with(".Tensor")) args.push_back({1.0});
  if (op == "aten::view" || op == "aten::expand") {
    Arg::List list;
    for (std::int64_t n : sizes) list.push_back({n});
    args.push_back({std::move(list)});
  }
  if (op == "aten::select.int") args.insert(args.end(), 2, Arg{std::int64_t{0}});
  return args;
}

std::vector<std::int64_t> sizes_before(std::string_view op, std::vector<std::int64_t> sizes) {
  if (op == "aten::expand" && !sizes.empty()) sizes[0] = 1;
  if (op == "aten::select.int") sizes.insert(sizes.begin(), 1);
  return sizes;
}

const char* folded_op(std::string_view name) {
  static constexpr std::pair<std::string_view, const char*> ops[] = {
      {"add", "aten::add.Tensor"},   {"sub", "aten::sub.Tensor"},  {"mul", "aten::mul.Tensor"},
      {"div", "aten::div.Tensor"},   {"exp", "aten::exp"},         {"neg", "aten::neg"},
      {"tanh", "aten::tanh"},        {"sigmoid", "aten::sigmoid"}, {"softplus", "aten::softplus"},
      {"log", "aten::log"},          {"view", "aten::view"},       {"reshape", "aten::view"},
      {"unsqueeze", "aten::view"},   {"squeeze", "aten::view"},    {"permute", "aten::view"},
      {"transpose", "aten::view"},   {"t", "aten::view"},          {"expand", "aten::expand"},
      {"select", "aten::select.int"}};
  name = op_of_name(name);
  for (const auto& [stem, op] : ops)
    if (name == stem) return op;
  return nullptr;
}

bool changes_elements(std::string_view name) {
  const char* op = folded_op(name);
  return op && op != std::string_view("aten::view") && op != std::string_view("aten::expand") &&
         op != std::string_view("aten::select.int");
}

std::optional<Step> step_before(std::string_view result, const std::vector<std::string_view>& from) {
  std::optional<Step> found;
  for (const std::string_view name : from) {
    if (!changes_elements(name)) continue;
    if (op_of_name(name) == op_of_name(result)) continue;  // a step of the result's own function
    if (found) return std::nullopt;
    found = Step{name, folded_op(name)};
  }
  return found;
}

std::vector<std::vector<std::int64_t>> joined_sizes(const std::vector<std::int64_t>& sizes, std::size_t count) {
  const auto n = static_cast<std::int64_t>(count);
  std::size_t d = 0;
  while (d + 1 < sizes.size() && sizes[d] < n) ++d;
  std::vector<std::vector<std::int64_t>> out(count, sizes);
  if (sizes.empty() || sizes[d] < n) return {};
  const bool equal = sizes[d] % n == 0;
  for (auto& part : out) part[d] = equal ? sizes[d] / n : 1;
  if (!equal) out.back()[d] = sizes[d] - (n - 1);
  return out;
}

std::int64_t rows_of_pairs(std::int64_t pairs) {
  const auto root = [](std::int64_t n) {
    const auto r = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(n))));
    return r * r == n ? r : 0;
  };
  const std::int64_t positions = root(pairs);
  if (positions == 0) return pairs;
  if (const std::int64_t side = root(positions)) return (2 * side - 1) * (2 * side - 1);
  if (const std::int64_t side = root(positions - 1)) return (2 * side - 1) * (2 * side - 1) + 3;
  return 2 * positions - 1;
}

}  // namespace memplan::onnx_format
