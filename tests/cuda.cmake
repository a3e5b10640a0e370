# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# The tests of cuda/, built twice: test_cuda against the fake runtime of tests/fake_cuda (the toolkit's headers, nothing
# of its libraries, no GPU), and test_cuda_gpu against the real one. Files that steer the fake are left out of the latter,
# and MILLRACE_TEST_REAL_CUDA is defined in it.

file(GLOB fake_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fake_cuda/*.cpp)
if(fake_sources)
  millrace_test_binary(test_cuda millrace::core ${sources_cuda} ${fake_sources})
  target_include_directories(test_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  add_test(NAME test_cuda COMMAND test_cuda)
  set_tests_properties(test_cuda PROPERTIES TIMEOUT ${timeout} SKIP_RETURN_CODE 77)
else()
  millrace_add_skipped_test(test_cuda "tests/fake_cuda is empty")
endif()

set(gpu_sources "")
foreach(source IN LISTS sources_cuda)
  file(STRINGS ${source} steers_fake REGEX "#include .*fake_cuda/")
  if(NOT steers_fake)
    list(APPEND gpu_sources ${source})
  endif()
endforeach()
if(NOT TARGET CUDA::cudart_static)
  millrace_add_skipped_test(test_cuda_gpu "the CUDA Toolkit here has no static runtime")
elseif(gpu_sources AND NOT MILLRACE_SANITIZE)
  millrace_test_binary(test_cuda_gpu "millrace::core;CUDA::cudart_static" ${gpu_sources})
  target_compile_definitions(test_cuda_gpu PRIVATE MILLRACE_TEST_REAL_CUDA=1)
  target_include_directories(test_cuda_gpu SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  add_executable(gpu_probe support/gpu_probe.cpp)
  target_include_directories(gpu_probe PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(gpu_probe PRIVATE CUDA::cudart_static)
  # The probe leaves with 77 where there is no GPU, and starts the tests where there is one.
  add_test(NAME test_cuda_gpu COMMAND gpu_probe $<TARGET_FILE:test_cuda_gpu>)
  set_tests_properties(test_cuda_gpu PROPERTIES TIMEOUT ${timeout} SKIP_RETURN_CODE 77 LABELS gpu RUN_SERIAL TRUE)
endif()

# What users write in a .cu: the library must get through nvcc, too. Older ones than 13 are not tried.
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER AND TARGET gpu_probe AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13)
  enable_language(CUDA)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" configuration)
  set(CMAKE_CUDA_FLAGS_${configuration} "")  # here: it compiles in half the time when nothing is optimised
  add_executable(test_nvcc cuda/pipeline.cu)
  target_link_libraries(test_nvcc PRIVATE millrace::core CUDA::cudart_static)
  # CMake knows of C++20 here since 3.26 only. #3001: nvcc takes `x = f()` for an ignored result.
  target_compile_options(test_nvcc PRIVATE -std=c++20 --diag-suppress=3001)
  set_target_properties(test_nvcc PROPERTIES CUDA_ARCHITECTURES 75-virtual CUDA_RUNTIME_LIBRARY Static)
  add_test(NAME test_nvcc COMMAND gpu_probe $<TARGET_FILE:test_nvcc>)
  set_tests_properties(test_nvcc PROPERTIES TIMEOUT ${timeout} SKIP_RETURN_CODE 77 LABELS gpu RUN_SERIAL TRUE)
elseif(NOT MILLRACE_SANITIZE)
  millrace_add_skipped_test(test_nvcc "it needs nvcc 13 and the static runtime")
endif()
