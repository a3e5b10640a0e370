// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/http/error.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/http/message.hpp>
#include <millrace/http/unconditional_hosts.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/shards/hub_storage.hpp>
#include <millrace/text/json_leaves.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE hub_name::hub_name(std::string_view url) {
  const auto refused = [&](const char* why) {
    return configuration_error(std::string("a name of the hub is hf://datasets/OWNER/NAME[@REVISION]/PATH: ") + why,
                               where{http::displayed(std::string(url)), {}, {}});
  };
  std::string_view rest = url.substr(url.find("://") + 3);
  const auto next = [&rest] {
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : rest.size());
    return part;
  };
  std::string_view owner = next();
  if (owner == "datasets" || owner == "spaces") {
    kind = "/" + std::string(owner);
    owner = next();
  }
  std::string_view name = next();
  const std::size_t at = name.find('@');
  if (at != std::string_view::npos) {
    revision = name.substr(at + 1);
    name = name.substr(0, at);
    if (revision == "refs") {  // refs/convert/parquet, refs/pr/7
      revision += "/" + std::string(next());
      revision += "/" + std::string(next());
    }
    for (std::size_t i = 0; (i = text::to_lower(revision).find("%2f", i)) != std::string::npos;) {
      revision.replace(i, 3, "/");
    }
    if (revision.empty()) throw refused("the revision is empty");
  }
  if (owner.empty() || name.empty()) throw refused("it has no owner and name");
  repository = "/" + text::encode_path(owner) + "/" + text::encode_path(name);
  path = rest;
}

MILLRACE_INLINE std::string hub_name::resolved(const std::string& endpoint) const {
  return endpoint + kind + repository + "/resolve/" + text::encode_query(revision) + "/" + text::encode_path(path);
}

/// The first line of a small file; nullopt where there is none.
MILLRACE_INLINE std::optional<std::string> first_line_of(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw configuration_error("the file of the hub's token cannot be opened: " +
                                  std::generic_category().message(errno),
                              where{path, {}, {}});
  }
  char line[4096];
  const std::size_t n = std::fread(line, 1, sizeof line, file);
  std::fclose(file);
  const std::string_view text(line, n);
  return std::string(text.substr(0, text.find_first_of("\r\n")));
}

/// The target of `<URL>; rel="next"` in a Link field (RFC 8288); empty if there is none.
MILLRACE_INLINE std::string next_page(const http::headers& fields) {
  const std::string* const link = fields.find("link");
  if (link == nullptr) return std::string();
  const std::size_t rel = link->find("rel=\"next\"");
  const std::size_t end = link->rfind('>', rel);
  const std::size_t begin = link->rfind('<', end);
  if (rel == std::string::npos || end == std::string::npos || begin == std::string::npos) return std::string();
  return link->substr(begin + 1, end - begin - 1);
}

/// The files of one page of a listing, with their sizes.
MILLRACE_INLINE std::vector<std::pair<std::string, std::uint64_t>> hub_files(const text::json_leaves& page,
                                                                             const where& at) {
  std::vector<std::pair<std::string, std::uint64_t>> files;
  std::string_view item, type, path, size;
  const auto take = [&] {
    std::uint64_t bytes = 0;
    const auto [end, failed] = std::from_chars(size.data(), size.data() + size.size(), bytes);
    if (type == "file") {
      if (path.empty() || failed != std::errc() || end != size.data() + size.size()) {
        throw http::error(http::failure::protocol, "a listing of the hub has a file without a path or a size", at);
      }
      files.emplace_back(path, bytes);
    }
    type = path = size = std::string_view();
  };
  for (const auto& [name, value] : page.all()) {
    const std::string_view whole(name);
    const std::size_t slash = whole.find('/');
    if (slash == std::string_view::npos) continue;
    if (whole.substr(0, slash) != item) take();
    item = whole.substr(0, slash);
    const std::string_view member = whole.substr(slash + 1);
    if (member == "type") type = value;
    if (member == "path") path = value;
    if (member == "size") size = value;
  }
  take();
  return files;
}

}  // namespace millrace::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE hub_options hub_options::from_environment(const environment& variables) {
  hub_options o;
  o.endpoint = variables.get("HF_ENDPOINT").value_or(o.endpoint);
  while (!o.endpoint.empty() && o.endpoint.back() == '/') o.endpoint.pop_back();
  for (const char* const name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (o.token.empty()) o.token = variables.get(name).value_or(std::string());
  }
  if (!o.token.empty()) return o;
  std::string path = variables.get("HF_TOKEN_PATH").value_or(std::string());
  if (path.empty()) {
    if (const std::optional<std::string> home = variables.get("HF_HOME")) {
      path = *home + "/token";
    } else if (const std::optional<std::string> cache = variables.get("XDG_CACHE_HOME")) {
      path = *cache + "/huggingface/token";
    } else if (const std::optional<std::string> user = variables.get("HOME")) {
      path = *user + "/.cache/huggingface/token";
    }
  }
  if (!path.empty()) o.token = detail::first_line_of(path).value_or(std::string());
  return o;
}

namespace detail {

MILLRACE_INLINE http_fields hub_fields(const hub_options& o) {
  return o.token.empty() ? http_fields()
                         : bearer_token(std::string(http::unconditional_hosts::host_of(o.endpoint)), o.token);
}

}  // namespace detail

template <class Unused>
basic_hub_storage<Unused>::basic_hub_storage(hub_options options, const http::transport_options& transport,
                                             const retry_options& retries)
    : forwarding_storage(std::make_shared<const http_storage>(transport, retries, detail::hub_fields(options))),
      options_(std::move(options)),
      fields_(detail::hub_fields(options_)),
      transport_(std::make_shared<const http::transport_options>(transport)),
      retries_(retries),
      quota_(retries.quota) {}

template <class Unused>
task<http::response> basic_hub_storage<Unused>::ask(std::string url, std::string shown) const {
  executor& ex = co_await this_executor();
  retry_policy policy(retries_, quota_);
  const where at{std::move(shown), {}, {}};
  for (;;) {
    std::exception_ptr why;
    failed_attempt failed;
    try {
      http::request r(url);
      r.object = at.object;
      const http::headers own = fields_.of(this->inner()->host(url));
      for (const http::headers::field& f : own) r.fields.add(f.first, f.second);
      http::response answer = co_await http::send(std::move(r), transport_, 16 * MiB);
      if (answer.head.status == 200) {
        policy.after_success();
        co_return std::move(answer);
      }
      failed.hint = retry_hint(answer.head.fields, static_cast<std::int64_t>(std::time(nullptr)));
      std::string reason = "the hub answered " + std::to_string(answer.head.status);
      const std::string* const said = answer.head.fields.find("x-error-message");
      if (said != nullptr) reason += ": " + *said;
      if (options_.token.empty() && answer.head.status == 401) reason += " (there is no token: HF_TOKEN is not set)";
      throw http::error(http::failure::status, std::move(reason), at, answer.head.status);
    } catch (const http::error& e) {
      why = std::current_exception();
      failed.what = e.kind() == http::failure::status ? classify(e.status(), {}) : classify(e.kind());
    }
    failed.now = ex.now();
    const double jitter = rng(static_cast<std::uint64_t>(monotonic_ns())).uniform();
    const std::optional<duration> pause = policy.after_failure(failed, jitter);
    if (!pause) std::rethrow_exception(why);
    detail::count_retry(ex, failed.what == retry_class::throttling, why);
    if (pause->count() > 0) co_await sleep_for(*pause);
  }
}

template <class Unused>
async_generator<shard> basic_hub_storage<Unused>::list(std::string prefix) const {
  const detail::hub_name name(prefix);
  const where at{http::displayed(prefix), {}, {}};
  const std::string of_repository =
      options_.endpoint + "/api" + (name.kind.empty() ? "/models" : name.kind) + name.repository;
  const auto parsed = [&at](const http::response& answer, text::json_leaves::arrays items) {
    std::optional<text::json_leaves> leaves = text::json_leaves::parse(answer.body, items);
    if (!leaves) throw http::error(http::failure::protocol, "the hub's answer is no JSON", at);
    return std::move(*leaves);
  };
  // The commit first: pages of a branch that moves meanwhile would be of two.
  std::string url = of_repository + "/revision/" + text::encode_query(name.revision);
  http::response answer = co_await ask(std::move(url), at.object);
  const text::json_leaves info = parsed(answer, text::json_leaves::arrays::dropped);
  const std::string commit(info.find("sha").value_or(std::string_view()));
  if (commit.empty()) throw http::error(http::failure::protocol, "the hub does not say which commit that is", at);
  const std::size_t slash = name.path.rfind('/');
  const std::string folder = slash == std::string::npos ? std::string() : name.path.substr(0, slash);
  url = of_repository + "/tree/" + commit + (folder.empty() ? "" : "/" + text::encode_path(folder)) +
        "?recursive=true&expand=false";
  const std::string first_part = "hf:/" + name.kind + name.repository + "@" + commit + "/";
  while (!url.empty()) {
    answer = co_await ask(std::move(url), at.object);
    url = detail::next_page(answer.head.fields);
    if (!url.empty()) {  // a mirror may name the hub itself
      const std::size_t path = url.find('/', url.find("://") + 3);
      url = path == std::string::npos ? std::string() : options_.endpoint + url.substr(path);
    }
    const std::vector<std::pair<std::string, std::uint64_t>> files =
        detail::hub_files(parsed(answer, text::json_leaves::arrays::kept), at);
    for (const auto& [path, size] : files) {
      if (path.compare(0, name.path.size(), name.path) != 0) continue;
      shard found(first_part + path, size);
      co_yield give(found);
    }
  }
}

#if defined(MILLRACE_SEPARATE_COMPILATION)
template class basic_hub_storage<>;
#endif

MILLRACE_COROUTINE_BODY std::shared_ptr<const storage> hugging_face(hub_options options,
                                                            const http::transport_options& transport,
                                                            const retry_options& retries) {
  return std::make_shared<const hub_storage>(std::move(options), transport, retries);
}

}  // namespace millrace
