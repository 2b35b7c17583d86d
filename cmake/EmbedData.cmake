# Turns the text files of data/ that the binary needs into one C++ source: memplan::embedded::<name>().
set(MEMPLAN_EMBEDDED_SOURCES "")
set(_files devices/gpus.csv cudnn/workspaces.txt aten/inplace_modules.json)
foreach(_file IN LISTS _files)
  set(_in "${CMAKE_SOURCE_DIR}/data/${_file}")
  if(EXISTS "${_in}")
    string(REGEX REPLACE "[^A-Za-z0-9]" "_" _id "${_file}")
    set(_out "${CMAKE_BINARY_DIR}/generated/embedded/${_id}.cpp")
    add_custom_command(OUTPUT "${_out}"
      COMMAND "${CMAKE_COMMAND}" -DIN=${_in} -DOUT=${_out} -DID=${_id} -P "${CMAKE_SOURCE_DIR}/cmake/embed_one.cmake"
      DEPENDS "${_in}" "${CMAKE_SOURCE_DIR}/cmake/embed_one.cmake" VERBATIM)
    list(APPEND MEMPLAN_EMBEDDED_SOURCES "${_out}")
  endif()
endforeach()
