// How fast a device computes and moves bytes, as published. Source: data/devices/gpus.csv (each row names where its
// figures come from).
#pragma once

#include "estimators/facts/device.h"

namespace memplan {

/// Peak rates; 0 where nothing is published.
struct DeviceRates {
  double fp32 = 0;  ///< FLOP/s without tensor cores
  double tf32 = 0;  ///< FLOP/s of dense tensor-core products, likewise below
  double half = 0;  ///< float16
  double bf16 = 0;
  double fp8 = 0;
  double memory = 0;  ///< bytes/s of device memory
  double link = 0;    ///< bytes/s and direction between devices of one node: NVLink where the board has it, else PCIe
  double pcie = 0;    ///< bytes/s and direction to the host
};

/// The rates of a card of the table; a device given by its size alone computes like the H100.
DeviceRates rates_of(const Device& device);

}  // namespace memplan
