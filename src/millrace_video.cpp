// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// The bodies of millrace::video that are no templates, compiled once: the CMake target millrace::compiled_video builds
// this file beside src/millrace.cpp.

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#define MILLRACE_SEPARATE_COMPILATION
#endif

#include <millrace/base/compiler.hpp>

MILLRACE_QUIET_FRAMES

#include <millrace/decode/decode_video.ipp>
#include <millrace/decode/detail/video_file.ipp>
#include <millrace/decode/video_decoder.ipp>
#include <millrace/decode/video_sound.ipp>
