// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/units.hpp>
#include <millrace/testing/store_limits.hpp>
#include <millrace/version.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server {

/// How a server speaks TLS. Its certificate and the authority that signs it are made when the server starts; a client
/// names certificate_file() of the server, the authority's, as its file of authorities.
class tls_options {
 public:
  /// Sent instead of a handshake.
  enum class handshake : std::uint8_t {
    normal,
    reset,       ///< the connection is reset at the first byte
    close,       ///< it is closed at the first byte
    stall,       ///< nothing is answered
    plain_text,  ///< an HTTP answer comes instead of a ServerHello
  };

  tls_options() = default;

  bool enabled = false;
  std::string certificate_name;  ///< when not empty, the only DNS name of the certificate: a wrong one, for tests
  bool expired = false;          ///< the certificate's time has passed
  handshake greeting = handshake::normal;
  std::string certificate_file;  ///< path of the authority's PEM; empty: a temporary file, removed at the end
};

/// A secret access key and its properties.
class access_key {
 public:
  access_key() = default;
  explicit access_key(std::string secret_key, std::string token = std::string(), bool has_expired = false)
      : secret(std::move(secret_key)), session_token(std::move(token)), expired(has_expired) {}

  std::string secret;
  std::string session_token;  ///< when not empty, requests must carry and sign it
  bool expired = false;       ///< requests are refused with ExpiredToken, once their signature is right
};

/// A store that is not on this machine: how long its answers take. All zero: as fast as the machine.
class distance {
 public:
  distance() = default;

  duration first_byte{0};  ///< from a request to its answer's first byte: the median
  double spread = 0;       ///< standard deviation of its logarithm; 0: always the same
  std::optional<testing::latency_curve> latency;  ///< in place of these two: a distribution with a long tail
  duration connect{0};     ///< before the first request of a connection is looked at
  std::uint64_t connection_rate = 0;  ///< bytes in a second that one connection sends; 0: no limit
  std::uint64_t link_rate = 0;        ///< bytes in a second that all send together; 0: no limit
  std::size_t requests = 0;           ///< in service at a time: one more gets 503 SlowDown; 0: no limit
  /// Requests in a second for all keys of a bucket with the same first component, as S3 counts them: 5,500 that read
  /// and 3,500 that write. A bucket of tokens for each prefix fills at that rate; a request that finds it empty gets
  /// 503 SlowDown and takes none. 0: no limit.
  double reads_each_second = 0;
  double writes_each_second = 0;
  double burst = 0.1;  ///< how many seconds of these a full bucket of tokens holds; one request at least
  duration split_after{0};  ///< request_limit::split_after of each prefix

  /// True if bodies are sent piece by piece.
  bool paced() const noexcept { return connection_rate != 0 || link_rate != 0; }
};

/// The rights of requests without a signature.
enum class anonymous_access { none, read, write };

/// How a server behaves; fixed when it is made, except where the server has a function of the same name.
class options {
 public:
  options() = default;

  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: a free one
  std::string region = "us-east-1";
  std::map<std::string, access_key> keys{{"test-key", access_key("test-secret")}};
  anonymous_access anonymous = anonymous_access::none;
  /// Host names under which buckets are parts of the path (`http://name/bucket/key`); `bucket.name` is virtual-hosted
  /// style. IPv4 addresses are always path style. Any other host is refused.
  std::vector<std::string> host_names{"localhost"};
  std::int64_t clock_offset = 0;                  ///< seconds by which the server's clock is ahead of the machine's
  std::size_t list_page = 1000;                   ///< the most keys in one page of a listing
  std::uint64_t min_part_size = 5 * MiB;          ///< of every part of an upload but the last
  std::uint64_t max_object_size = 5 * GiB;        ///< of one PUT
  std::uint64_t max_requests_per_connection = 0;  ///< then the server closes it; 0: no limit
  std::size_t log_limit = 100000;                 ///< entries kept in the request log
  /// Off: like a store that knows no checksums. Their fields mean nothing to it, it keeps and answers none, and the
  /// list that completes an upload may say PartNumber and ETag of each part, and no more.
  bool checksums = true;
  tls_options tls;
  distance away;
};

}  // namespace millrace::s3_server
