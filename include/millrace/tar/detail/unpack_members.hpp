// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace millrace::tar::detail {

/// \file
/// The part of unpacker that reads formats with members of their own.

}  // namespace millrace::tar::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/tar/detail/impl/unpack_members.ipp>
#endif
