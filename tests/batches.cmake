# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# Several test files in one translation unit: the headers are parsed and what they define inline is compiled once for
# all of them, which takes a third of the time. The files see one another's includes, so a file that lacks one is found
# only where each is compiled alone (MILLRACE_TEST_BATCH=1, as in the preset dev).

set(MILLRACE_TEST_BATCH 12 CACHE STRING "Test files compiled in one translation unit (1: each alone)")

# What has to stand in a translation unit of its own, or outside of every namespace: macros that headers look at,
# conditional includes, what belongs to the library's namespace, C functions, replaced operators.
set(millrace_alone
    "^(#define (MILLRACE|CUDA)_|#if __has_include|namespace millrace|template <>|extern|.*[ *&]operator (new|delete)|\
#include \"tests/support/replaced_new)")

# g++ 14.2 ends with an internal error in a unit of several that has one of these, in coroutines whose frames hold a
# pointer to a function of the file's unnamed namespace; alone it compiles them.
set(millrace_alone_with_gcc14 "/train/kept_places_test.cpp$")

# Writes a translation unit of the files: their includes first, and then every file in a namespace of its own. So its
# unnamed namespace is separate, and its includes find their guards set.
function(millrace_write_unit path)
  set(includes "")
  set(text "")
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} lines REGEX "^#include ")
    list(APPEND includes ${lines})
    cmake_path(GET source STEM file)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(APPEND text "\nnamespace in_${file} {\n#include \"${source}\"\n}\n")
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
  list(REMOVE_DUPLICATES includes)
  list(JOIN includes "\n" includes)
  file(CONFIGURE OUTPUT ${path} CONTENT "${includes}\n${text}" @ONLY)
  # g++ takes an unnamed namespace for a mistake where it stands in a file that is included.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set_source_files_properties(${path} PROPERTIES COMPILE_OPTIONS -Wno-subobject-linkage)
  endif()
endfunction()

# Sets `out` to what the target called `name` has to compile instead of the files: those that stand alone, and units of
# the others, at least two (for two cores) and of about equal size.
function(millrace_batches out name)
  set(batched "")
  set(compiled "")
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} alone REGEX "${millrace_alone}")
    if(alone OR MILLRACE_TEST_BATCH LESS_EQUAL 1)
      list(APPEND compiled ${source})
    else()
      list(APPEND batched ${source})
    endif()
  endforeach()
  list(LENGTH batched files)
  math(EXPR units "(${files} + ${MILLRACE_TEST_BATCH} - 1) / ${MILLRACE_TEST_BATCH}")
  if(units EQUAL 1 AND files GREATER 1)
    set(units 2)
  endif()
  if(files EQUAL 0)
    set(${out} "${compiled}" PARENT_SCOPE)
    return()
  endif()
  foreach(unit RANGE 1 ${units})
    math(EXPR first "${files} * (${unit} - 1) / ${units}")
    math(EXPR count "${files} * ${unit} / ${units} - ${first}")
    list(SUBLIST batched ${first} ${count} members)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
      set(apart ${members})
      list(FILTER apart INCLUDE REGEX ${millrace_alone_with_gcc14})
      list(FILTER members EXCLUDE REGEX ${millrace_alone_with_gcc14})
      list(APPEND compiled ${apart})
    endif()
    set(path ${CMAKE_CURRENT_BINARY_DIR}/units/${name}_${unit}.cpp)
    millrace_write_unit(${path} ${members})
    list(APPEND compiled ${path})
  endforeach()
  set(${out} "${compiled}" PARENT_SCOPE)
endfunction()
