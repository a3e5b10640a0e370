// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/testing/s3_server/detail/canonical_request.hpp>
#include <millrace/testing/s3_server/detail/percent.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/refusal.hpp>

namespace millrace::s3_server::detail {

/// Refuses text that is not what SigV4's own encoding of its bytes would be: lower-case hexadecimal, a bare `+`, an
/// escaped letter. S3 would encode it again before comparing; a signer that depends on that is one bug away from a 403.
MILLRACE_INLINE void require_canonical(std::string_view text, bool keep_slash, const char* what) {
  const std::optional<std::string> decoded = percent_decode(text);
  if (!decoded || percent_encode(*decoded, keep_slash) != text) {
    throw refusal(403, "SignatureDoesNotMatch",
                  std::string("The ") + what + " of a signed request is not percent-encoded as SigV4 encodes it")
        .with("Encoded", std::string(text));
  }
}

MILLRACE_INLINE std::string canonical_query(const request& r) {
  std::vector<std::pair<std::string_view, std::string_view>> parts;
  const std::string_view raw = r.raw_query();
  if (!raw.empty()) {
    for (std::string_view part : split(raw, '&')) {
      const std::size_t equals = part.find('=');
      const std::string_view name = part.substr(0, equals);
      const std::string_view value = equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
      require_canonical(name, false, "query");
      require_canonical(value, false, "query");
      if (name != "X-Amz-Signature") parts.emplace_back(name, value);
    }
  }
  std::sort(parts.begin(), parts.end());
  std::string out;
  for (const auto& [name, value] : parts) {
    if (!out.empty()) out += '&';
    out.append(name).append("=").append(value);
  }
  return out;
}

MILLRACE_INLINE std::string collapsed(std::string_view value) {
  std::string out;
  for (char c : trim(value)) {
    const bool blank = c == ' ' || c == '\t';
    if (blank && !out.empty() && out.back() == ' ') continue;
    out += blank ? ' ' : c;
  }
  return out;
}

MILLRACE_INLINE std::string canonical_request(const request& r, const std::vector<std::string_view>& signed_names,
                                              std::string_view payload) {
  require_canonical(r.raw_path(), true, "path");
  std::string out = r.method;
  out.append("\n").append(r.raw_path()).append("\n").append(canonical_query(r)).append("\n");
  std::string names;
  for (std::string_view name : signed_names) {
    out.append(name) += ':';
    bool first = true;
    for (const auto& [field, value] : r.fields) {
      if (field != name) continue;
      if (!first) out += ',';
      out += collapsed(value);
      first = false;
    }
    if (first) {
      throw refusal(403, "SignatureDoesNotMatch", "A header that is named as signed was not sent")
          .with("HeaderNotSent", std::string(name));
    }
    out += '\n';
    if (!names.empty()) names += ';';
    names += name;
  }
  return out.append("\n").append(names).append("\n").append(payload);
}

}  // namespace millrace::s3_server::detail
