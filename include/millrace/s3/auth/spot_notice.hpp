// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/coro/task.hpp>

namespace millrace::inline MILLRACE_ABI::s3 {

/// Ends when AWS announces that it takes this spot instance away (two minutes before it does), and returns the
/// announcement. For pipeline_run::stop_when():
///
///     run.stop_when(mill::s3::spot_notice());
///
/// Asks the instance metadata service (/latest/meta-data/spot/instance-action, version 2, with a token) each time that
/// `every` has passed. Any action counts: terminate, stop, hibernate. No notice, no answer, 5xx and an answer that
/// cannot be read are none: it goes on asking, and a line in the log says why, once until an answer comes again.
/// AWS_EC2_METADATA_SERVICE_ENDPOINT and the variables and properties beside it say where and how the service is
/// reached; ends with a configuration_error if AWS_EC2_METADATA_DISABLED is true. Variables and profile are read now.
MILLRACE_COROUTINE task<std::string> spot_notice(duration every = duration(5'000'000'000),
                                                 const environment& variables = process_environment());

}  // namespace millrace::s3

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/auth/spot_notice.ipp>
#endif
