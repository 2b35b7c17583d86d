// The card of an estimate with what was measured of it on this machine.
#pragma once

#include <optional>
#include <string>

#include "cli/calibration/profile.h"
#include "estimators/facts/device.h"

namespace memplan::cli {

/// choose_device() and, where the text names a card and a profile of it lies here, its total and its context instead of
/// the table's. A card that only a profile knows is found by the profile's word. `calibration` is "auto" for the
/// profile in the folder of the user's settings, "none", or a file. Failure(usage) for a profile that cannot be (an
/// own file: of another card).
DeviceChoice choose_measured(const std::string& text, const std::string& calibration);

/// The key in memplan's table of a card that CUDA calls so, or a word made of its name.
std::string card_word(const CardProfile& profile);

}  // namespace memplan::cli
