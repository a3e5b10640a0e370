// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/environment.hpp>
#include <millrace/s3/config/config.hpp>

namespace millrace::s3 {

/// What a client from this environment would use, setting by setting, and why: which source won, which ones are set but
/// overruled, which are not set. Reads the configuration files, makes no request; what is broken is said in its place.
/// The text is for people and changes; no secret is in it.
std::string explain(const environment& variables = process_environment(),
                    const config_options& given = config_options());

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/auth/impl/explain.ipp>
#endif
