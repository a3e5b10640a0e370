// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/environment.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/shard.hpp>
#include <millrace/http/exchange.hpp>
#include <millrace/http/options.hpp>
#include <millrace/retry/retry.hpp>
#include <millrace/retry/retry_options.hpp>
#include <millrace/shards/http_storage.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI {

/// Where the Hugging Face Hub is, and who reads.
class hub_options {
 public:
  std::string endpoint = "https://huggingface.co";
  std::string token;  ///< sent to the endpoint's host alone; empty: public repositories

  /// The endpoint of HF_ENDPOINT; the token of HF_TOKEN, HUGGING_FACE_HUB_TOKEN or the file that the hub's programs
  /// keep it in: HF_TOKEN_PATH, else `token` in HF_HOME, XDG_CACHE_HOME/huggingface or ~/.cache/huggingface. A file
  /// that is not there is no token; configuration_error for one that cannot be read.
  static hub_options from_environment(const environment& variables = process_environment());
};

namespace detail {

/// A name in a repository of the hub: `hf://datasets/OWNER/NAME@REVISION/PATH`.
class hub_name {
 public:
  /// configuration_error where it is not of that form.
  explicit hub_name(std::string_view url);
  std::string kind;        ///< `/datasets`, `/spaces`; of a model empty
  std::string repository;  ///< `/OWNER/NAME`
  std::string revision = "main";
  std::string path;

  std::string resolved(const std::string& endpoint) const;
};

}  // namespace detail

/// Reads files of repositories of the Hugging Face Hub: `hf://datasets/OWNER/NAME/PATH`, `hf://OWNER/NAME/PATH` of a
/// model, each with `@REVISION` after NAME: a branch, a tag, a commit, `refs/convert/parquet` or `refs/pr/7` (main
/// unless told otherwise; another revision with a slash is written with %2F). See hugging_face().
///
/// A file is read by ranges from where the hub redirects to, which is remembered until that expires. list() gives names
/// at the commit that the revision is then, so that a training goes on with the same files; the hub lists a folder with
/// all below it, 1,000 files a page, one page after the other. Nothing can be written. See http_storage for the rest.
template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_hub_storage final : public forwarding_storage {
 public:
  basic_hub_storage(hub_options options, const http::transport_options& transport, const retry_options& retries);

  bool serves(std::string_view url) const noexcept override { return text::starts_ignoring_case(url, "hf://"); }
  std::string host(std::string_view) const override { return inner()->host(options_.endpoint); }

  task<part> read(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                  slab_pool slabs) const override {
    return inner()->read(resolved(std::move(object)), std::move(etag), offset, length, std::move(slabs));
  }
  task<part> read_again(shard object, std::string etag, std::uint64_t offset, std::size_t length,
                        slab_pool slabs) const override {
    return inner()->read_again(resolved(std::move(object)), std::move(etag), offset, length, std::move(slabs));
  }
  task<part> read_small(shard object, std::string etag, std::size_t length, slab_pool slabs) const override {
    return inner()->read_small(resolved(std::move(object)), std::move(etag), length, std::move(slabs));
  }
  async_generator<shard> list(std::string prefix) const override;
  async_generator<shard> list_all(std::string prefix) const override { return list(std::move(prefix)); }

 private:
  shard resolved(shard object) const {
    object.url = detail::hub_name(object.url).resolved(options_.endpoint);
    return object;
  }
  /// An answer of the hub's interface, for a name that errors show.
  task<http::response> ask(std::string url, std::string shown) const;

  const hub_options options_;
  const http_fields fields_;
  const std::shared_ptr<const http::transport_options> transport_;
  const retry_options retries_;
  mutable retry_quota quota_;
};
using hub_storage = basic_hub_storage<>;

#if defined(MILLRACE_SEPARATE_COMPILATION)
extern template class basic_hub_storage<>;
#endif

/// The Hugging Face Hub as a store: `dataset(hugging_face(), "hf://datasets/OWNER/NAME/train/")`,
/// `shards("hf://datasets/OWNER/NAME/train-{00..99}.tar") | fetch(hugging_face())`.
MILLRACE_COROUTINE std::shared_ptr<const storage> hugging_face(
    hub_options options = hub_options::from_environment(),
    const http::transport_options& transport = http::transport_options(),
    const retry_options& retries = retry_options());

}  // namespace millrace::inline MILLRACE_ABI

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/shards/hub_storage.ipp>
#endif
