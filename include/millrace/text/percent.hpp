// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace::text {

namespace detail {

/// A table, since every byte of a request's path is looked up before it is signed.
struct unreserved_bytes {
  bool at[256] = {};
  constexpr unreserved_bytes() noexcept {
    for (unsigned char c = 'a'; c <= 'z'; ++c) at[c] = true;
    for (unsigned char c = 'A'; c <= 'Z'; ++c) at[c] = true;
    for (unsigned char c = '0'; c <= '9'; ++c) at[c] = true;
    for (char c : {'-', '.', '_', '~'}) at[static_cast<unsigned char>(c)] = true;
  }
};
inline constexpr unreserved_bytes unreserved;

/// The bytes that S3 never percent-encodes: `unreserved` of RFC 3986, section 2.3.
inline bool is_unreserved(char c) noexcept { return unreserved.at[static_cast<unsigned char>(c)]; }

void append_uri_encoded(std::string& out, std::string_view text, bool keep_slash);

}  // namespace detail

/// Appends `text` encoded once for a path: every byte but unreserved ones and `/`, upper-case hexadecimal, no
/// normalisation of `//` or dot segments. What is signed and what is sent are these very bytes.
inline void append_encoded_path(std::string& out, std::string_view text) {
  detail::append_uri_encoded(out, text, true);
}

/// Appends `text` encoded once for the name or the value of a query parameter: `/` too, a space as `%20`, never `+`.
inline void append_encoded_query(std::string& out, std::string_view text) {
  detail::append_uri_encoded(out, text, false);
}

std::string encode_path(std::string_view text);

std::string encode_query(std::string_view text);

/// Appends `name=value` to a query string, both encoded, with `&` when something is there already.
void append_query_parameter(std::string& query, std::string_view name, std::string_view value);

/// What a `+` means to uri_decode.
enum class plus_sign {
  literal,  ///< itself (RFC 3986)
  space,    ///< a space: HTML forms, and keys in S3 answers with `encoding-type=url`
};

/// The bytes behind percent-encoded text; nothing when a `%` is not followed by two hexadecimal digits.
std::optional<std::string> uri_decode(std::string_view text, plus_sign plus = plus_sign::literal);

}  // namespace millrace::text

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/text/impl/percent.ipp>
#endif
