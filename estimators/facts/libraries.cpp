#include "estimators/facts/libraries.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "estimators/base/error.h"
#include "estimators/base/glob.h"

namespace memplan::embedded {
std::string_view libraries_modules_json();
}

namespace memplan {

namespace {

using FactTable = std::map<std::string, std::vector<LibraryFact>, std::less<>>;

const FactTable& fact_table() {
  static const FactTable table = [] {
    FactTable out;
    const auto json = nlohmann::json::parse(embedded::libraries_modules_json());
    for (const auto& [fact, meaning] : json["facts"].items()) out[fact];
    for (const auto& row : json["rows"]) {
      LibraryFact f;
      f.library = row.at("library");
      f.fact = row.at("fact");
      f.function = row.contains("function");
      f.subject = row.at(f.function ? "function" : "class");
      f.child = row.value("child", "");
      f.detail = row.value("detail", "");
      out.at(f.fact).push_back(std::move(f));
    }
    return out;
  }();
  return table;
}

}  // namespace

const std::vector<LibraryFact>& library_facts(std::string_view fact) {
  const auto it = fact_table().find(fact);
  if (it == fact_table().end()) fail(ErrorKind::internal, fmt::format("no table knows of the fact '{}'", fact));
  return it->second;
}

const LibraryFact* fact_of_class(std::string_view fact, std::string_view module_class) {
  for (const LibraryFact& f : library_facts(fact))
    if (!f.function && f.child.empty() && matches_glob(module_class, f.subject)) return &f;
  return nullptr;
}

const LibraryFact* fact_of_child(std::string_view fact, std::string_view owner_class, std::string_view path) {
  for (const LibraryFact& f : library_facts(fact))
    if (!f.child.empty() && matches_glob(owner_class, f.subject) && matches_glob(path, f.child)) return &f;
  return nullptr;
}

bool is_in_library(const LibraryFact& fact, std::string_view source) {
  return source.starts_with(fact.library) && source.substr(fact.library.size()).starts_with('/');
}

namespace {

/// The first row whose function stands in a line of its library's own code, with `sign` behind it.
const LibraryFact* fact_in(std::string_view fact, std::string_view source, char sign) {
  for (const LibraryFact& f : library_facts(fact))
    if (f.function && is_in_library(f, source) && source.find(f.subject + sign) != source.npos) return &f;
  return nullptr;
}

}  // namespace

const LibraryFact* fact_of_line(std::string_view fact, std::string_view source) { return fact_in(fact, source, '('); }

const LibraryFact* fact_of_file(std::string_view fact, std::string_view source) { return fact_in(fact, source, ':'); }

}  // namespace memplan
