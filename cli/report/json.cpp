#include <nlohmann/json.hpp>

#include "cli/report/formats.h"

namespace memplan::cli {

std::string render_json(const Json& document, const View& view) {
  // Everything unless asked otherwise: programs filter, people scroll.
  if (view.top && *view.top > 0 && document.contains("tensors_at_peak") &&
      document["tensors_at_peak"].size() > static_cast<std::size_t>(*view.top)) {
    Json shorter = document;
    auto& rows = shorter["tensors_at_peak"].get_ref<Json::array_t&>();
    rows.resize(static_cast<std::size_t>(*view.top));
    return shorter.dump(2) + "\n";
  }
  return document.dump(2) + "\n";
}

}  // namespace memplan::cli
