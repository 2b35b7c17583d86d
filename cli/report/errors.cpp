#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/report/document.h"
#include "cli/report/report.h"

namespace memplan::cli {

const char* kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::input:
      return "input";
    case ErrorKind::baseline:
      return "baseline";
    case ErrorKind::internal:
      return "internal";
  }
  return "internal";
}

int exit_code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return 2;
    case ErrorKind::input:
      return 3;
    case ErrorKind::baseline:
      return 4;
    case ErrorKind::internal:
      return 70;
  }
  return 70;
}

std::string text_error(const Error& error, const Style& style) {
  std::string text = style.paint("error", Paint::red) + ": ";
  if (!error.where.empty() && error.what.find(error.where) == std::string::npos) text += clean(error.where) + ": ";
  text += clean(error.what) + ".";
  std::string hint = clean(error.hint);
  if (!hint.empty() && hint[0] >= 'a' && hint[0] <= 'z' && !hint.starts_with("memplan "))
    hint[0] = static_cast<char>(hint[0] - 'a' + 'A');
  if (!hint.empty()) text.append(" ").append(hint);
  if (!hint.empty() && hint.back() != '.' && hint.back() != '?' && hint.find(": memplan ") == std::string::npos)
    text.push_back('.');
  text.push_back('\n');
  return text;
}

std::string json_error(const Error& error, int code) {
  nlohmann::ordered_json j;
  j["schema_version"] = report_schema_version;
  j["error"] = {{"code", code},
                {"kind", kind_name(error.kind)},
                {"message", clean(error.what)},
                {"where", clean(error.where)},
                {"hint", clean(error.hint)}};
  return j.dump(2) + "\n";
}

}  // namespace memplan::cli
