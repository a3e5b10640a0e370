// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <millrace/base/compiler.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/s3/wire/detail/body_checksum.hpp>

namespace millrace::s3::detail {

/// A HEAD for the version `etag` of an object, any version when that is empty or not to be asked for.
operation head_of(std::string bucket, std::string key, const std::string& etag);

/// Whether a composite checksum can be compared with the bytes of an object of `size` bytes: whether its upload had
/// parts of one size, as far as the first and their number tell.
MILLRACE_COROUTINE task<bool> find_parts(const session& s, body_checksum& sum, std::string bucket, std::string key,
                                         std::string etag, std::uint64_t size);

/// Whether the parts of the upload are those of find_parts(), indeed: asked of each, before damage is said to be found.
MILLRACE_COROUTINE task<bool> parts_alike(const session& s, const body_checksum& sum, std::string bucket,
                                          std::string key, std::string etag);

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/ops/detail/impl/upload_parts.ipp>
#endif
