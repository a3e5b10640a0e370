// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/environment.hpp>
#include <millrace/s3/config/config.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// Shows the settings of a client in this environment, one by one, and why: which source won, which ones are set but
/// overruled, which are not set. Reads the configuration files and sends no request; a setting that is broken is
/// reported where it is listed. The text is for people and may change; it holds no secret.
std::string explain(const environment& variables = process_environment(),
                    const config_options& given = config_options());

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/auth/explain.ipp>
#endif
