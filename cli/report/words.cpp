#include "cli/report/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "estimators/base/bytes.h"
#include "estimators/base/shell.h"
#include "estimators/estimate/basis.h"

namespace memplan::cli {

std::string text_of(const Json& object, std::string_view member) {
  return object.at(std::string(member)).get<std::string>();
}

std::string human(std::int64_t bytes) { return to_human(Bytes(bytes)); }

std::string human_change(std::int64_t bytes) {
  if (bytes == 0) return "0 B";
  return (bytes > 0 ? "+" : "-") + to_human(Bytes(bytes > 0 ? bytes : -bytes));
}

const char* origin_words(std::string_view origin) {
  return origin == "assumed" ? " (assumed)" : origin == "file" ? " (the file's)" : "";
}

const char* headline_of(std::string_view verdict) {
  if (verdict == "fits") return "FITS";
  if (verdict == "tight") return "TIGHT";
  if (verdict == "no-fit") return "DOES NOT FIT";
  return "MAY NOT FIT";
}

std::string part_name(const std::string& category) {
  static constexpr std::array words{
      Named<Part>{"buffers of the modules", Part::buffers},
      Named<Part>{"library workspaces", Part::workspaces},
      Named<Part>{"input batch", Part::batch},
      Named<Part>{"model outputs", Part::outputs},
      Named<Part>{"rounding of blocks", Part::rounding},
      Named<Part>{"cached by the allocator", Part::cached},
      Named<Part>{"CUDA context and libraries", Part::context},
      Named<Part>{"NCCL's own buffers", Part::nccl},
  };
  if (const auto part = value_in(part_names, category))
    for (const auto& row : words)
      if (row.value == *part) return row.name;
  return category;
}

std::string setup_words(const Json& s) {
  std::string words = fmt::format("{}  {}", text_of(s, "mode"), text_of(s, "precision"));
  if (s.contains("weights")) words += fmt::format(" (weights {})", text_of(s, "weights"));
  std::string strategies;
  if (s.contains("strategies"))
    for (const Json& word : s.at("strategies")) strategies += "  " + word.get<std::string>();
  if (const auto r = s.find("runtime"); r != s.end()) {
    words += "  " + text_of(*r, "title");
    for (const auto& [name, value] : r->at("options").items())
      words += fmt::format("  {}={}", name, value.get<std::string>());
  }
  if (text_of(s, "mode") == "inference") return words + strategies;
  const Json& o = s.at("optimizer");
  std::string optimizer = text_of(o, "kind");
  if (optimizer == "none") optimizer = "no optimizer";
  if (o.at("amsgrad").get<bool>()) optimizer += " amsgrad";
  if (o.at("momentum").get<double>() > 0) optimizer += fmt::format(" momentum {:g}", o.at("momentum").get<double>());
  if (text_of(o, "implementation") != "auto") optimizer += fmt::format(" ({})", text_of(o, "implementation"));
  words += "  " + optimizer;
  if (const std::int64_t parts = s.at("accumulate"); parts > 1) words += fmt::format("  {} micro-batches", parts);
  if (s.at("clip_grad_norm").get<bool>()) words += "  clipping";
  if (!s.at("checkpoint").empty()) words += "  checkpointing";
  if (!s.at("frozen").empty()) words += "  partly frozen";
  if (const auto p = s.find("parallel"); p != s.end()) words += "  " + text_of(*p, "description");
  return words + strategies;
}

std::string peak_place(const Json& document) {
  const Json& peak = document.at("peak");
  const Json& steps = document.at("steps");
  std::string text =
      fmt::format("step {} of {}, {}", peak.at("step").get<std::int64_t>(),
                  steps.empty() ? 0 : steps.back().at("step").get<std::int64_t>(), text_of(peak, "phase"));
  if (const std::string op = text_of(peak, "op"); !op.empty()) text += ", " + op;
  if (const std::string module = text_of(peak, "module"); !module.empty()) text += " in " + module;
  return text;
}

std::string file_name(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string shape_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (std::int64_t s : sizes) text += fmt::format("{}{}", text.empty() ? "" : "x", s);
  return text.empty() ? "scalar" : text;
}

std::string without_numbers(std::string_view name) {
  std::string out;
  for (std::size_t at = 0; at < name.size();) {
    if (!std::isdigit(static_cast<unsigned char>(name[at]))) {
      out += name[at++];
      continue;
    }
    while (at < name.size() && std::isdigit(static_cast<unsigned char>(name[at]))) ++at;
    out += '*';
  }
  return out;
}

std::vector<NamedRow> merged_rows(const Json& list, const char* member) {
  std::map<std::string, NamedRow> groups;
  for (const Json& r : list) {
    const std::string name = text_of(r, member), category = r.value("category", "");
    // "layer1.conv" and "layer2.conv" may differ; only an index between dots names one layer of many.
    std::string key;
    for (std::size_t begin = 0; begin <= name.size();) {
      const std::size_t end = std::min(name.find('.', begin), name.size());
      const std::string part = name.substr(begin, end - begin);
      key += (begin ? "." : "") +
             (!part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); })
                  ? std::string("*")
                  : part);
      begin = end + 1;
    }
    NamedRow& g = groups[key + "\n" + category];
    g.name = g.count == 0 ? name : key;
    g.state = g.count == 0 || g.state == diff_state_of(r) ? diff_state_of(r) : DiffState::mixed;
    ++g.count;
    g.bytes += r.value("bytes", std::int64_t{0});
    g.base += r.value("base_bytes", std::int64_t{0}), g.head += r.value("head_bytes", std::int64_t{0});
    g.delta += r.value("delta_bytes", std::int64_t{0});
  }
  std::vector<NamedRow> rows;
  for (auto& [key, g] : groups) rows.push_back(std::move(g));
  std::stable_sort(rows.begin(), rows.end(), [](const NamedRow& a, const NamedRow& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : std::abs(a.delta) > std::abs(b.delta);
  });
  return rows;
}

std::string command_of(const Json& document, const std::vector<std::string_view>& without, const std::string& with) {
  const auto replaced = [&](const std::string& flag) {
    if (std::find(without.begin(), without.end(), flag) != without.end()) return true;
    if ((flag == "--amp" || flag == "--precision") &&
        (with.find("--amp ") != std::string::npos || with.find("--precision ") != std::string::npos))
      return true;
    return (" " + with + " ").find(" " + flag + " ") != std::string::npos;
  };
  const Json& command = document.at("command");
  std::string words = "memplan " + shell_word(text_of(command, "model"));
  bool skips = false;
  for (const Json& word : command.at("flags")) {
    const auto& text = word.get_ref<const std::string&>();
    const bool flag = text.starts_with("--");
    if (flag) skips = replaced(text);
    if (!skips) words += " " + shell_word(text);
  }
  return with.empty() ? words : words + " " + with;
}

std::string next_command(const Json& document) {
  const Json& summary = document.at("summary");
  const Json& also = document.at("alternatives");
  const Json& cards = also.at("cards");
  if (summary.at("verdict").is_null())
    return command_of(document, {}, fmt::format("--gpu {}", cards.empty() ? "80GB" : text_of(cards.front(), "key")));
  const std::string verdict = text_of(summary, "verdict");
  if (verdict == "unknown")
    return fmt::format("memplan ops {} --unsupported", shell_word(text_of(document.at("command"), "model")));
  const Json& largest = also.at("largest_batch");
  if (verdict == "no-fit" && !largest.is_null() && largest.at("batch").get<std::int64_t>() > 0)
    return command_of(document, {"--batch"}, fmt::format("--batch {}", largest.at("batch").get<std::int64_t>()));
  return "memplan explain " + command_of(document).substr(std::string_view("memplan ").size());
}

}  // namespace memplan::cli
