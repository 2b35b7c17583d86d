#include "cli/report/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/report/markdown_blocks.h"

namespace memplan::cli {

std::string md_code(std::string_view text, std::size_t limit) {
  std::string out, fence = "`";
  const std::string cut = shorten(text, limit, Style{});
  for (const char c : cut) {
    if (c == '`') fence = "``";
    out += c == '|' ? std::string("\\|") : std::string(1, c);
  }
  // Two backticks in a row would end the longer fence.
  for (std::size_t at = out.find("``"); at != std::string::npos; at = out.find("``", at)) out.replace(at, 2, "` ");
  if (out.empty()) return "–";
  const bool pad = fence.size() > 1 || out.front() == ' ';
  return fence + (pad ? " " : "") + out + (pad ? " " : "") + fence;
}

std::string md_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\`*_{}[]<>|~#&!").find(c) != std::string_view::npos) out += '\\';
    out += c;
    if (c == '@') out += "<!-- -->";  // nobody is called
  }
  return out;
}

std::string md_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '@')
      out += "@<!-- -->";
    else
      out += c;
  }
  return out;
}

std::string MdTable::print() const {
  if (rows.empty()) return {};
  std::string out = "|";
  for (const std::string& h : head) out += " " + h + " |";
  out += "\n|";
  for (const char a : align) out += a == 'r' ? " ---: |" : " --- |";
  out += "\n";
  for (const auto& row : rows) {
    out += "|";
    for (const std::string& c : row) out += " " + c + " |";
    out += "\n";
  }
  return out + "\n";
}

std::string MdPage::print() const {
  std::string out;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    constexpr std::size_t note = 100;
    if (i > 0 && out.size() + blocks[i].size() + note > md_limit) {
      out += fmt::format("… {} parts are left out here, the JSON report has them.\n", blocks.size() - i);
      break;
    }
    out += blocks[i];
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

std::string render_markdown(const Json& document, const View& view) {
  const std::string kind = document.value("kind", "report");
  return kind == "check"  ? check_md(document, view)
         : kind == "diff" ? diff_md(document, view)
                          : report_md(document, view);
}

}  // namespace memplan::cli
