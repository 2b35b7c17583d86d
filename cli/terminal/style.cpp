#include "cli/terminal/style.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "cli/flags/spelling.h"

namespace memplan::cli {

namespace {

const char* code_of(Paint paint) {
  switch (paint) {
    case Paint::none:
      return "";
    case Paint::bold:
      return "\033[1m";
    case Paint::dim:
      return "\033[2m";
    case Paint::green:
      return "\033[1;32m";
    case Paint::yellow:
      return "\033[1;33m";
    case Paint::red:
      return "\033[1;31m";
    case Paint::cyan:
      return "\033[36m";
  }
  return "";
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// The locale as POSIX resolves it: the first that is set of LC_ALL, LC_CTYPE, LANG.
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = environment(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return true;
}

/// Length of the UTF-8 sequence at `at`, and its code point; 0 when it is not one.
std::size_t decode(std::string_view s, std::size_t at, std::uint32_t& point) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    point = first;
    return 1;
  }
  const std::size_t length = first >= 0xF0 && first < 0xF5   ? 4
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xC2 && first < 0xE0 ? 2
                                                             : 0;
  if (length == 0 || at + length > s.size()) return 0;
  point = first & (0xFF >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3F);
  }
  static constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  return point < least[length] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000) ? 0 : length;
}

std::string shorten_end(std::string_view text, std::size_t limit, const Style& style) {
  if (columns(text) <= limit) return std::string(text);
  const std::string_view dots = style.ellipsis();
  std::size_t room = limit > columns(dots) ? limit - columns(dots) : 0, at = 0;
  while (at < text.size() && (room > 0 || (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80))
    if ((static_cast<unsigned char>(text[at++]) & 0xC0) != 0x80) --room;
  return fmt::format("{}{}", text.substr(0, at), dots);
}

bool harmful(std::uint32_t p) {
  return p < 0x20 || (p >= 0x7F && p < 0xA0) || p == 0x200E || p == 0x200F || (p >= 0x2028 && p <= 0x202E) ||
         (p >= 0x2066 && p <= 0x2069) || p == 0xFEFF;
}

/// Printable ASCII without a mark of a field or a command of CI: nothing in it that clean() would change.
bool is_plain(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c < 0x20 || c > 0x7E || (c == ':' && (i == 0 || text[i - 1] == ' ')) || text.substr(i, 3) == "##[")
      return false;
  }
  return true;
}

}  // namespace

std::string Style::paint(std::string_view text, Paint paint) const {
  if (!colour || paint == Paint::none) return std::string(text);
  return fmt::format("{}{}\033[0m", code_of(paint), text);
}

Style make_style(const Options& options) {
  Style style;
  const bool terminal = options.output.empty() && isatty(STDOUT_FILENO);
  style.colour = options.color == When::always || (options.color == When::automatic && terminal &&
                                                   environment("NO_COLOR").empty() && environment("TERM") != "dumb");
  style.ascii = options.ascii || (terminal && !locale_is_utf8());
  if (options.width) {
    style.width = static_cast<std::size_t>(*options.width);
  } else if (terminal) {
    winsize size{};
    // COLUMNS wins, as in most programs; a pipe has no width, so that what it gets is the same everywhere.
    std::size_t columns = std::strtoul(environment("COLUMNS").c_str(), nullptr, 10);
    if (columns == 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
    if (columns > 0) style.width = std::clamp<std::size_t>(columns, 60, 100);
  }
  return style;
}

std::string clean(std::string_view message) {
  if (is_plain(message)) return std::string(message);
  const std::string words = as_flags(message);
  const std::string_view text = words;
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::uint32_t point = 0;
    const std::size_t length = decode(text, at, point);
    // Logs of CI services run what stands at the start of a line as "::command::" or anywhere as "##[command]".
    const bool starts = at == 0 || text[at - 1] == ' ';
    if (length == 0 || harmful(point) || (starts && text.substr(at, 2) == "::"))
      out += '?';
    else if (text.substr(at, 3) == "##[")
      out += "#?";
    else
      out.append(text.substr(at, length));
    at += std::max<std::size_t>(length, 1);
  }
  return out;
}

std::string clean_lines(std::string_view text) {
  std::string out;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out += clean(text.substr(at, end - at));
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string shorten(std::string_view text, std::size_t limit, const Style& style) {
  const std::size_t length = columns(text);
  if (length <= limit) return std::string(text);
  const std::string_view dots = style.ellipsis();
  const std::size_t room = limit > columns(dots) ? limit - columns(dots) : 0;
  const std::size_t head = room / 3, tail = room - head;
  // Cut between code points: find the byte offsets of `head` columns from the left and `tail` from the right.
  std::size_t at = 0, seen = 0, left = 0, right = text.size();
  for (; at <= text.size(); ++at) {
    if (at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80) {
      if (seen == head) left = at;
      if (seen == length - tail) right = at;
      ++seen;
    }
  }
  return fmt::format("{}{}{}", text.substr(0, left), dots, text.substr(right));
}

std::string wrap(std::string_view text, std::size_t width, std::size_t indent, std::size_t first_used) {
  std::string out;
  std::size_t used = first_used;
  bool starts_line = true;
  for (std::size_t at = 0; at < text.size(); starts_line = false) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    const std::size_t size = columns(word);
    if (!starts_line && used + 1 + size > width) {
      out.erase(out.find_last_not_of(' ') + 1);  // two blanks in a row: none at the end of a line
      out += '\n' + std::string(indent, ' ');
      used = indent;
    } else if (!starts_line) {
      out += ' ';
      ++used;
    }
    out += word;
    used += size;
    at = end + 1;
  }
  return out;
}

std::string Table::print(const Style& style) const {
  std::vector<std::size_t> widths(right.size(), 0);
  auto measure = [&](const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  };
  measure(head);
  for (const auto& row : rows) measure(row);
  std::size_t total = 2 + 2 * (widths.size() - 1) + std::accumulate(widths.begin(), widths.end(), std::size_t{0});
  // The widest of the flexible columns gives way first, so that none is cut to nothing while another is generous.
  while (total > style.width && !flexible.empty()) {
    std::size_t& widest = widths[*std::max_element(
        flexible.begin(), flexible.end(), [&](std::size_t a, std::size_t b) { return widths[a] < widths[b]; })];
    if (widest <= 8) break;
    --widest, --total;
  }
  std::string out;
  auto line = [&](const std::vector<std::string>& row, Paint paint) {
    std::string text = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      // The last column holds sentences, whose begin says most; names differ at both ends.
      const std::string cell =
          i + 1 == row.size() ? shorten_end(row[i], widths[i], style) : shorten(row[i], widths[i], style);
      const std::string pad(widths[i] - std::min(widths[i], columns(cell)), ' ');
      text += ' ';
      text += right[i] ? pad + cell : cell + pad;
      if (i + 1 < row.size()) text += ' ';
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    out += style.paint(text, paint) + '\n';
  };
  if (!head.empty()) line(head, Paint::dim);
  for (const auto& row : rows) line(row, Paint::none);
  return out;
}

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string short_count(std::int64_t number) {
  const double n = static_cast<double>(number);
  if (n >= 999.95e6) return fmt::format("{:.2f} B", n / 1e9);
  if (n >= 999.95e3) return fmt::format("{:.1f} M", n / 1e6);
  return grouped(number);
}

Column add_up(const std::vector<Bytes>& parts) {
  std::int64_t total = 0;
  for (Bytes part : parts) total += part.count;
  const int power = total >= (1LL << 30) ? 30 : total >= (1LL << 20) ? 20 : total >= (1LL << 10) ? 10 : 0;
  const int decimals = power == 0 ? 0 : power == 30 && total < (10LL << 30) ? 3 : 2;
  const std::int64_t scale = decimals == 3 ? 1000 : decimals == 2 ? 100 : 1;
  const auto in_units = [&](std::int64_t bytes) {
    return static_cast<double>(bytes) * static_cast<double>(scale) / std::ldexp(1.0, power);
  };
  std::vector<std::int64_t> units;
  std::vector<std::pair<double, std::size_t>> remainders;
  std::int64_t missing = std::llround(in_units(total));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double exact = in_units(parts[i].count);
    units.push_back(static_cast<std::int64_t>(std::floor(exact)));
    missing -= units.back();
    remainders.emplace_back(exact - std::floor(exact), i);
  }
  std::stable_sort(remainders.begin(), remainders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = 0; i < remainders.size() && missing > 0; ++i, --missing) ++units[remainders[i].second];
  Column column;
  column.unit = power == 30 ? "GiB" : power == 20 ? "MiB" : power == 10 ? "KiB" : "B";
  const auto print = [&](std::int64_t n) {
    return fmt::format("{:.{}f}", static_cast<double>(n) / static_cast<double>(scale), decimals);
  };
  std::int64_t sum = 0;
  for (std::int64_t n : units) {
    column.parts.push_back(print(n));
    sum += n;
  }
  column.total = print(sum);
  return column;
}

}  // namespace memplan::cli
