// Parameters that a program reads by an attribute that is no part of its module tree.
#pragma once

#include <string>

#include "estimators/frontends/torch_export/archive.h"
#include "estimators/frontends/torch_export/program.h"

namespace memplan::torch_export {

/// `self.regularized = [(list(self.embedding.parameters()), 1e-6)]`: a list in an attribute is no module, so
/// torch.export stores its tensors as constants beside the parameters that they are. model.to() moves parameters and
/// buffers only, so that a constant which the forward pass reads as it is, with the contents of a parameter, can only
/// be that parameter. It becomes a further name of it. Contents are compared by the archive's sizes and checksums;
/// those of several parameters, zeros as a rule, count where another constant is a parameter beyond doubt.
void tie_constants(const Archive& archive, const std::string& data, Program& p);

}  // namespace memplan::torch_export
