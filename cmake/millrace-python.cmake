# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# millrace_python_module(<name> <source>...)
#
# A module of Python of these sources, by nanobind (PyPI), with the bodies of millrace in it. To be included after
# find_package(millrace), in the folder that calls the function. MILLRACE_NANOBIND_PYTHON, given to CMake or in the
# environment, is the Python that has nanobind and will load the module; without it, it is the first one found. Sets
# millrace_python_FOUND, and else millrace_python_WHY.

if(NOT MILLRACE_NANOBIND_PYTHON AND DEFINED ENV{MILLRACE_NANOBIND_PYTHON})
  set(MILLRACE_NANOBIND_PYTHON "$ENV{MILLRACE_NANOBIND_PYTHON}")
endif()
if(MILLRACE_NANOBIND_PYTHON AND NOT Python_EXECUTABLE)
  set(Python_EXECUTABLE "${MILLRACE_NANOBIND_PYTHON}")
endif()
find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
set(nanobind_ROOT "")
if(Python_Interpreter_FOUND)
  execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(millrace_python_FOUND FALSE)
if(NOT Python_Interpreter_FOUND)
  set(millrace_python_WHY "it needs Python 3.10 (Debian: python3)")
elseif(NOT Python_Development.Module_FOUND)
  set(millrace_python_WHY "it needs the headers of ${Python_EXECUTABLE} (Debian: python3-dev)")
elseif(NOT nanobind_ROOT)
  set(millrace_python_WHY
      "nanobind is not installed for ${Python_EXECUTABLE} (PyPI; MILLRACE_NANOBIND_PYTHON names a Python that has it)")
elseif(NOT TARGET millrace::dlpack)
  set(millrace_python_WHY "${millrace_dlpack_WHY}")
else()
  find_package(nanobind CONFIG REQUIRED)
  set(millrace_python_FOUND TRUE)
endif()

function(millrace_python_module name)
  if(NOT millrace_python_FOUND)
    message(FATAL_ERROR "millrace_python_module(${name}): ${millrace_python_WHY}")
  endif()
  # Modules of other versions of millrace, in one process, know nothing of each other's types.
  nanobind_add_module(${name} NB_STATIC NB_DOMAIN ${name} NOMINSIZE NOSTRIP ${ARGN})
  target_link_libraries(${name} PRIVATE millrace::compiled)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
endfunction()
