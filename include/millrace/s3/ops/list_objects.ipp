// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/coro/promise_base.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/s3/ops/list_objects.hpp>
#include <millrace/s3/ops/send.hpp>
#include <millrace/text/text.hpp>

namespace millrace::s3::detail {

MILLRACE_COROUTINE_BODY task<list_page> list_once(const session& s, const operation& op) {
  http::body_options small;
  http::exchange x = co_await send(s, op, std::move(small));
  const std::string text = co_await http::read_all(x, 32 * MiB);
  co_return list_page::parse(text, op.bucket);
}

}  // namespace millrace::s3::detail

namespace millrace::s3 {

MILLRACE_COROUTINE_BODY async_generator<shard> list_objects(std::shared_ptr<const session> s, url prefix,
                                                            std::uint64_t most_empty) {
  std::string token;
  std::string seen;  // an earlier token, moved on at every power of two: no cycle is missed (Brent)
  std::uint64_t pages = 0;
  std::uint64_t mark = 1;
  std::uint64_t empty = 0;  // pages since the last key; a few are right where many versions have been deleted
  std::size_t found = 0;
  for (;;) {
    operation op("GET", prefix.bucket(), std::string());
    text::append_query_parameter(op.query, "list-type", "2");
    text::append_query_parameter(op.query, "encoding-type", "url");
    if (!prefix.key().empty()) text::append_query_parameter(op.query, "prefix", prefix.key());
    if (!token.empty()) text::append_query_parameter(op.query, "continuation-token", token);
    bool first = true;
    auto attempt = [&] {
      op.new_connection = !std::exchange(first, false);  // the way may be why the last one could not be read
      return detail::list_once(*s, op);
    };
    list_page page = co_await with_retries<list_page>(*s, attempt);
    if (page.truncated && (page.next_continuation_token == token || page.next_continuation_token == seen)) {
      throw error(200, std::string(), "the listing repeats its continuation token", std::string(), op.at());
    }
    if (++pages == mark) {
      seen = page.next_continuation_token;
      mark *= 2;
    }
    empty = page.objects.empty() ? empty + 1 : 0;
    if (page.truncated && empty > most_empty) {
      throw error(200, std::string(),
                  "the listing does not end: more than " + std::to_string(most_empty) + " pages in a row have no key",
                  std::string(), where{prefix.to_string(), std::nullopt, std::string()});
    }
    for (listed_object& o : page.objects) {
      if (o.size == 0 && o.key.back() == '/') continue;
      if (millrace::detail::is_index_beside(prefix.key(), o.key)) {
        executor& ex = co_await this_executor();
        const std::string name = url(prefix.bucket(), std::move(o.key)).to_string();
        const std::string line = "millrace: the listing leaves out an index: " + name;
        if (millrace::detail::first_time(line)) millrace::detail::log_line(ex, line);
        continue;
      }
      ++found;
      shard item(url(prefix.bucket(), std::move(o.key)).to_string(), o.size, std::move(o.etag));
      co_yield give(item);
    }
    if (!page.truncated) break;
    token = std::move(page.next_continuation_token);
  }
  if (found == 0) {
    throw configuration_error("no object has this prefix", where{prefix.to_string(), std::nullopt, std::string()});
  }
}

}  // namespace millrace::s3
