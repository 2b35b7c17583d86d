// What is known of the classes and functions of Python libraries, and what no graph tells: data/libraries/modules.json.
// What a fact means for a tape is said by the code that asks for it; which classes it holds of, and where that was
// read, by the rows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace memplan {

struct LibraryFact {
  std::string library;  ///< "transformers"
  std::string fact;     ///< "casts"
  std::string subject;  ///< glob over classes ("*RMSNorm"), or a function ("create_causal_mask")
  bool function = false;
  std::string child;   ///< glob over paths: it holds of such modules inside of one of the class; may be empty
  std::string detail;  ///< as the fact's reader wants it; may be empty
};

/// All rows of a fact, in the file's order.
const std::vector<LibraryFact>& library_facts(std::string_view fact);

/// The first row of the fact that holds of a class (of itself, not of a child), or null.
const LibraryFact* fact_of_class(std::string_view fact, std::string_view module_class);

/// The first row of the fact that holds of modules with such a path inside of an `owner` of that class, or null.
const LibraryFact* fact_of_child(std::string_view fact, std::string_view owner_class, std::string_view path);

/// Whether a line ("transformers/models/x.py:9 y = f(x)") stands in the code of the fact's library.
bool is_in_library(const LibraryFact& fact, std::string_view source);

/// The first row of the fact whose function is called by a line of its library's own code, or null.
const LibraryFact* fact_of_line(std::string_view fact, std::string_view source);

/// The first row of the fact whose file (its `function`) the line stands in, or null.
const LibraryFact* fact_of_file(std::string_view fact, std::string_view source);

}  // namespace memplan
