// What an archive says of the tensors that it stores beside the graph.
#pragma once

#include <string>
#include <string_view>

#include "estimators/frontends/torch_export/program.h"

namespace memplan::torch_export {

/// Notes which member of the archive holds each input. `config`: the JSON of "<model>_weights_config.json" or
/// "<model>_constants_config.json", or empty; `folder`: where the members lie, "weights/".
void read_stored(std::string_view config, std::string_view folder, Program& p);

/// Adds the parameters and buffers of the state_dict that the graph's signature lacks, and puts all in the order of the
/// state_dict. torch.export's strict mode lists those alone that an op reads, in the order in which they are read. A
/// program that lists all is left as it is. `where`: the file, for errors.
void add_unread(std::string_view config, const std::string& where, Program& p);

}  // namespace memplan::torch_export
