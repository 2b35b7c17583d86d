# The HTML report: the page of cli/report/html with its charting library (Debian: libjs-dygraphs, MIT), as one C++ source.
find_file(MEMPLAN_DYGRAPHS dygraph.min.js PATHS /usr/share/javascript/dygraphs DOC "dygraph.min.js of dygraphs 2.x" NO_CMAKE_FIND_ROOT_PATH)
if(NOT MEMPLAN_DYGRAPHS)
  message(FATAL_ERROR "dygraph.min.js is missing: install libjs-dygraphs, or pass -DMEMPLAN_DYGRAPHS=/path/to/dygraph.min.js")
endif()
set(_html "${CMAKE_SOURCE_DIR}/cli/report/html")
file(GLOB _parts CONFIGURE_DEPENDS "${_html}/*")
set(_page "${CMAKE_BINARY_DIR}/generated/embedded/report_page.html")
set(MEMPLAN_REPORT_PAGE_SOURCE "${CMAKE_BINARY_DIR}/generated/embedded/report_page.cpp")
add_custom_command(OUTPUT "${MEMPLAN_REPORT_PAGE_SOURCE}" BYPRODUCTS "${_page}"
  COMMAND "${CMAKE_COMMAND}" -DHTML=${_html} -DLIBRARY=${MEMPLAN_DYGRAPHS} -DOUT=${_page} -P "${CMAKE_SOURCE_DIR}/cmake/report_page.cmake"
  COMMAND "${CMAKE_COMMAND}" -DIN=${_page} -DOUT=${MEMPLAN_REPORT_PAGE_SOURCE} -DID=report_page -P "${CMAKE_SOURCE_DIR}/cmake/embed_one.cmake"
  DEPENDS ${_parts} "${MEMPLAN_DYGRAPHS}" "${CMAKE_SOURCE_DIR}/cmake/report_page.cmake" "${CMAKE_SOURCE_DIR}/cmake/embed_one.cmake" VERBATIM)
