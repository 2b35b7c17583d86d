#include "estimators/transforms/frozen.h"

#include <fmt/format.h>

#include "estimators/base/error.h"
#include "estimators/base/glob.h"
#include "estimators/setup/field.h"

namespace memplan {

void freeze(Tape& tape, const std::vector<std::string>& globs) {
  for (const std::string& glob : globs) {
    bool any = false;
    for (ValueId id : tape.parameters) {
      TapeValue& v = tape.values[static_cast<std::size_t>(id.index)];
      if (!matches_glob(v.name, glob)) continue;
      v.requires_grad = false;
      any = true;
    }
    if (!any) {
      const std::string example =
          tape.parameters.empty() ? "" : tape.values[static_cast<std::size_t>(tape.parameters.front().index)].name;
      fail(ErrorKind::usage, fmt::format("no parameter matches '{}'", glob), setting(Field::frozen, glob),
           example.empty() ? "the model has no parameters"
                           : fmt::format("parameters are named like '{}'; '*' matches any run of characters", example));
    }
  }
}

}  // namespace memplan
