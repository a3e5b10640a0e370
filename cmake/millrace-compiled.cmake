# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# millrace_add_compiled(<folder>)
#
# The target millrace::compiled: a static library of the one source, <folder>/millrace.cpp, that holds every body that
# is no template, and the definition that makes headers declare only, for the library and for who links it. The
# components' targets say which bodies it has. Built where it is linked, with the flags of that project; read by the
# project and by its installed package alike. Where there is millrace::parquet, millrace::compiled_parquet is both of
# them: a program that reads no Parquet does not get Arrow.

function(millrace_add_compiled folder)
  if(NOT TARGET millrace_compiled)
    add_library(millrace_compiled STATIC EXCLUDE_FROM_ALL ${folder}/millrace.cpp)
    add_library(millrace::compiled ALIAS millrace_compiled)
    set_target_properties(millrace_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
    # Else g++ inlines none of the bodies into one another, as another library might replace them.
    target_compile_options(millrace_compiled PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-semantic-interposition>)
    target_compile_definitions(millrace_compiled INTERFACE MILLRACE_SEPARATE_COMPILATION)
    target_link_libraries(millrace_compiled PUBLIC millrace::millrace)
  endif()
  if(TARGET millrace::parquet AND NOT TARGET millrace_compiled_parquet)
    add_library(millrace_compiled_parquet STATIC EXCLUDE_FROM_ALL ${folder}/millrace_parquet.cpp)
    add_library(millrace::compiled_parquet ALIAS millrace_compiled_parquet)
    set_target_properties(millrace_compiled_parquet PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(millrace_compiled_parquet PUBLIC millrace_compiled millrace::parquet)
  endif()
endfunction()
