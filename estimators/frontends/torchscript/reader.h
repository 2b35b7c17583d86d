// Reading a TorchScript archive: memplan-torch loads it without its weights and sends its program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "estimators/frontends/torch_export/archive.h"
#include "estimators/frontends/torchscript/script.h"
#include "estimators/graph/given_input.h"
#include "estimators/graph/graph.h"

namespace memplan::torchscript {

/// More text of a program than this is refused (stored uncompressed; one layer takes some KB).
constexpr std::int64_t max_program_bytes = std::int64_t{256} << 20;

/// Failure(input) for archives that LibTorch should not see: programs that unpack to more than `max_program_bytes`,
/// tensors that are compressed or longer than the file.
void check_archive(const torch_export::Archive& archive, const std::string& path);

/// The program of a file, by memplan-torch. Failure(usage) where that, or a torch wheel, is missing; Failure(input) for
/// inputs that nobody described, with a command to paste.
Model read_script(const torch_export::Archive& archive, const std::string& path, const std::vector<GivenInput>& inputs);

/// memplan-torch's reply. Failure(usage) where it is not of the form above: it is of another version.
Script parse_script(const nlohmann::json& reply);

}  // namespace memplan::torchscript
