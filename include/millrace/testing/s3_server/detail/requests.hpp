// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/testing/s3_server/message.hpp>
#include <millrace/testing/s3_server/options.hpp>
#include <millrace/testing/s3_server/signature_check.hpp>
#include <millrace/testing/s3_server/store.hpp>

namespace millrace::inline MILLRACE_ABI::s3_server::detail {

/// Bytes [first, first + length) of an object.
class selection {
 public:
  selection() = default;
  selection(std::uint64_t begin, std::uint64_t count) : first(begin), length(count) {}
  std::uint64_t first = 0;
  std::uint64_t length = 0;
};

/// The part of an object that a Range field selects (RFC 9110, 14.1.2); nullopt when the whole object is to be sent: no
/// field, no byte range, or several of them. Throws refusal (416) if it begins after the end, as any range of an empty
/// object does.
std::optional<selection> parse_range(const std::string* field, std::uint64_t size);

/// True when the answer is 304; throws refusal (412) when If-Match names another object.
bool not_modified(const request& r, const object& o);

/// GetObject and HeadObject.
reply get_object(store& s, const request& r);

/// HeadObject of one part of the upload that made an object; one that came in one request has one part.
reply head_part(store& s, const request& r);

/// The fields of a PUT that belong to the object.
std::vector<object::field> kept_fields(const request& r);

bool only_if_new(const request& r);

reply put_object(store& s, const request& r, std::vector<object::field> checksums);

reply delete_object(store& s, const request& r);

inline constexpr std::string_view s3_namespace = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

/// Continuation tokens are opaque to clients: the position in hexadecimal, "p" for a rolled-up prefix.
inline std::string write_token(const list_position& at) { return (at.prefix ? 'p' : 'k') + to_hex(at.text); }

/// ListObjectsV2.
reply list_objects(store& s, const request& r, const options& o);

reply create_bucket(store& s, const request& r);
reply delete_bucket(store& s, const request& r);

reply head_bucket(store& s, const request& r, const options& o);

reply bucket_location(store& s, const request& r, const options& o);

/// CreateMultipartUpload.
reply start_upload(store& s, const request& r, const options& o);

std::uint64_t part_number(const std::string* text);

/// UploadPart.
reply put_part(store& s, const request& r, const std::vector<object::field>& checksums);

reply abort_upload(store& s, const request& r);

/// ListParts.
reply list_parts(store& s, const request& r);

/// ListMultipartUploads: all of them on one page.
reply list_uploads(store& s, const request& r);

/// CompleteMultipartUpload.
reply complete_upload(store& s, const request& r, const options& o);

bool is_ipv4(std::string_view host);

/// Finds bucket and key of a request in its host and path; throws refusal for a host that is not this server's.
void route(request& r, const options& o);

/// The operations of S3, without a wire: from a request to its answer. All three references must outlive it.
class service {
 public:
  service(store& objects, const options& o, const server_clock& time)
      : store_(objects), options_(o), clock_(time), signatures_(o) {}

  /// Finds bucket and key, verifies the signature and the rights of its sender, before the body is read. Throws
  /// refusal.
  caller admit(request& r) const;

  /// The answer to an admitted request whose body has been read. Throws refusal.
  reply answer(request& r, const caller& who);

  /// The error document for `why`.
  reply answer(const request& r, const refusal& why, const std::string& request_id) const;

 private:
  /// S3's own answer, code and message, to operations that a store does not serve.
  static refusal not_implemented(const std::string& what) {
    return refusal(501, "NotImplemented", "A header or operation you provided is not implemented").with("What", what);
  }

  reply answer_bucket(const request& r);

  reply answer_object(const request& r, std::vector<object::field> checksums);

  store& store_;
  const options& options_;
  const server_clock& clock_;
  signature_check signatures_;
};

}  // namespace millrace::s3_server::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/testing/s3_server/detail/requests.ipp>
#endif
