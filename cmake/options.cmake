# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# What the project's own tests, examples and benchmarks are compiled with. Nothing of it reaches a user of the library.

set(MILLRACE_SANITIZE "" CACHE STRING "Sanitizers of the project's own binaries: address,undefined or thread")
option(MILLRACE_WERROR "Make warnings errors in the project's own binaries" OFF)

add_library(millrace_developer INTERFACE)
# clang's -Wconversion is about signs, too, which in tests says little (for (std::size_t n : {1, 2})); headers and
# examples are held to it in tests/dialects.
target_compile_options(millrace_developer INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                                    $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)
if(MILLRACE_WERROR)
  target_compile_options(millrace_developer INTERFACE -Werror)
endif()

if(MILLRACE_SANITIZE)
  target_compile_options(millrace_developer INTERFACE -fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer
                                                      -fno-sanitize-recover=all)
  target_link_options(millrace_developer INTERFACE -fsanitize=${MILLRACE_SANITIZE})
  # Users need not take the option that makes symmetric transfer a tail call under g++, and the sanitizers undo it
  # anyway: these builds show that a long chain of coroutines does not overflow the stack without.
  target_compile_options(millrace_developer INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fno-optimize-sibling-calls>)
endif()
