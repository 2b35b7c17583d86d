# The published JSON Schemas (docs/NAME.schema.json) for `memplan schema NAME`, as one table that grows with the folder.
file(GLOB _schemas CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}/docs" "${CMAKE_SOURCE_DIR}/docs/*.schema.json")
list(SORT _schemas)
set(MEMPLAN_SCHEMA_SOURCES "")
memplan_embed(MEMPLAN_SCHEMA_SOURCES docs ${_schemas})
set(_table "${CMAKE_BINARY_DIR}/generated/embedded/schemas.cpp")
set(_declared "")
set(_rows "")
foreach(_file IN LISTS _schemas)
  string(REGEX REPLACE "[^A-Za-z0-9]" "_" _id "${_file}")
  string(REGEX REPLACE "\\.schema\\.json$" "" _name "${_file}")
  string(APPEND _declared "std::string_view ${_id}();\n")
  string(APPEND _rows "    {\"${_name}\", ${_id}()},\n")
endforeach()
file(CONFIGURE OUTPUT "${_table}" CONTENT "#include <array>\n#include <span>\n#include <string_view>\n#include <utility>\nnamespace memplan::embedded {\n${_declared}
std::span<const std::pair<std::string_view, std::string_view>> schemas() {
  static const std::pair<std::string_view, std::string_view> table[] = {\n${_rows}  };
  return table;\n}\n}\n" @ONLY)
list(APPEND MEMPLAN_SCHEMA_SOURCES "${_table}")
