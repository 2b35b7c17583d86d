# Turns text files into C++ sources: memplan::embedded::<name>() for data/<name> and for emulated_gpu/<name>.
function(memplan_embed sources folder)
  set(made ${${sources}})
  foreach(_file IN LISTS ARGN)
    set(_in "${CMAKE_SOURCE_DIR}/${folder}/${_file}")
    string(REGEX REPLACE "[^A-Za-z0-9]" "_" _id "${_file}")
    set(_out "${CMAKE_BINARY_DIR}/generated/embedded/${_id}.cpp")
    add_custom_command(OUTPUT "${_out}"
      COMMAND "${CMAKE_COMMAND}" -DIN=${_in} -DOUT=${_out} -DID=${_id} -P "${CMAKE_SOURCE_DIR}/cmake/embed_one.cmake"
      DEPENDS "${_in}" "${CMAKE_SOURCE_DIR}/cmake/embed_one.cmake" VERBATIM)
    list(APPEND made "${_out}")
  endforeach()
  set(${sources} "${made}" PARENT_SCOPE)
endfunction()

set(MEMPLAN_EMBEDDED_SOURCES "")
memplan_embed(MEMPLAN_EMBEDDED_SOURCES data devices/gpus.csv context/rows.csv cudnn/workspaces.txt aten/inplace_modules.json libraries/modules.json nccl/memory.csv measured/accuracy.csv)
# What else cuDNN says, 14 MB of text: packed, and cut by card, so that a run unpacks that of its card alone. The table
# above is not packed: nearly all runs with convolutions want it, and it would take a tenth of their time.
file(GLOB _cudnn_tables CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/data/cudnn/*.txt")
list(REMOVE_ITEM _cudnn_tables "${CMAKE_SOURCE_DIR}/data/cudnn/workspaces.txt")
set(_zip "${CMAKE_BINARY_DIR}/generated/embedded/cudnn.zip")
set(_out "${CMAKE_BINARY_DIR}/generated/embedded/cudnn_zip.cpp")
add_custom_command(OUTPUT "${_out}"
  COMMAND "${CMAKE_COMMAND}" "-DFILES=${_cudnn_tables}" -DFOLDER=${CMAKE_BINARY_DIR}/generated/cudnn -DZIP=${_zip} -P "${CMAKE_SOURCE_DIR}/cmake/cudnn_parts.cmake"
  COMMAND "${CMAKE_COMMAND}" -DIN=${_zip} -DOUT=${_out} -DID=cudnn_zip -P "${CMAKE_SOURCE_DIR}/cmake/embed_one.cmake"
  DEPENDS ${_cudnn_tables} "${CMAKE_SOURCE_DIR}/cmake/cudnn_parts.cmake" "${CMAKE_SOURCE_DIR}/cmake/embed_one.cmake" VERBATIM)
list(APPEND MEMPLAN_EMBEDDED_SOURCES "${_out}")
# The programs that ask cuDNN and ONNX Runtime.
memplan_embed(MEMPLAN_EMBEDDED_SOURCES estimators cudnn/ask.py onnxruntime/optimize.py onnxruntime/session.py)

# What memplan observe puts before a script.
set(MEMPLAN_OBSERVER_SOURCES "")
set(_package observer/memplan_observer)
memplan_embed(MEMPLAN_OBSERVER_SOURCES emulated_gpu observer/sitecustomize.py ${_package}/__init__.py ${_package}/autograd.py ${_package}/frames.py ${_package}/groups.py
              ${_package}/history.py ${_package}/hooks.py ${_package}/job.py ${_package}/names.py ${_package}/reads.py ${_package}/record.py ${_package}/steps.py)
# Of memplan.record what watches a run and writes the file: a script's Python need not have memplan.
memplan_embed(MEMPLAN_OBSERVER_SOURCES python/memplan _recording/__init__.py _recording/align.py _recording/archive.py _recording/calls.py _recording/compiled.py _recording/functions.py
              _recording/lift.py _recording/lines.py _recording/script.py _recording/tape.py _recording/trace.py)

# The Python package as one archive, which Python imports as it is: `memplan export` and models that are no file yet need it.
file(GLOB_RECURSE _modules CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}/python" "${CMAKE_SOURCE_DIR}/python/memplan/*.py")
list(TRANSFORM _modules PREPEND "${CMAKE_SOURCE_DIR}/python/" OUTPUT_VARIABLE _module_files)
set(_zip "${CMAKE_BINARY_DIR}/generated/embedded/memplan_package.zip")
set(MEMPLAN_PACKAGE_SOURCE "${CMAKE_BINARY_DIR}/generated/embedded/memplan_package_zip.cpp")
add_custom_command(OUTPUT "${MEMPLAN_PACKAGE_SOURCE}"
  COMMAND "${CMAKE_COMMAND}" -E tar cf "${_zip}" --format=zip --mtime=2000-01-01 -- ${_modules}
  COMMAND "${CMAKE_COMMAND}" -DIN=${_zip} -DOUT=${MEMPLAN_PACKAGE_SOURCE} -DID=memplan_package_zip -P "${CMAKE_SOURCE_DIR}/cmake/embed_one.cmake"
  DEPENDS ${_module_files} "${CMAKE_SOURCE_DIR}/cmake/embed_one.cmake" WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}/python" VERBATIM)
