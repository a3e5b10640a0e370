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

/// What epochs() reads, when it has been checked.
class epochs_source {
 public:
  /// Throws, before anything is read, what epochs() throws. Without indexes: what can be said of the options alone.
  epochs_source(std::shared_ptr<const index_set> of, std::shared_ptr<const storage> from, const epochs_options& how);

  std::string url(std::uint64_t shard) const { return prefix + (*indexes)[static_cast<std::size_t>(shard)].name(); }
  /// As messages show it.
  std::string shown(std::uint64_t shard) const;

  std::shared_ptr<const index_set> indexes;
  std::shared_ptr<const storage> store;
  std::string prefix;
  epoch_walk::plan walk;
  epochs_options options;  // without the texts
  epoch_state begin;
  std::shared_ptr<epoch_losses> losses = std::make_shared<epoch_losses>();

 private:
  void check_options() const;
  void resume_at(const epoch_state& saved);
};

}  // namespace millrace::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/feed/detail/impl/epochs_source.ipp>
#endif
