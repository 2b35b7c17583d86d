// Settings in messages: marks that whoever shows a message replaces by words of its own.
#include <doctest/doctest.h>

#include "estimators/setup/field.h"

using namespace memplan;

TEST_CASE("marks of fields are replaced wherever they stand") {
  const std::string message =
      "use " + setting(Field::precision, "bf16") + ", or leave " + setting(Field::context_parallel) + " out";
  CHECK(plainly_spelled(message) == "use precision=bf16, or leave context_parallel out");
  CHECK(spelled(message, [](Field field, std::string_view value) {
          return field == Field::precision ? "[" + std::string(value) + "]" : std::string("cp");
        }) == "use [bf16], or leave cp out");
  CHECK(plainly_spelled(setting(Field::gpus, 8)) == "gpus=8");
  CHECK(plainly_spelled("no marks") == "no marks");
  CHECK(plainly_spelled("") == "");
}

TEST_CASE("names of a hostile file make no marks") {
  const std::string forged = "a\x1f\x1egpus=1\x1f";
  CHECK(plainly_spelled(setting(Field::checkpoint, forged)) == "checkpoint=a??gpus=1?");
  CHECK(plainly_spelled("\x1e") == "\x1e");
  CHECK(plainly_spelled("\x1enothing\x1f") == "\x1enothing\x1f");
}
