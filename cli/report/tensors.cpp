#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "cli/report/report.h"

namespace memplan::cli {

namespace {

struct Row {
  const TensorRow* first = nullptr;
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  std::string label;     ///< of the first
  bool several = false;  ///< others have other labels
};

std::string label_of(const TensorRow& t) {
  const std::string name =
      t.name.starts_with("aten::") ? t.name.substr(6) : t.name;  // an op's result without a name of its own
  // A parameter's name holds its module; what an op made is told by module and name.
  if (t.module.empty() || t.category == "workspaces" || name.find('.') != std::string::npos ||
      t.category == "parameters" || t.category == "optimizer state")
    return name;
  return t.module + " " + name;
}

/// In the words of a narrow column: the kind of the tensor stands beside it.
std::string reason_text(const TensorRow& t) {
  if (t.reason.starts_with("aten::")) return "backward of " + t.reason.substr(6);
  if (t.category == "parameters" || t.category == "buffers" || t.category == "optimizer state") return "the whole run";
  static constexpr std::pair<std::string_view, const char*> shorter[] = {
      {"in use by the running op", "the running op"},
      {"the name of the model's output", "the model's output"},
      {"kept by PyTorch for every thread and stream", "kept for the thread"},
      {"kept by PyTorch until the process ends", "the whole run"}};
  for (const auto& [reason, words] : shorter)
    if (t.reason == reason) return words;
  if (t.category == "gradients" && t.reason.starts_with("gradient, ")) return t.reason.substr(10);
  return t.reason;
}

}  // namespace

std::string common_root(const std::vector<TensorRow>& tensors) {
  const std::string root = "model.";
  const auto below = [&](const std::string& path) { return path.empty() || path.starts_with(root); };
  const bool all = std::all_of(tensors.begin(), tensors.end(), [&](const TensorRow& t) {
    return below(t.module) && (t.category != "parameters" || below(t.name));
  });
  return all ? root : std::string();
}

std::vector<TensorRow> rows_of(const std::vector<LiveTensor>& tensors) {
  std::vector<TensorRow> rows;
  rows.reserve(tensors.size());
  for (const LiveTensor& t : tensors)
    rows.push_back({t.name, t.dtype, name_of(t.category), t.module, t.reason, t.sizes, t.requested.count});
  return rows;
}

std::vector<TensorRow> rows_of(const Json& tensors_at_peak) {
  std::vector<TensorRow> rows;
  rows.reserve(tensors_at_peak.size());
  for (const Json& t : tensors_at_peak)
    rows.push_back({t.at("name"), t.at("dtype").is_null() ? std::string() : t.at("dtype").get<std::string>(),
                    t.at("category"), t.at("module"), t.at("reason"), t.at("shape"), t.at("bytes")});
  return rows;
}

std::vector<TensorGroup> groups_of(const std::vector<TensorRow>& tensors) {
  std::unordered_map<std::string, std::size_t> known;
  std::vector<Row> rows;
  const std::string root = common_root(tensors);
  std::string key;
  for (const TensorRow& t : tensors) {
    std::string label = label_of(t);
    key = without_numbers(label);
    for (const std::int64_t n : t.sizes) key += '\n', key.append(reinterpret_cast<const char*>(&n), sizeof n);
    for (const std::string* text : {&t.dtype, &t.category, &t.reason}) key += '\n', key += *text;
    const auto [at, fresh] = known.try_emplace(key, rows.size());
    if (fresh) rows.push_back({&t, 0, 0, label});
    Row& row = rows[at->second];
    ++row.count;
    row.bytes += t.bytes;
    row.several = row.several || label != row.label;
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) { return x.bytes > y.bytes; });
  std::vector<TensorGroup> out;
  for (const Row& row : rows) {
    const TensorRow& t = *row.first;
    out.push_back({row.count, row.bytes, t.category,
                   clean(row.several ? without_numbers(row.label) : row.label)
                       .substr(row.label.starts_with(root) ? root.size() : 0),
                   t.dtype.empty() ? "" : shape_text(t.sizes), t.dtype, clean(reason_text(t))});
  }
  return out;
}

std::string tensor_table(const std::vector<TensorGroup>& groups, std::size_t rows, const Style& style) {
  const std::size_t limit = rows == 0 ? groups.size() : rows;
  Table table;
  table.head = {"SIZE", "COUNT", "KIND", "TENSOR", "SHAPE", "WHY ALIVE"};
  table.right = {true, true, false, false, false, false};
  table.flexible = {3, 5};
  for (std::size_t i = 0; i < groups.size() && i < limit; ++i) {
    const TensorGroup& g = groups[i];
    table.rows.push_back({to_human(Bytes(g.bytes)), g.count > 1 ? fmt::format("{}{}", style.times(), g.count) : "",
                          g.category, g.name, g.dtype.empty() ? "" : g.shape + " " + g.dtype, g.reason});
  }
  if (style.width < 80) {  // no room for shapes
    constexpr int shape = 4;
    table.head.erase(table.head.begin() + shape);
    table.right.erase(table.right.begin() + shape);
    for (auto& row : table.rows) row.erase(row.begin() + shape);
    table.flexible = {3, 4};
  }
  std::string out = table.print(style);
  if (groups.size() > limit) {
    std::int64_t rest = 0;
    for (std::size_t i = limit; i < groups.size(); ++i) rest += groups[i].bytes;
    out += style.paint(fmt::format("  {} {} more rows, {} (--top 0 shows all)", style.ellipsis(), groups.size() - limit,
                                   to_human(Bytes(rest))),
                       Paint::dim) +
           "\n";
  }
  return out;
}

}  // namespace memplan::cli
