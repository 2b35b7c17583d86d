// By which words people set a field: flags on the command line, keywords in Python.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "estimators/base/error.h"
#include "estimators/setup/field.h"

namespace memplan::cli {

/// The flag of a field, without its dashes.
std::string_view flag_of(Field field);

/// The field that a flag sets; none of flags that say nothing about the job.
std::optional<Field> field_of(std::string_view flag);

/// A message of the library for people at a command line: "use --amp bf16". Messages without marks stay as they are.
std::string as_flags(std::string_view message);

/// The same for callers of memplan.estimate() in Python: "use amp=\"bf16\"". Commands to run keep their flags.
std::string as_keywords(std::string_view message);

/// An error in the words of whoever called: the Python module asks for keywords by MEMPLAN_KEYWORDS=1.
Error spelled_for_caller(Error error);

}  // namespace memplan::cli
