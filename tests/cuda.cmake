# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# The tests of cuda/, built three times, with the toolkit's headers:
#   test_cuda          against the model of tests/fake_cuda, which does everything late
#   test_cuda_threads  against the model of tests/threaded_cuda, in which every stream is a thread
#   test_cuda_gpu      against the real runtime
# Files that include one of the models are left out of the other binaries. MILLRACE_TEST_THREADED_CUDA and
# MILLRACE_TEST_REAL_CUDA tell the others where they are.

# Decoding by nvJPEG needs its header, and libjpeg-turbo, which stands in for its library beside the models.
millrace_missing_of(without_nvjpeg nvjpeg jpeg)
if(without_nvjpeg)
  list(FILTER sources_cuda EXCLUDE REGEX "/(nvjpeg|resident_images|image_ordering)_test\\.cpp$")
  set(nvjpeg_libraries "")
  foreach(component IN LISTS without_nvjpeg)
    message(STATUS "tests/cuda's tests of images on a GPU are in no binary: ${millrace_${component}_WHY}")
  endforeach()
else()
  set(nvjpeg_libraries "millrace::jpeg")
endif()

# Ranges in NVTX are counted by a shared object, which NVTX loads in the place of a profiler.
find_path(millrace_nvtx_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(NOT millrace_nvtx_INCLUDE_DIR)
  list(FILTER sources_cuda EXCLUDE REGEX "/nvtx_test\\.cpp$")
  message(STATUS "tests/cuda/nvtx_test.cpp is in no binary: the CUDA Toolkit here has no NVTX 3")
else()
  add_library(millrace_test_nvtx_counter MODULE cuda/nvtx_counter.cpp)
  set_target_properties(millrace_test_nvtx_counter PROPERTIES CXX_VISIBILITY_PRESET hidden)
  target_include_directories(millrace_test_nvtx_counter SYSTEM PRIVATE ${millrace_nvtx_INCLUDE_DIR})
  target_compile_features(millrace_test_nvtx_counter PRIVATE cxx_std_20)
  target_link_libraries(millrace_test_nvtx_counter PRIVATE millrace_developer)
endif()
function(millrace_test_counts_ranges binary)
  if(TARGET millrace_test_nvtx_counter)
    add_dependencies(${binary} millrace_test_nvtx_counter)
    target_compile_definitions(${binary} PRIVATE
                               MILLRACE_TEST_NVTX_COUNTER="$<TARGET_FILE:millrace_test_nvtx_counter>")
    target_link_libraries(${binary} PRIVATE ${CMAKE_DL_LIBS})
  endif()
endfunction()

set(fake_sources "")
set(threads_sources "")
set(gpu_sources "")
foreach(source IN LISTS sources_cuda)
  file(STRINGS ${source} steers REGEX "#include .*(fake|threaded)_cuda/")
  if(NOT steers)
    list(APPEND fake_sources ${source})
    list(APPEND threads_sources ${source})
    list(APPEND gpu_sources ${source})
  elseif(steers MATCHES "fake_cuda/")
    list(APPEND fake_sources ${source})
  else()
    list(APPEND threads_sources ${source})
  endif()
endforeach()

foreach(model IN ITEMS fake threaded)
  file(GLOB model_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${model}_cuda/*.cpp)
  if(without_nvjpeg)
    list(FILTER model_sources EXCLUDE REGEX "/nvjpeg\\.cpp$")
  endif()
  # It passes types of the library, so it is a source of the tests, in their mode. The rest is linked to what is
  # header-only, too: the planted defects.
  list(FILTER model_sources EXCLUDE REGEX "/normalise\\.cpp$")
  add_library(millrace_${model}_cuda OBJECT ${model_sources})
  target_include_directories(millrace_${model}_cuda PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(millrace_${model}_cuda SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(millrace_${model}_cuda PRIVATE millrace_core millrace_developer)
  if(NOT without_nvjpeg)
    target_sources(millrace_${model}_cuda PRIVATE nvjpeg_model/nvjpeg.cpp nvjpeg_model/decode.cpp)
    target_include_directories(millrace_${model}_cuda SYSTEM PUBLIC ${millrace_nvjpeg_INCLUDE_DIR})
    target_link_libraries(millrace_${model}_cuda PRIVATE PkgConfig::millrace_libjpeg)
  endif()
endforeach()
target_compile_definitions(millrace_threaded_cuda INTERFACE MILLRACE_TEST_THREADED_CUDA=1)

millrace_test_binary(test_cuda "millrace::core;${nvjpeg_libraries};millrace_fake_cuda" ${fake_sources})
target_sources(test_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/fake_cuda/normalise.cpp)
millrace_test_counts_ranges(test_cuda)
add_test(NAME test_cuda COMMAND test_cuda)
millrace_test_binary(test_cuda_threads "millrace::core;${nvjpeg_libraries};millrace_threaded_cuda" ${threads_sources})
target_sources(test_cuda_threads PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/threaded_cuda/normalise.cpp)
millrace_test_counts_ranges(test_cuda_threads)
add_test(NAME test_cuda_threads COMMAND test_cuda_threads)
set_tests_properties(test_cuda test_cuda_threads PROPERTIES TIMEOUT ${timeout} SKIP_RETURN_CODE 77)
set_tests_properties(test_cuda PROPERTIES LABELS quick)

# What ThreadSanitizer must report, or it would see orders in that model which CUDA does not give.
if(MILLRACE_SANITIZE MATCHES "thread")
  file(STRINGS cuda/threaded_cuda_test.cpp races REGEX "^TEST_CASE\\(\"race: ")
  foreach(race IN LISTS races)
    string(REGEX REPLACE "^TEST_CASE\\(\"(race: [^\"]*)\".*" "\\1" race "${race}")
    string(REGEX REPLACE "[^a-z]+" "_" name "${race}")
    add_test(NAME test_cuda_threads.${name} COMMAND test_cuda_threads ${race})
    set_tests_properties(test_cuda_threads.${name} PROPERTIES TIMEOUT ${timeout}
                         PASS_REGULAR_EXPRESSION "WARNING: ThreadSanitizer: data race")
  endforeach()
endif()

# The tests of order, of copies and of images, with copies of some headers that have defects in them: each must be
# found, on both models. Header-only in every preset, so that bodies can be planted too.
set(defects ${CMAKE_CURRENT_SOURCE_DIR}/cuda/defects.py)
set(planted ${CMAKE_CURRENT_BINARY_DIR}/planted)
file(GLOB_RECURSE changed CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/millrace/device/*.?pp
     ${PROJECT_SOURCE_DIR}/include/millrace/cuda/*.hpp)
add_custom_command(
  OUTPUT ${planted}/stamp
  COMMAND ${Python3_EXECUTABLE} ${defects} plant ${PROJECT_SOURCE_DIR}/include ${planted}
  COMMAND ${CMAKE_COMMAND} -E touch ${planted}/stamp
  DEPENDS ${defects} ${changed}
  COMMENT "Planting defects in copies of headers")
set(defect_groups copies)
set(copies_source cuda/ordering_test.cpp)
set(images_source cuda/image_ordering_test.cpp)
if(NOT without_nvjpeg)
  list(APPEND defect_groups images)
endif()
# They show that the tests see what they should, which a check of addresses adds nothing to. A check of threads sees
# races in the model that has threads.
set(defect_models fake threaded)
if(MILLRACE_SANITIZE MATCHES "address")
  set(defect_models "")
elseif(MILLRACE_SANITIZE MATCHES "thread")
  set(defect_models threaded)
endif()
foreach(group IN LISTS defect_groups)
  foreach(model IN LISTS defect_models)
    set(name cuda_defects_${group}_${model})
    add_executable(${name} ${${group}_source} ${planted}/stamp)
    target_include_directories(${name} BEFORE PRIVATE ${planted})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/generated)
    target_compile_options(${name} PRIVATE "SHELL:-include ${CMAKE_CURRENT_SOURCE_DIR}/cuda/planted.hpp")
    target_link_libraries(${name} PRIVATE Catch2::Catch2WithMain millrace::core ${nvjpeg_libraries}
                                          millrace_${model}_cuda millrace_developer)
    set(ways kernels)
    if(model STREQUAL "threaded" AND MILLRACE_SANITIZE MATCHES "thread")
      set(ways kernels,races)
    endif()
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${defects} check ${group} ${ways} $<TARGET_FILE:${name}>)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout})
  endforeach()
endforeach()

# nvcc, for what users write in a .cu, and for the kernels of the tests. Older ones than 13 are not tried.
set(nvcc OFF)
if(TARGET CUDA::cudart_static AND NOT MILLRACE_SANITIZE AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(nvcc ON)
    enable_language(CUDA)
    string(TOUPPER "${CMAKE_BUILD_TYPE}" configuration)
    set(CMAKE_CUDA_FLAGS_${configuration} "")  # here: it compiles in half the time when nothing is optimised
  endif()
endif()

if(NOT nvcc)
  foreach(source IN LISTS gpu_sources)
    file(STRINGS ${source} kernels REGEX "#include .*cuda/(kernels|normalise|watch).hpp")
    if(kernels)
      list(REMOVE_ITEM gpu_sources ${source})
      message(STATUS "${source} is not in test_cuda_gpu: its kernels need nvcc 13")
    endif()
  endforeach()
endif()
if(NOT TARGET CUDA::cudart_static)
  millrace_add_skipped_test(test_cuda_gpu "the CUDA Toolkit here has no static runtime")
elseif(gpu_sources AND NOT MILLRACE_SANITIZE)
  millrace_test_binary(test_cuda_gpu "millrace::core;${nvjpeg_libraries};CUDA::cudart_static" ${gpu_sources})
  target_compile_definitions(test_cuda_gpu PRIVATE MILLRACE_TEST_REAL_CUDA=1)
  millrace_test_counts_ranges(test_cuda_gpu)
  if(NOT without_nvjpeg)
    target_link_libraries(test_cuda_gpu PRIVATE millrace::nvjpeg_library)
  endif()
  target_include_directories(test_cuda_gpu SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  if(nvcc)
    add_library(millrace_test_kernels OBJECT cuda/kernels.cu cuda/normalise.cu)
    target_include_directories(millrace_test_kernels PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(millrace_test_kernels PRIVATE millrace::core)
    target_compile_options(millrace_test_kernels PRIVATE -std=c++20 --diag-suppress=3001)
    if(MILLRACE_TEST_COMPILED)  # in the mode of the tests
      target_compile_definitions(millrace_test_kernels PRIVATE MILLRACE_SEPARATE_COMPILATION)
    endif()
    set_target_properties(millrace_test_kernels PROPERTIES CUDA_ARCHITECTURES 75-virtual CUDA_RUNTIME_LIBRARY Static)
    target_link_libraries(test_cuda_gpu PRIVATE millrace_test_kernels)
  endif()
  add_executable(gpu_probe support/gpu_probe.cpp)
  target_include_directories(gpu_probe PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(gpu_probe PRIVATE CUDA::cudart_static)
  # The probe leaves with 77 where there is no GPU, and starts the tests where there is one.
  add_test(NAME test_cuda_gpu COMMAND gpu_probe $<TARGET_FILE:test_cuda_gpu>)
  set_tests_properties(test_cuda_gpu PROPERTIES TIMEOUT ${timeout} SKIP_RETURN_CODE 77 LABELS gpu RUN_SERIAL TRUE)
endif()

if(nvcc)
  add_executable(test_nvcc cuda/pipeline.cu)
  target_link_libraries(test_nvcc PRIVATE millrace::core CUDA::cudart_static)
  # CMake knows of C++20 here since 3.26 only. #3001: nvcc takes `x = f()` for an ignored result.
  target_compile_options(test_nvcc PRIVATE -std=c++20 --diag-suppress=3001)
  set_target_properties(test_nvcc PROPERTIES CUDA_ARCHITECTURES 75-virtual CUDA_RUNTIME_LIBRARY Static)
  add_test(NAME test_nvcc COMMAND gpu_probe $<TARGET_FILE:test_nvcc>)
  set_tests_properties(test_nvcc PROPERTIES TIMEOUT ${timeout} SKIP_RETURN_CODE 77 LABELS gpu RUN_SERIAL TRUE)
  # The rest of what a pipeline from S3 needs: that it compiles is the test.
  millrace_missing_of(missing s3 tar)
  if(NOT missing)
    add_library(nvcc_headers OBJECT cuda/headers.cu ${PROJECT_SOURCE_DIR}/docs/guide/code/normalise.cu)
    target_link_libraries(nvcc_headers PRIVATE millrace::s3 millrace::tar CUDA::cudart_static)
    # #2975: nvcc does not see that a coroutine which ends by std::rethrow_exception() never comes to its end.
    target_compile_options(nvcc_headers PRIVATE -std=c++20 --diag-suppress=3001,2975)
    set_target_properties(nvcc_headers PROPERTIES CUDA_ARCHITECTURES 75-virtual)
    # As a user of millrace::compiled has it: declarations alone, in half the time.
    set_source_files_properties(${PROJECT_SOURCE_DIR}/docs/guide/code/normalise.cu
                                PROPERTIES COMPILE_DEFINITIONS MILLRACE_SEPARATE_COMPILATION)
  endif()
elseif(NOT MILLRACE_SANITIZE)
  millrace_add_skipped_test(test_nvcc "it needs nvcc 13 and the static runtime")
endif()
