# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# Compiles every public header alone, twice included: one translation unit each, in one object library per component.

# Which component a header of include/millrace/<folder>/ needs; a folder that is not named needs the core alone.
function(millrace_components_of out header)
  cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/include/millrace OUTPUT_VARIABLE relative)
  if(relative MATCHES "^http/")
    set(needs http)
  elseif(relative MATCHES "^s3/")
    set(needs s3)
  elseif(relative MATCHES "^origin/")
    set(needs origin)
  elseif(relative MATCHES "^tar/")
    set(needs tar)
  elseif(relative MATCHES "^(shards|loader)/")
    set(needs s3 tar)
  elseif(relative MATCHES "^decode/.*jpeg")
    set(needs jpeg)
  elseif(relative MATCHES "^millrace.hpp$")
    set(needs s3 tar jpeg)
  elseif(relative MATCHES "^millrace_cuda.hpp$")
    set(needs s3 tar jpeg cuda)
  elseif(relative MATCHES "^cuda/")
    set(needs cuda)
  else()
    set(needs core)
  endif()
  set(${out} "${needs}" PARENT_SCOPE)
endfunction()

function(millrace_add_header_checks)
  add_custom_target(millrace_header_checks ALL)
  set(skipped "")
  foreach(header IN LISTS millrace_headers)
    millrace_components_of(components ${header})
    millrace_missing_of(missing ${components})
    if(missing)
      list(APPEND skipped ${header})
      continue()
    endif()
    list(JOIN components "_" group)
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/include OUTPUT_VARIABLE relative)
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/header_checks/${relative}.cpp)
    file(CONFIGURE OUTPUT ${unit} CONTENT "#include <@relative@>\n#include <@relative@>  // again\n" @ONLY)
    if(NOT TARGET millrace_headers_${group})
      add_library(millrace_headers_${group} OBJECT)
      target_compile_options(millrace_headers_${group} PRIVATE -O0 -g0)
      list(TRANSFORM components PREPEND "millrace::")
      target_link_libraries(millrace_headers_${group} PRIVATE ${components} millrace_developer)
      add_dependencies(millrace_header_checks millrace_headers_${group})
    endif()
    target_sources(millrace_headers_${group} PRIVATE ${unit})
  endforeach()
  # Including everything costs parsing, and emits nothing.
  if(TARGET millrace_headers_s3_tar_jpeg AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT MILLRACE_SANITIZE)
    add_test(NAME headers_emit_nothing
             COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/structure/check_emitted.py
                     $<TARGET_OBJECTS:millrace_headers_s3_tar_jpeg>
             COMMAND_EXPAND_LISTS)
    # The figure is that of one version of the compiler.
    if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12 AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      add_test(NAME headers_compiler_memory
               COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/structure/check_memory.py 200
                       ${CMAKE_CXX_COMPILER} -I${PROJECT_SOURCE_DIR}/include)
    endif()
  endif()
  list(LENGTH skipped count)
  if(count)
    message(STATUS "${count} headers are not compiled alone: their components are missing")
  endif()
endfunction()
