// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <millrace/data/epoch_mark.hpp>
#include <millrace/data/lost_shard.hpp>

namespace millrace {

/// How a source writes down where its training stands: what epochs() gives to its stream, and pipeline_run::state()
/// asks. Any thread.
class stream_position {
 public:
  virtual ~stream_position() = default;
  /// The state behind everything up to `delivered`, whose mark is whole; of the beginning where nothing was delivered
  /// (it is not known).
  virtual std::string state(const epoch_mark& delivered) const = 0;
  /// The pipeline has windows of this number (stream::windowed), or none (0). Throws configuration_error where the
  /// source goes on inside a window of another one.
  virtual void check_window(std::uint32_t window) const = 0;
  /// No state will be asked for that is before `delivered`: nothing of what led there need be kept.
  virtual void passed(const epoch_mark& /*delivered*/) const {}
  /// Batches of an epoch on every rank; nothing where that is not known beforehand.
  virtual std::optional<std::uint64_t> batches() const = 0;
  /// What an epoch costs and gives, in a few lines for people, before anything is read; empty where that is not known.
  virtual std::string plan() const = 0;
  /// What the source could not have, by shard, and was told to bear.
  virtual std::vector<lost_shard> lost() const = 0;
};

}  // namespace millrace
