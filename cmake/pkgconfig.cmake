# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# Installs millrace-<component>.pc, and millrace.pc with what millrace.hpp needs. All of them, whatever the packaging
# machine had, as with the CMake package: pkg-config names what is missing. The CUDA Toolkit names its files after its
# version: the variable cuda of millrace-cuda and millrace-nvjpeg is its folder (pkg-config --define-variable=cuda=...).
# Debian's name of MPI is that of the implementation that it was set to, mpi-c. The flags of a component say that
# src/millrace.cpp has its bodies; the variable source of each file is the one source to compile. Where the bodies are
# installed as a library, millrace-compiled.pc links it, with all components that it was made with.

set(millrace_pc_dir ${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig)
file(RELATIVE_PATH millrace_pc_source ${millrace_pc_dir} ${CMAKE_INSTALL_FULL_DATADIR}/millrace/millrace.cpp)
file(RELATIVE_PATH millrace_pc_lib ${millrace_pc_dir} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH millrace_pc_include ${millrace_pc_dir} ${CMAKE_INSTALL_FULL_INCLUDEDIR})

# millrace_pc(<name> <description> <modules it needs> [<cflags> <libs>])
function(millrace_pc millrace_pc_name millrace_pc_description millrace_pc_requires)
  set(millrace_pc_cflags "${ARGV3}")
  set(millrace_pc_libs "${ARGV4}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/millrace.pc.in pkgconfig/${millrace_pc_name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/${millrace_pc_name}.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
endfunction()

millrace_pc(millrace-core "coroutines, stages, the event loop, files" "liburing >= 2.3" "-I\${includedir} -pthread"
            -pthread)
millrace_pc(millrace-http "the HTTP client of millrace" "millrace-core libcurl >= 7.88" -DMILLRACE_WITH_HTTP)
millrace_pc(millrace-s3 "S3 and what reads from it" "millrace-http libcrypto >= 3.0 expat"
            -DMILLRACE_WITH_S3)
millrace_pc(millrace-tar "compressed archives for millrace"
            "millrace-core libarchive >= 3.6 zlib >= 1.2.11 libzstd >= 1.4" -DMILLRACE_WITH_TAR)
millrace_pc(millrace-jpeg "JPEG decoding for millrace" "millrace-core libjpeg >= 2.1" -DMILLRACE_WITH_JPEG)
millrace_pc(millrace-png "PNG decoding for millrace" "millrace-core spng >= 0.7" -DMILLRACE_WITH_PNG)
millrace_pc(millrace-webp "WebP decoding for millrace" "millrace-core libwebpdemux >= 1.0 libwebp >= 1.0"
            -DMILLRACE_WITH_WEBP)
millrace_pc(millrace-audio "recordings for millrace" "millrace-core sndfile >= 1.1 soxr >= 0.1.3" -DMILLRACE_WITH_AUDIO)
millrace_pc(millrace-json "JSON lines for millrace" "millrace-core simdjson >= 3.0")
millrace_pc(millrace-dlpack "tensors by DLPack for millrace" "millrace-core" -DMILLRACE_WITH_DLPACK)
millrace_pc(millrace-s3_server "an S3 server in memory, for tests" "millrace-core libssl >= 3.0 libcrypto >= 3.0"
            -DMILLRACE_WITH_S3_SERVER)
millrace_pc(millrace-video "clips of videos for millrace"
            "millrace-core libavformat >= 59.27 libavcodec >= 59.37 libswscale >= 6.7 libavutil >= 57.28")
millrace_pc(millrace-parquet "rows of Parquet files for millrace" "millrace-s3 millrace-tar parquet >= 24 arrow >= 24")
millrace_pc(millrace-mpi "ranks that talk by MPI" "millrace-core mpi-c"
            "-DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX")
millrace_pc(millrace-pmix "ranks that talk by PMIx" "millrace-core pmix >= 4.0")
millrace_pc(millrace-cuda "batches in GPU memory" millrace-core "-I\${cuda}/include" "-L\${cuda}/lib64 -lcudart")
millrace_pc(millrace-nvjpeg "JPEGs decoded on a GPU" millrace-cuda "" "-L\${cuda}/lib64 -lnvjpeg")
millrace_pc(millrace "${PROJECT_DESCRIPTION}" "millrace-s3 millrace-tar millrace-jpeg")
if(millrace_library_components)
  list(TRANSFORM millrace_library_components PREPEND "millrace-" OUTPUT_VARIABLE millrace_pc_modules)
  list(JOIN millrace_pc_modules " " millrace_pc_modules)
  millrace_pc(millrace-compiled "the bodies of millrace, compiled" "${millrace_pc_modules}"
              -DMILLRACE_SEPARATE_COMPILATION "-L\${libdir} -lmillrace")
endif()
