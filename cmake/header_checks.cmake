# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# Compiles every public header alone, twice included, and after it its own bodies and no others: one translation unit
# each. A test compiles them, syntax only, by the commands of object libraries that are not built, one per component.
# Bodies stand apart here, which halves the time; that no header is used unfinished where they follow it, the other way,
# is seen in the includes alone (tests/structure/check_structure.py).

# Which component a header of include/millrace/<folder>/ needs; a folder that is not named needs the core alone.
function(millrace_components_of out header)
  cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/include/millrace OUTPUT_VARIABLE relative)
  if(relative MATCHES "^(http|retry)/")
    set(needs http)
  elseif(relative MATCHES "^s3/")
    set(needs s3)
  elseif(relative MATCHES "^testing/s3_server/")
    set(needs s3_server)
  elseif(relative MATCHES "^tar/")
    set(needs tar)
  elseif(relative MATCHES "^parquet.hpp$|^records/detail/(parquet|arrow)")
    set(needs s3 tar parquet)
  elseif(relative MATCHES "^records/")
    set(needs tar)
  elseif(relative MATCHES "^(shards|loader)/")
    set(needs s3 tar)
  elseif(relative MATCHES "^decode/.*(jpeg|png|webp)")
    set(needs ${CMAKE_MATCH_1})
  elseif(relative MATCHES "^decode/.*(audio_decoder|decode_audio)")
    set(needs audio)
  elseif(relative MATCHES "^decode/.*video")
    set(needs video)
  elseif(relative MATCHES "^decode/(npz|decode_arrays)")
    set(needs tar)
  elseif(relative MATCHES "^decode/json_reader")
    set(needs json)
  elseif(relative MATCHES "^decode/.*(decode_images|image_decoder|resizer)")
    set(needs jpeg)  # any format would do
  elseif(relative STREQUAL "device/dlpack.hpp")
    set(needs dlpack)
  elseif(relative MATCHES "^(millrace|train).hpp$")
    set(needs s3 tar)
  elseif(relative MATCHES "^millrace_cuda.hpp$")
    set(needs s3 tar cuda)
  elseif(relative MATCHES "^(mpi|pmix).hpp$")
    set(needs ${CMAKE_MATCH_1})
  elseif(relative MATCHES "^cuda/nvjpeg")
    set(needs nvjpeg cuda)
  elseif(relative MATCHES "^cuda/")
    set(needs cuda)
  else()
    set(needs core)
  endif()
  set(${out} "${needs}" PARENT_SCOPE)
endfunction()

# Writes a header that includes every header whose component is there, but mpi.hpp, pmix.hpp, cuda/nvtx.hpp (NVTX has
# functions and variables) and those that include Arrow's (which have both), and cuda/ only where the last argument is
# ON.
function(millrace_write_everything path with_cuda)
  set(everything "")
  foreach(header IN LISTS millrace_headers)
    millrace_components_of(components ${header})
    millrace_missing_of(missing ${components})
    if(NOT missing AND NOT components MATCHES "mpi|pmix|parquet"
       AND NOT header MATCHES "/cuda/nvtx.hpp$" AND (with_cuda OR NOT "cuda" IN_LIST components))
      cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/include OUTPUT_VARIABLE relative)
      string(APPEND everything "#include <${relative}>\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${path} CONTENT "${everything}" @ONLY)
endfunction()

function(millrace_add_header_checks)
  set(skipped "")
  set(all_components "")
  foreach(header IN LISTS millrace_headers)
    millrace_components_of(components ${header})
    millrace_missing_of(missing ${components})
    if(NOT missing AND header MATCHES "/cuda/nvtx.hpp$")
      find_path(millrace_nvtx_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
      if(NOT millrace_nvtx_INCLUDE_DIR)
        set(missing nvtx)
      endif()
    endif()
    if(missing)
      list(APPEND skipped ${header})
      continue()
    endif()
    list(JOIN components "_" group)
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/include OUTPUT_VARIABLE relative)
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/header_checks/${relative}.cpp)
    cmake_path(REPLACE_EXTENSION relative LAST_ONLY .ipp OUTPUT_VARIABLE bodies)
    set(with_bodies "")
    if(EXISTS ${PROJECT_SOURCE_DIR}/include/${bodies})
      set(with_bodies "#include <${bodies}>\n")
    endif()
    file(CONFIGURE OUTPUT ${unit}
         CONTENT "#include <@relative@>\n#include <@relative@>  // again\n@with_bodies@" @ONLY)
    if(NOT TARGET millrace_headers_${group})
      add_library(millrace_headers_${group} OBJECT EXCLUDE_FROM_ALL)
      set_target_properties(millrace_headers_${group} PROPERTIES EXPORT_COMPILE_COMMANDS ON)
      # The other warning is what MILLRACE_QUIET_FRAMES is for.
      target_compile_options(millrace_headers_${group} PRIVATE -O0 -g0 -Wsign-conversion
                                                               $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
      target_compile_definitions(millrace_headers_${group} PRIVATE MILLRACE_SEPARATE_COMPILATION)
      list(TRANSFORM components PREPEND "millrace::")
      target_link_libraries(millrace_headers_${group} PRIVATE ${components} millrace_developer)
      list(APPEND all_components ${components})
    endif()
    target_sources(millrace_headers_${group} PRIVATE ${unit})
  endforeach()
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  add_test(NAME headers_alone
           COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/structure/check_headers_alone.py
                   ${CMAKE_BINARY_DIR} ${cores})
  set_tests_properties(headers_alone PROPERTIES PROCESSORS ${cores} TIMEOUT 1200)
  # Including anything costs parsing, and emits nothing, bodies included.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT MILLRACE_SANITIZE)
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/header_checks/everything.cpp)
    set(with_cuda OFF)
    if(TARGET millrace::cuda)
      set(with_cuda ON)
    endif()
    millrace_write_everything(${unit} ${with_cuda})
    list(REMOVE_DUPLICATES all_components)
    add_library(millrace_headers_everything OBJECT ${unit})
    target_compile_options(millrace_headers_everything PRIVATE -O0 -g0 -Wsign-conversion)
    target_link_libraries(millrace_headers_everything PRIVATE ${all_components} millrace_developer)
    add_test(NAME headers_emit_nothing
             COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/structure/check_emitted.py
                     $<TARGET_OBJECTS:millrace_headers_everything> COMMAND_EXPAND_LISTS)
  endif()
  if(TARGET millrace_headers_s3_tar AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT MILLRACE_SANITIZE)
    # The figure is that of one version of the compiler.
    if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12 AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      add_test(NAME headers_compiler_memory
               COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/structure/check_memory.py 504
                       ${CMAKE_CXX_COMPILER} -I${PROJECT_SOURCE_DIR}/include)
      add_test(NAME headers_compiler_memory_compiled
               COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/structure/check_memory.py 218
                       ${CMAKE_CXX_COMPILER} -I${PROJECT_SOURCE_DIR}/include -DMILLRACE_SEPARATE_COMPILATION)
    endif()
  endif()
  list(LENGTH skipped count)
  if(count)
    message(STATUS "${count} headers are not compiled alone: what they need is missing")
  endif()
endfunction()
