// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/compiler.hpp>
#include <millrace/http/detail/failure_of.hpp>

namespace millrace::http::detail {

MILLRACE_INLINE failure failure_of(CURLcode rc) noexcept {
  switch (rc) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return failure::resolve;
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
      return failure::connect;
    case CURLE_OPERATION_TIMEDOUT:
      return failure::timeout;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
      return failure::tls;
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
      return failure::broken;
    case CURLE_FILESIZE_EXCEEDED:
      return failure::too_large;
    default:
      return failure::protocol;
  }
}

}  // namespace millrace::http::detail
