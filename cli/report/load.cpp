// Saved reports: from this version or an earlier one, from this machine or from anybody.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/report/document.h"
#include "estimators/base/text_file.h"

namespace memplan::cli {

namespace {

constexpr std::int64_t largest_file = std::int64_t{1} << 30;
constexpr int deepest = 64;  // the schema needs less than 10; dump() recurses

/// Names in a saved file may have been edited to attack a terminal as those of a model.
void clean_strings(Json& value) {
  if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    text = clean(text);
  } else if (value.is_structured()) {
    for (Json& member : value) clean_strings(member);
  }
}

bool too_deep(const std::string& json) {
  int level = 0;
  bool text = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (text) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        text = false;
    } else if (c == '"')
      text = true;
    else if (c == '[' || c == '{') {
      if (++level > deepest) return true;
    } else if (c == ']' || c == '}')
      --level;
  }
  return false;
}

[[noreturn]] void refuse(ErrorKind kind, const std::string& what, const std::string& path, const char* hint) {
  fail(kind, what, path, hint);
}

/// Looks at what readers rely on, so that a damaged report is told here and not half-way through a comparison. Throws
/// what nlohmann throws.
void check_shape(const Json& report) {
  const auto text = [](const Json& value) { (void)value.get_ref<const std::string&>(); };
  const auto number = [](const Json& value) {
    if (!value.is_number_integer()) throw Json::type_error::create(302, "a size is not a whole number", &value);
  };
  text(report.at("tool").at("version")), text(report.at("input").at("path"));
  text(report.at("device").at("key")), number(report.at("device").at("context_bytes")),
      (void)report.at("device").at("given").get<bool>();
  text(report.at("setup").at("mode"));
  for (const char* name : {"peak_bytes", "low_bytes", "high_bytes"}) number(report.at("summary").at(name));
  for (const char* name : {"verdict", "limit_bytes", "headroom_bytes"}) (void)report.at("summary").at(name);
  for (const char* name : {"requested_bytes", "allocated_bytes", "reserved_bytes", "process_bytes"})
    number(report.at("counters").at(name));
  for (const Json& part : report.at("breakdown")) text(part.at("category")), number(part.at("bytes"));
  for (const Json& t : report.at("tensors_at_peak")) {
    for (const char* name : {"name", "module", "category", "producer", "reason"}) text(t.at(name));
    number(t.at("bytes")), (void)t.at("shape").get<std::vector<std::int64_t>>(), (void)t.at("dtype");
  }
}

/// What 1.0 did not have yet.
void complete(Json& document) {
  if (!document.contains("kind")) document["kind"] = "report";
  if (kind_of(document) == check_document)
    for (Json& target : document.at("targets"))
      if (!target.at("report").is_null()) complete(target.at("report"));
  if (kind_of(document) != report_document) return;
  check_shape(document);
  if (!document.contains("command")) {
    Json flags = Json::array();
    if (const Json& device = document.at("device"); device.at("given").get<bool>()) flags = {"--gpu", device.at("key")};
    document["command"] = {{"model", document.at("input").at("path")}, {"flags", flags}};
  }
  if (!document.contains("at_peak_by_module")) add_sums(document);
}

}  // namespace

DocumentKind kind_of(const Json& document) {
  const auto kind = document.find("kind");
  if (kind == document.end() || *kind == "report") return report_document;
  if (*kind == "check") return check_document;
  if (*kind == "diff") return diff_document;
  fail_input("the document is of a kind that this memplan does not know", {},
             "use the memplan that wrote it, or a newer one");
}

bool is_document(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char c = 0;
  while (file.get(c))
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return c == '{';
  return false;
}

Json load_document(const std::string& path, ErrorKind kind) {
  const char* again = kind == ErrorKind::baseline ? "write it again with memplan baseline write"
                                                  : "make the report again with --format json";
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    refuse(kind, fmt::format("the file cannot be read: {}", std::strerror(errno)), path, again);
  if (S_ISDIR(info.st_mode)) refuse(kind, "this is a folder, not a report", path, again);
  if (info.st_size > largest_file) refuse(kind, "the file is larger than 1 GiB, which no report is", path, again);
  const std::string content = text_of_file(path, kind, again);
  // Looked at before parsing: nlohmann's callback would do it while it parses, in quadratic time.
  Json document = too_deep(content) ? Json(nullptr) : Json::parse(content, nullptr, false);
  if (document.is_discarded() || !document.is_object())
    refuse(kind, "this is not a report of memplan: it is not a JSON object", path, again);
  const auto version = document.find("schema_version");
  if (version == document.end() || !version->is_string())
    refuse(kind, "this is not a report of memplan: it has no schema_version", path, again);
  const std::string text = clean(version->get<std::string>());
  if (!text.starts_with("1."))
    refuse(kind, fmt::format("the report is of schema version {}, and this memplan reads 1.x", text), path, again);
  if (document.contains("error")) refuse(kind, "this is the report of an error, not of an estimate", path, again);
  if (const auto command = document.find("command"); command != document.end() && command->is_string())
    refuse(kind,
           fmt::format("this is the answer of memplan {}, and only reports, gates and comparisons have other formats",
                       clean(command->get<std::string>())),
           path, "memplan suggest has --format md itself, memplan sweep --format csv");
  clean_strings(document);
  try {
    complete(document);
  } catch (const nlohmann::json::exception& error) {
    refuse(kind, fmt::format("the report lacks something or is damaged: {}", clean(error.what())), path, again);
  }
  return document;
}

}  // namespace memplan::cli
