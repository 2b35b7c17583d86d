#include "estimators/graph/listed.h"

#include <sstream>

namespace memplan {

std::vector<std::string> listed_in(const Model& model, const char* entry) {
  const auto it = model.metadata.find(entry);
  if (it == model.metadata.end()) return {};
  std::vector<std::string> out;
  std::istringstream words(it->second);
  for (std::string word; std::getline(words, word, ' ');)
    if (!word.empty()) out.push_back(word);
  return out;
}

std::vector<std::string> own_checkpoints(const Model& model) { return listed_in(model, "memplan.checkpointed"); }

}  // namespace memplan
