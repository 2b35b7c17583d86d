// Networks that a file without flags of its parameters may not train.
#pragma once

#include "estimators/tape/tape.h"

namespace memplan {

/// Whether the file does not tell what is frozen, and parameters are named as those of low-rank adapters are, in a
/// model of no library that is known to make them.
bool has_own_adapters(const Tape& tape);

/// Whether the file does not tell what is frozen, and some modules stay in evaluation mode while the model trains, as
/// their batch norms say: `self.backbone.eval()` in the model's own train(). Such networks came trained.
bool has_evaluated_networks(const Tape& tape);

/// Whether some of the parameters, and not all, stand in modules whose names say that they are run and not trained, a
/// teacher, a target network, the VGG of a perceptual loss, or which judge what others make (judging_networks.h).
bool has_frozen_names(const Tape& tape);

/// Whether some of the parameters, and not all, may have come trained, in a model of no library: a network of
/// convolutions that is called backbone, or encoder beside a rest without any; a table of words as wide as those of
/// GloVe and word2vec; positions, which may be sines. Such parts are often left as they are.
bool has_pretrained(const Tape& tape);

/// As the tape's reading says, such parameters want no gradient.
void freeze_by_name(Tape& tape);

}  // namespace memplan
