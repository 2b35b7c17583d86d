#include "estimators/facts/nccl.h"

#include <string>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/facts/csv.h"

namespace memplan {

namespace embedded {
std::string_view nccl_memory_csv();
}

namespace {

Bytes measured() {
  for (const CsvRow& row : read_csv(embedded::nccl_memory_csv()))
    if (row.at("used") == "yes") return Bytes(std::stoll(row.at("bytes_per_gpu")));
  fail(ErrorKind::internal, "data/nccl/memory.csv marks no row");
}

}  // namespace

Bytes nccl_bytes(int communicators) {
  static const Bytes one = measured();
  return one * communicators;
}

}  // namespace memplan
