// Lists in the metadata of a model's file.
#pragma once

#include <string>
#include <vector>

#include "estimators/graph/graph.h"

namespace memplan {

/// The names in an entry of the file's metadata, which are separated by spaces.
std::vector<std::string> listed_in(const Model& model, const char* entry);

/// The modules that the model itself runs under torch.utils.checkpoint, as --checkpoint names them; none where the
/// exporter did not say, or no such names say it.
std::vector<std::string> own_checkpoints(const Model& model);

}  // namespace memplan
