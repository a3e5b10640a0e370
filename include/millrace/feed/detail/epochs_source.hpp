// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <millrace/feed/detail/epoch_losses.hpp>
#include <millrace/feed/detail/epoch_walk.hpp>
#include <millrace/feed/epoch_state.hpp>
#include <millrace/feed/epochs_options.hpp>
#include <millrace/feed/index_set.hpp>
#include <millrace/shards/storage.hpp>

namespace millrace::detail {

/// Throws configuration_error for options that contradict each other.
void check_epochs_options(const epochs_options& options);

/// What a state says of the window that it is in: its number, and how steps are dealt. Never 0.
std::uint64_t state_window(std::uint32_t window, std::uint64_t batch, std::uint64_t world) noexcept;
/// Throws configuration_error where `saved` is inside a window that is not one of those, or 0 for none.
void check_state_window(const epoch_state& saved, std::uint32_t window, std::uint64_t batch, std::uint64_t world);

/// What epochs() reads, when it has been checked.
class epochs_source {
 public:
  /// Throws, before anything is read, what epochs() throws. `listed` are the shards' URLs, in the order of the indexes,
  /// where these have other names; else empty.
  epochs_source(std::shared_ptr<const index_set> of, std::shared_ptr<const storage> from, const epochs_options& how,
                std::vector<std::string> listed = {});

  std::string url(std::uint64_t shard) const {
    const auto i = static_cast<std::size_t>(shard);
    return urls.empty() ? prefix + (*indexes)[i].name() : urls[i];
  }
  /// As messages show it.
  std::string shown(std::uint64_t shard) const;

  std::shared_ptr<const index_set> indexes;
  std::shared_ptr<const storage> store;
  std::string prefix;
  std::vector<std::string> urls;
  epoch_walk::plan walk;
  epochs_options options;  // without the texts
  epoch_state begin;
  std::shared_ptr<epoch_losses> losses = std::make_shared<epoch_losses>();

 private:
  void resume_at(const epoch_state& saved);
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/feed/detail/impl/epochs_source.ipp>
#endif
