// Cards of the device table that a `--gpu` text can change: ECC is a switch on boards whose memory has no room of its
// own for it.
#pragma once

#include <string>

#include "estimators/facts/device.h"

namespace memplan {

/// State of ECC in which the totals of a card's row were read; fixed: no switch, or none that changes the total.
enum class Ecc : std::uint8_t { fixed, on, off };

/// Total that nvidia-smi reports once ECC is on, and the other way round: inline ECC takes 1/16 of GDDR memory, in
/// whole MiB (A40 and RTX A6000: 49140 and 46068 MiB; A10: 24564 and 23028; T4: 16384 and 15360).
Bytes with_ecc(Bytes full);
Bytes without_ecc(Bytes rest);

/// Threads that can be resident on a multiprocessor of that compute capability, "89" for 8.9.
int threads_per_multiprocessor(int sm);

/// Key of the card's row in the device table, without "+ecc" or "+noecc"; empty for a device that was given by its
/// size.
std::string card_of(const Device& device);

}  // namespace memplan
