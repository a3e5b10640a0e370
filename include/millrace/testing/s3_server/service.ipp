// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/body_check.hpp>
#include <millrace/testing/s3_server/detail/requests.hpp>
#include <millrace/testing/s3_server/service.hpp>

namespace millrace::s3_server {

MILLRACE_INLINE caller service::admit(request& r) const {
  detail::route(r, options_);
  caller who = signatures_.verify(r, clock_.now());
  const bool reads = r.method == "GET" || r.method == "HEAD";
  const bool allowed =
      options_.anonymous == anonymous_access::write || (options_.anonymous == anonymous_access::read && reads);
  if (who.anonymous && !allowed) throw refusal(403, "AccessDenied", "Access Denied");
  return who;
}

MILLRACE_INLINE reply service::answer(request& r, const caller& who) {
  std::vector<object::field> checksums = detail::check_body(r, who.payload);
  if (!options_.checksums) checksums.clear();
  if (r.bucket.empty()) throw refusal(501, "NotImplemented", "Buckets are not listed by this server");
  for (const char* name : {"versionId", "acl", "tagging", "versions", "attributes", "torrent"}) {
    if (r.has(name) && !r.has("uploadId")) throw not_implemented(std::string("?") + name);
  }
  return r.key.empty() ? answer_bucket(r) : answer_object(r, std::move(checksums));
}

MILLRACE_INLINE reply service::answer(const request& r, const refusal& why, const std::string& request_id) const {
  reply a(why.status);
  for (const auto& [name, value] : why.fields) a.add(name, value);
  a.set_document(why.document(std::string(r.raw_path()), request_id));
  return a;
}

MILLRACE_INLINE reply service::answer_bucket(const request& r) {
  if (r.method == "HEAD") return detail::head_bucket(store_, r, options_);
  if (r.method == "PUT" && r.query.empty()) return detail::create_bucket(store_, r);
  if (r.method != "GET") throw not_implemented(r.method + " of a bucket");
  if (r.has("location")) return detail::bucket_location(store_, r, options_);
  if (r.has("uploads")) return detail::list_uploads(store_, r);
  const std::string* type = r.parameter_value("list-type");
  if (type == nullptr || *type != "2") throw not_implemented("listings other than ListObjectsV2");
  return detail::list_objects(store_, r, options_);
}

MILLRACE_INLINE reply service::answer_object(const request& r, std::vector<object::field> checksums) {
  const bool part_of_upload = r.has("uploadId");
  if (r.method == "GET" && part_of_upload) return detail::list_parts(store_, r);
  if (r.method == "HEAD" && r.has("partNumber")) return detail::head_part(store_, r);
  if (r.has("partNumber") && !part_of_upload) throw not_implemented("?partNumber");
  if (r.method == "GET" || r.method == "HEAD") return detail::get_object(store_, r);
  if (r.field("x-amz-copy-source") != nullptr) throw not_implemented("x-amz-copy-source");
  if (r.method == "PUT" && part_of_upload) return detail::put_part(store_, r, checksums);
  if (r.method == "PUT") return detail::put_object(store_, r, std::move(checksums));
  if (r.method == "DELETE" && part_of_upload) return detail::abort_upload(store_, r);
  if (r.method == "DELETE") return detail::delete_object(store_, r);
  if (r.method == "POST" && r.has("uploads")) return detail::start_upload(store_, r, options_);
  if (r.method == "POST" && part_of_upload) return detail::complete_upload(store_, r, options_);
  throw refusal(405, "MethodNotAllowed", "The specified method is not allowed against this resource.");
}

}  // namespace millrace::s3_server
