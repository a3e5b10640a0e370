# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# millrace_add_compiled(<source>)
#
# The target millrace::compiled: a static library of the one source that holds every body that is no template, and the
# definition that makes headers declare only, for the library and for who links it. The components' targets say which
# bodies it has. Built where it is linked, with the flags of that project; read by the project and by its installed
# package alike.

function(millrace_add_compiled source)
  if(NOT TARGET millrace_compiled)
    add_library(millrace_compiled STATIC EXCLUDE_FROM_ALL ${source})
    add_library(millrace::compiled ALIAS millrace_compiled)
    set_target_properties(millrace_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_definitions(millrace_compiled INTERFACE MILLRACE_SEPARATE_COMPILATION)
    target_link_libraries(millrace_compiled PUBLIC millrace::millrace)
  endif()
endfunction()
