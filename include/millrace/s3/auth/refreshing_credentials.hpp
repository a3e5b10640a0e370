// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <millrace/s3/auth/credentials_provider.hpp>
#include <millrace/s3/auth/detail/refresher.hpp>
#include <millrace/s3/auth/detail/shared_region.hpp>

namespace millrace::s3 {

/// Credentials that end and are replaced in time: asked of `Source` on first use and then ahead of every end.
///
/// One refresh is under way at a time, for all coroutines on all loops. It begins an eighth to a quarter of the
/// credentials' life before their end (at most 15 minutes, differently in every process), on the loop of the request
/// that finds them old, and nobody waits for it while the present ones are good; one that fails is repeated a minute or
/// two later and does no harm until they end. After the end, and after a refusal by the store, requests wait for it
/// and share its failure. Credentials of an instance are used beyond their end for as long as its metadata service
/// gives no others (static stability), which is said on standard error once. Without an end they are kept until
/// refused.
///
/// Dropping a get() at any moment, also that of the one that began the refresh, disturbs no other: the refresh belongs
/// to the loop. A loop that ends (block_on and run() drain theirs) waits root_scope::patience for it and then drops it;
/// those who wait on other loops begin anew. Thread-safe; may go before its gets() have ended.
///
/// `Source` has `task<T> resolve()`, where T has `credentials who`, `std::string source`, `bool of_instance` and `bool
/// constant`; `std::int64_t now()` in unix seconds and `double random()` in [0, 1), both thread-safe; and
/// `task<std::string> region()`.
template <class Source>
class refreshing_credentials final : public credentials_provider {
 public:
  explicit refreshing_credentials(std::shared_ptr<Source> source)
      : refresher_(std::make_shared<detail::refresher<Source>>(source)),
        region_(std::make_shared<detail::shared_region<Source>>(std::move(source))) {}

  /// Throws what the source threw.
  task<credentials> get() override { return detail::refresher<Source>::get(refresher_); }
  /// Drops the present credentials when they are `used`; false when the source cannot have others, and when the last
  /// ones were refused less than a minute ago.
  bool refused(const credentials& used) override { return refresher_->refused(used); }
  /// Asked once for all; a failure is asked again by the next one.
  task<std::string> region() override { return detail::shared_region<Source>::get(region_); }

  /// How often the source was asked, and how often that failed.
  std::uint64_t refreshes() const noexcept { return refresher_->refreshes(); }
  std::uint64_t failures() const noexcept { return refresher_->failures(); }
  /// What the present credentials come from; empty before there are any.
  std::string source() const { return refresher_->source(); }

 private:
  const std::shared_ptr<detail::refresher<Source>> refresher_;
  const std::shared_ptr<detail::shared_region<Source>> region_;
};

}  // namespace millrace::s3
