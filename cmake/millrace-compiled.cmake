# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# millrace_add_compiled(<folder> [<library> <component>...])
#
# The target millrace::compiled: a static library that holds every body that is no template, and the definition that
# makes headers declare only, for the library and for what links it. Built where it is linked, with the flags of that
# project; read by the project and by its installed package alike. <folder>/millrace.cpp is the list of the bodies;
# each room of it is a unit, so that they are compiled side by side and none takes a gigabyte. The components' targets
# say which bodies there are. Where <library> is installed and the components that it was made with are found, the
# target is that library (unless MILLRACE_COMPILE_BODIES is set before find_package()). Where there is
# millrace::parquet, millrace::compiled_parquet is both of them: a program that reads no Parquet does not get Arrow; so
# it is with millrace::video and FFmpeg.

# The list, room by room, as sources in the build folder.
function(_millrace_room_units out list)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} lines REGEX "^(#|MILLRACE_QUIET_FRAMES)")
  set(rooms ${lines})
  list(FILTER rooms INCLUDE REGEX "[.]ipp>")
  list(TRANSFORM rooms REPLACE "^#include <millrace/([^/]*)/.*" "\\1")
  list(REMOVE_DUPLICATES rooms)
  set(units "")
  foreach(room IN LISTS rooms)
    set(text "")
    foreach(line IN LISTS lines)
      if(NOT line MATCHES "[.]ipp>" OR line MATCHES "^#include <millrace/${room}/")
        string(APPEND text "${line}\n")
      endif()
    endforeach()
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/millrace_rooms/${room}.cpp)
    file(CONFIGURE OUTPUT ${unit} CONTENT "${text}" @ONLY)
    list(APPEND units ${unit})
  endforeach()
  set(${out} ${units} PARENT_SCOPE)
endfunction()

function(millrace_add_compiled folder)
  list(POP_FRONT ARGN library)
  set(components ${ARGN})
  list(TRANSFORM components PREPEND "millrace::")
  foreach(component IN LISTS components)
    if(NOT TARGET ${component})
      set(library "")
    endif()
  endforeach()
  if(NOT TARGET millrace::compiled)
    if(library AND EXISTS "${library}")
      add_library(millrace::compiled STATIC IMPORTED)
      set_target_properties(millrace::compiled PROPERTIES IMPORTED_LOCATION "${library}")
      set_target_properties(millrace::compiled PROPERTIES
                            INTERFACE_COMPILE_DEFINITIONS MILLRACE_SEPARATE_COMPILATION
                            INTERFACE_LINK_LIBRARIES "millrace::millrace;${components}")
    else()
      _millrace_room_units(units ${folder}/millrace.cpp)
      add_library(millrace_compiled STATIC EXCLUDE_FROM_ALL ${units})
      add_library(millrace::compiled ALIAS millrace_compiled)
      set_target_properties(millrace_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
      # Else g++ inlines none of the bodies into one another, as another library might replace them.
      target_compile_options(millrace_compiled PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-semantic-interposition>)
      target_compile_definitions(millrace_compiled INTERFACE MILLRACE_SEPARATE_COMPILATION)
      target_link_libraries(millrace_compiled PUBLIC millrace::millrace)
    endif()
  endif()
  foreach(component IN ITEMS video parquet)
    if(TARGET millrace::${component} AND NOT TARGET millrace_compiled_${component})
      add_library(millrace_compiled_${component} STATIC EXCLUDE_FROM_ALL ${folder}/millrace_${component}.cpp)
      add_library(millrace::compiled_${component} ALIAS millrace_compiled_${component})
      set_target_properties(millrace_compiled_${component} PROPERTIES POSITION_INDEPENDENT_CODE ON)
      target_link_libraries(millrace_compiled_${component} PUBLIC millrace::compiled millrace::${component})
    endif()
  endforeach()
endfunction()
