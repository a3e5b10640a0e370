// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// libFuzzer: heads of answers, as the HTTP client judges them, and heads of requests, as the S3 server reads them. The
// first three bytes choose the request: its method, its range, and how many bytes of the body arrive.
//
//   clang++-16 -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/http_fuzz.cpp -lcrypto

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <millrace/http/message.hpp>
#include <millrace/testing/s3_server/detail/body_check.hpp>

namespace {

namespace http = millrace::http;

void require(bool condition) {
  if (!condition) std::abort();
}

void read_answer(std::string_view text, const http::request& asked, std::uint64_t received) {
  http::detail::head_parser parser(asked);
  try {
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end == std::string_view::npos ? text.size() : end + 1);
      text.remove_prefix(line.size());
      const bool before = parser.complete();
      const bool completed = parser.line(line);
      require(completed == (!before && parser.complete()));
    }
    if (!parser.complete()) return;
    const http::response_head& head = parser.head();
    require(head.status >= 200);
    if (head.status == 206 && (asked.range || asked.method != "HEAD")) {  // a HEAD may ask for a part by its number
      require(asked.range && head.range && head.range->first == asked.range->first);
      require(head.range->last <= asked.range->last && head.range->last >= head.range->first);
      require(!head.length || *head.length == head.range->last - head.range->first + 1);
    }
    for (const auto& [name, value] : head.fields) {
      require(!name.empty() && value.find_first_of("\r\n") == std::string::npos);
    }
    parser.check_body(received);
  } catch (const http::error& e) {
    require(e.what()[0] != '\0');
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  http::request asked(data[0] % 4 == 0 ? "HEAD" : "GET", "http://h/object");
  if (data[0] % 3 != 0) asked.range = http::byte_range{data[1], data[1] + std::uint64_t(data[1] % 16)};
  read_answer(text, asked, data[2]);

  millrace::s3_server::request received;
  if (millrace::s3_server::detail::parse_head(text, received) == nullptr) {
    require(!received.method.empty() && !received.target.empty());
  }
  return 0;
}
