#include "cli/calibration/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "cli/flags/toml.h"
#include "cli/terminal/style.h"
#include "estimators/base/error.h"
#include "estimators/companion/surroundings.h"

namespace memplan::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t largest_file = 1 << 16;
constexpr std::int64_t largest_card = std::int64_t{1} << 50;
constexpr std::size_t most_rows = 64;
constexpr const char* advice = "correct it, run memplan calibrate again, or leave it out with --calibration none";

/// Every value of a file: what it is called, where it goes.
struct Texts {
  const char* key;
  std::string CardProfile::*field;
};
constexpr Texts texts[] = {{"card", &CardProfile::card},        {"name", &CardProfile::name},
                           {"driver", &CardProfile::driver},    {"torch", &CardProfile::torch},
                           {"cuda", &CardProfile::cuda},        {"cudnn", &CardProfile::cudnn},
                           {"nccl", &CardProfile::nccl},        {"module_loading", &CardProfile::loading},
                           {"platform", &CardProfile::platform}};
struct Numbers {
  const char* key;
  int CardProfile::*field;
  std::int64_t least, most;
};
constexpr Numbers numbers[] = {{"compute_capability", &CardProfile::sm, 50, 999},
                               {"multiprocessors", &CardProfile::multiprocessors, 1, 4096},
                               {"threads_per_multiprocessor", &CardProfile::threads_per_multiprocessor, 128, 16384}};
struct Sizes {
  const char* table;
  const char* key;
  Bytes CardProfile::*field;
};
constexpr Sizes sizes[] = {
    {"memory", "total", &CardProfile::total},  {"memory", "nvidia_smi_total", &CardProfile::smi_total},
    {"memory", "free", &CardProfile::free},    {"context", "least", &CardProfile::least},
    {"context", "usual", &CardProfile::usual}, {"context", "most", &CardProfile::most}};
struct Lists {
  const char* key;
  Figures CardProfile::*field;
  const char* comment;
};
constexpr Lists lists[] = {
    {"library", &CardProfile::growth, "beside PyTorch's segments after the first use of each"},
    {"nccl_step", &CardProfile::nccl_growth, "what NCCL added to that, with one rank; not in the context"},
    {"asked", &CardProfile::asked, "what PyTorch's allocator takes, and its workspaces for a product of 256 x 256"}};

bool is_size(std::string_view table, std::string_view key) {
  return std::any_of(std::begin(sizes), std::end(sizes),
                     [&](const Sizes& s) { return table == s.table && key == s.key; });
}

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  CardProfile read(const toml::table& root) {
    check_keys(root);
    for (const Texts& t : texts) p_.*t.field = text(at(root, t.key), t.key);
    const toml::node& date = at(root, "date");
    if (!date.is_date()) refuse(date, "'date' is no date", "write it as 2026-11-22, without quotes");
    const auto d = *date.value<toml::date>();
    p_.date = fmt::format("{:04}-{:02}-{:02}", d.year, d.month, d.day);
    for (const Numbers& n : numbers) p_.*n.field = static_cast<int>(number(at(root, n.key), n.key, n.least, n.most));
    for (const Sizes& s : sizes) {
      const toml::node& table = at(root, s.table);
      if (!table.is_table()) refuse(table, fmt::format("'{}' is no table", s.table), advice);
      p_.*s.field = Bytes(number(at(*table.as_table(), s.key), s.key, 0, largest_card));
    }
    for (const Lists& l : lists) figures(root, l);
    check_figures(root);
    return std::move(p_);
  }

 private:
  [[noreturn]] void refuse(const toml::node& node, const std::string& what, const char* hint) const {
    fail(ErrorKind::usage, clean(what), fmt::format("{}:{}", clean(path_), node.source().begin.line), hint);
  }

  const toml::node& at(const toml::table& table, const char* key) const {
    const toml::node* node = table.get(key);
    if (!node) refuse(table, fmt::format("the profile lacks '{}'", key), advice);
    return *node;
  }

  std::string text(const toml::node& node, const char* key) const {
    const auto* value = node.as_string();
    if (!value || value->get().size() > 200 || value->get() != clean(value->get()))
      refuse(node, fmt::format("'{}' is no short text", key), advice);
    return value->get();
  }

  std::int64_t number(const toml::node& node, const std::string& key, std::int64_t least, std::int64_t most) const {
    const auto* value = node.as_integer();
    if (!value) refuse(node, fmt::format("'{}' is no whole number", key), advice);
    if (value->get() < least || value->get() > most)
      refuse(node, fmt::format("'{}' is {}, which no card has", key, value->get()), advice);
    return value->get();
  }

  void figures(const toml::table& root, const Lists& list) {
    const toml::node* node = root.get(list.key);
    if (!node) return;
    if (!node->is_array_of_tables() || node->as_array()->size() > most_rows)
      refuse(*node, fmt::format("'{}' is no short list of tables", list.key), advice);
    for (const toml::node& entry : *node->as_array()) {
      const toml::table& row = *entry.as_table();
      for (const auto& [key, value] : row)
        if (key != "after" && key != "bytes")
          refuse(value, fmt::format("'{}' is no key of [[{}]]", key.str(), list.key), advice);
      (p_.*list.field)
          .emplace_back(text(at(row, "after"), "after"), Bytes(number(at(row, "bytes"), "bytes", 0, largest_card)));
    }
  }

  void check_keys(const toml::table& root) const {
    const auto known = [](std::string_view key) {
      for (const Texts& t : texts)
        if (key == t.key) return true;
      for (const Numbers& n : numbers)
        if (key == n.key) return true;
      for (const Lists& l : lists)
        if (key == l.key) return true;
      return key == "format" || key == "date" || key == "memory" || key == "context";
    };
    if (number(at(root, "format"), "format", 0, std::numeric_limits<std::int64_t>::max()) != 1)
      refuse(*root.get("format"), "this version of memplan reads profiles of format 1", "run memplan calibrate again");
    for (const auto& [key, value] : root) {
      if (!known(key.str())) refuse(value, fmt::format("'{}' is no key of a profile", key.str()), advice);
      for (const char* name : {"memory", "context"})
        if (key == name && value.is_table())
          for (const auto& [inner, figure] : *value.as_table())
            if (!is_size(name, inner.str()))
              refuse(figure, fmt::format("'{}' is no key of [{}]", inner.str(), name), advice);
    }
  }

  void check_figures(const toml::table& root) const {
    if (!is_card_word(p_.card) || fs::path(path_).stem() != p_.card)
      refuse(*root.get("card"), fmt::format("'{}' is not the card that the file is named after", p_.card),
             "a profile lies in CARD.toml");
    if (p_.total < Bytes::mib(64)) refuse(*root.get("memory"), "'total' is less than any card has", advice);
    if (p_.least > p_.usual || p_.usual > p_.most || p_.most >= p_.total)
      refuse(*root.get("context"), "'least', 'usual', 'most' and the card's total are not in this order", advice);
  }

  std::string path_;
  CardProfile p_;
};

/// As a TOML string: what is neither a letter nor plain punctuation goes.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : clean(text)) out += c == '"' || c == '\\' ? '?' : c;
  return out + '"';
}

}  // namespace

bool is_card_word(const std::string& text) {
  return !text.empty() && text.size() <= 80 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

std::string profile_path(const std::string& card) {
  const std::string config = variable("XDG_CONFIG_HOME"), home = variable("HOME");
  const std::string folder = config.starts_with('/') ? config : home.starts_with('/') ? home + "/.config" : "";
  return folder.empty() ? folder : fmt::format("{}/memplan/gpus/{}.toml", folder, card);
}

std::string profile_text(const CardProfile& p) {
  std::string out = fmt::format(
      "# Written by memplan calibrate; estimates with --gpu {} take it (docs/hardware.md). Sizes are bytes.\n"
      "format = 1\ndate = {}\n",
      p.card, p.date);
  for (const Texts& t : texts) out += fmt::format("{} = {}\n", t.key, quoted(p.*t.field));
  for (const Numbers& n : numbers) out += fmt::format("{} = {}\n", n.key, p.*n.field);
  std::string_view table;
  for (const Sizes& s : sizes) {
    if (table != s.table) out += fmt::format("\n[{}]\n", table = s.table);
    out += fmt::format("{} = {}\n", s.key, (p.*s.field).count);
  }
  for (const Lists& l : lists)
    for (const auto& [after, bytes] : p.*l.field)
      out += fmt::format("\n{}[[{}]]\nafter = {}\nbytes = {}\n",
                         &after == &(p.*l.field).front().first ? fmt::format("# {}\n", l.comment) : "", l.key,
                         quoted(after), bytes.count);
  return out;
}

CardProfile read_profile(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) fail(ErrorKind::usage, "the profile cannot be read", clean(path), advice);
  if (size > largest_file) fail(ErrorKind::usage, "the profile is larger than 64 KiB", clean(path), advice);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return Reader(path).read(toml::parse(text, path));
  } catch (const toml::parse_error& e) {
    fail(ErrorKind::usage, clean(fmt::format("this is not TOML: {}", e.description())),
         fmt::format("{}:{}", clean(path), e.source().begin.line), advice);
  } catch (const std::runtime_error& e) {
    fail(ErrorKind::usage, fmt::format("this is not TOML: {}", e.what()), clean(path), advice);
  }
}

}  // namespace memplan::cli
