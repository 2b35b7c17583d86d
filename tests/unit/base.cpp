#include <doctest/doctest.h>

#include "estimators/base/bytes.h"
#include "estimators/base/dtype.h"
#include "estimators/base/glob.h"

using namespace memplan;

TEST_CASE("sizes print in binary units") {
  CHECK(to_human(Bytes(512)) == "512 B");
  CHECK(to_human(Bytes::mib(20)) == "20.0 MiB");
  CHECK(to_human(Bytes::gib(3) + Bytes::mib(512)) == "3.50 GiB");
}

TEST_CASE("a product that overflows fails instead of wrapping") { CHECK_THROWS_AS(Bytes(INT64_MAX / 2) * 3, Failure); }

TEST_CASE("sub-byte types are packed and rounded up") {
  CHECK(bytes_of(DType::int4, 3) == Bytes(2));
  CHECK(bytes_of(DType::boolean, 3) == Bytes(3));
}

TEST_CASE("promotion follows PyTorch") {
  CHECK(promote(DType::float16, DType::bfloat16) == DType::float32);
  CHECK(promote(DType::int64, DType::float16) == DType::float16);
  CHECK(promote(DType::boolean, DType::uint8) == DType::uint8);
  CHECK(promote(DType::uint8, DType::int8) == DType::int16);
}

TEST_CASE("a glob is about the whole name") {
  for (const char* glob : {"a.b", "a.?", "*.b", "a*", "*", "*.*", "?.b", "a*b", "*a.b*"}) {
    CAPTURE(glob);
    CHECK(matches_glob("a.b", glob));
  }
  for (const char* glob : {"", "a", "b", "*.a", "a.b.c", "*.b?", "b*", "a.b*b", "?", "x*.b"}) {
    CAPTURE(glob);
    CHECK(!matches_glob("a.b", glob));
  }
  CHECK(matches_glob("", "*"));
  CHECK(matches_glob("", ""));
  CHECK(!matches_glob("", "a*"));
  CHECK(!matches_glob("ab", "*ab*ab"));  // the two parts would have to share letters
}
