// The driver's view of device memory, for the table of driver functions.
#pragma once

#include "emulated.h"

namespace emulated {

CUresult reserve_addresses(CUdeviceptr* p, std::size_t size, std::size_t alignment, CUdeviceptr wanted,
                           unsigned long long flags);
CUresult free_addresses(CUdeviceptr p, std::size_t size);
CUresult create_physical(CUmemGenericAllocationHandle* h, std::size_t size, const CUmemAllocationProp* prop,
                         unsigned long long flags);
CUresult release_physical(CUmemGenericAllocationHandle h);
CUresult allocation_granularity(std::size_t* out, const CUmemAllocationProp* prop, int option);
CUresult address_range(CUdeviceptr* start, std::size_t* size, CUdeviceptr p);

}  // namespace emulated
