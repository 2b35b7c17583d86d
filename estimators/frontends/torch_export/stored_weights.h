// What an archive says of the tensors that it stores beside the graph.
#pragma once

#include <string>
#include <string_view>

#include "estimators/frontends/torch_export/program.h"

namespace memplan::torch_export {

/// Notes which member of the archive holds each parameter and buffer, from the JSON of "<model>_weights_config.json".
/// Adds those of the state_dict that the graph's signature lacks, and puts all in the order of the state_dict:
/// torch.export's strict mode lists those alone that an op reads, in the order in which they are read. A signature that
/// lists all keeps its order. Nothing happens where the config is empty or has no table. `where`: the file, for errors.
void read_stored_weights(std::string_view config, const std::string& where, Program& p);

/// Notes which member holds each constant and each buffer that no state_dict has, from "<model>_constants_config.json".
void read_stored_constants(std::string_view config, Program& p);

}  // namespace memplan::torch_export
