// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/sync/all_of.hpp>
#include <millrace/text/text.hpp>
#include <millrace/train/checkpoint.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

/// The step of an object below `folder`, and its name in the step's folder.
struct checkpoint_object {
  std::uint64_t step = 0;
  std::string_view name;
};

MILLRACE_INLINE std::optional<checkpoint_object> checkpoint_object_of(std::string_view url, std::string_view folder) {
  constexpr std::string_view front = "step-";
  if (url.substr(0, folder.size()) != folder) return std::nullopt;
  url.remove_prefix(folder.size());
  const std::size_t slash = url.find('/');
  if (url.substr(0, front.size()) != front || slash == std::string_view::npos) return std::nullopt;
  const std::string_view digits = url.substr(front.size(), slash - front.size());
  const auto step = text::parse_decimal<std::uint64_t>(digits);
  if (!step || digits.size() < 6 || (digits.size() > 6 && digits.front() == '0')) return std::nullopt;
  return checkpoint_object{*step, url.substr(slash + 1)};
}

/// The index of these files, with the state.
MILLRACE_INLINE std::string checkpoint_index(const tensor_files& all, std::string_view folder, std::string_view state) {
  std::uint64_t bytes = 0;
  std::string map;
  const std::string* former = nullptr;
  for (const tensor_files::part& p : all.parts()) {
    const stored_tensor& t = all.stored(p);
    bytes += t.end - t.begin;
    if (former != nullptr && *former == t.name) continue;  // further rows
    former = &t.name;
    map += map.empty() ? "\n    " : ",\n    ";
    append_quoted(map, t.name);
    map += ": ";
    append_quoted(map, std::string_view(all.files()[p.file].object.url).substr(folder.size()));
  }
  std::string out = "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(bytes);
  out += ",\n    \"millrace_state\": ";
  append_quoted(out, state);
  out += ",\n    " + headers_for_index(all, folder);
  return out + "\n  },\n  \"weight_map\": {" + map + "\n  }\n}\n";
}

}  // namespace millrace::inline MILLRACE_ABI::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE checkpoints::checkpoints(std::shared_ptr<const storage> store, std::string folder, const rank& mine)
    : store_(std::move(store)), folder_(std::move(folder)), mine_(mine) {
  mine_.check();
  if (folder_.empty() || folder_.back() != '/') {
    throw configuration_error("checkpoints: the folder ends with a slash", where{detail::shown_url(folder_), {}, {}});
  }
  detail::require_writing(*store_, url(0) + detail::safetensors_index_name);
}

MILLRACE_INLINE std::string checkpoints::url(std::uint64_t step) const {
  const std::string digits = std::to_string(step);
  return folder_ + "step-" + std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits + '/';
}

MILLRACE_COROUTINE_BODY task<void> checkpoints::write(std::uint64_t step, std::vector<tensor_slice> tensors) const {
  const std::string index = url(step) + detail::safetensors_index_name;
  const std::optional<std::string> there = co_await detail::text_if_there(store_, shard(index), 8 * MiB);
  if (there) {
    throw changed_error("checkpoints: the step is complete, and is not changed",
                        where{detail::shown_url(index), std::nullopt, {}});
  }
  std::uint64_t random[2] = {};
  if (::getrandom(random, sizeof random, 0) != static_cast<::ssize_t>(sizeof random)) {
    throw io_error(std::errc(errno), "checkpoints: the system gives no random numbers");
  }
  std::vector<std::pair<std::string, std::string>> marks;  // two saves of the same tensors differ in their headers
  marks.emplace_back("millrace_save", hash128{random[0], random[1]}.text());
  const write_options how;
  co_await detail::put_tensors(store_, url(step) + detail::safetensors_name(mine_.index + 1u, mine_.world_size),
                               std::move(tensors), std::move(marks), how);
}

MILLRACE_COROUTINE_BODY task<void> checkpoints::commit(std::uint64_t step, std::string state, std::size_t keep) const {
  const std::string here = url(step);
  const std::string at = here + detail::safetensors_index_name;
  const std::vector<shard> there = co_await detail::all_objects(store_, here);
  std::vector<std::string> due;
  for (std::uint64_t i = 1; i <= mine_.world_size; ++i) {
    due.push_back(here + detail::safetensors_name(i, mine_.world_size));
  }
  std::sort(due.begin(), due.end());
  std::vector<std::string> strays;
  std::vector<std::string> found;
  bool complete = false;
  for (const shard& s : there) {
    complete = complete || s.url == at;
    const bool ours = std::binary_search(due.begin(), due.end(), s.url);
    if (ours) found.push_back(s.url);
    if (!ours && std::string_view(s.url).ends_with("safetensors")) strays.push_back(s.url);
  }
  if (complete) {
    throw changed_error("checkpoints: the step is complete, and is not changed",
                        where{detail::shown_url(at), std::nullopt, {}});
  }
  std::sort(found.begin(), found.end());
  for (const std::string& url : due) {
    if (!std::binary_search(found.begin(), found.end(), url)) {
      throw configuration_error("checkpoints: a rank's file is not there: commit() comes after write() on all ranks",
                                where{detail::shown_url(url), std::nullopt, {}});
    }
  }
  std::vector<task<tensor_files::file>> reads;
  for (const std::string& url : due) reads.push_back(detail::read_front(store_, url));
  std::vector<tensor_files::file> files = co_await all_of(std::move(reads));
  const tensor_files all(store_, std::move(files), state);
  // Of an attempt with another number of ranks: readers that list the folder would take them for parts of this one.
  for (const std::string& url : strays) {
    detail::log_line(co_await this_executor(), "millrace: checkpoints: removing " + detail::shown_url(url) +
                                                   ", which another attempt at this step has left");
    co_await store_->remove(url);
  }
  const std::string text = detail::checkpoint_index(all, here, state);
  write_options how;
  how.only_new = true;
  std::exception_ptr refused;
  try {
    co_await detail::put_text(*store_, at, text, how);
  } catch (const changed_error&) {  // an attempt of ours may have got through, and its answer been lost
    refused = std::current_exception();
  }
  if (refused != nullptr) {
    const std::optional<std::string> other = co_await detail::text_if_there(store_, shard(at), 8 * MiB);
    if (other != text) std::rethrow_exception(refused);
  }
  if (keep != 0) co_await remove_older(step, keep);
}

MILLRACE_COROUTINE_BODY task<std::vector<std::uint64_t>> checkpoints::complete() const {
  std::vector<std::uint64_t> steps;
  const std::vector<shard> all = co_await detail::all_objects(store_, folder_ + "step-");
  for (const shard& s : all) {
    const auto o = detail::checkpoint_object_of(s.url, folder_);
    if (o && o->name == detail::safetensors_index_name) steps.push_back(o->step);
  }
  std::sort(steps.begin(), steps.end());
  co_return std::move(steps);
}

MILLRACE_COROUTINE_BODY task<tensor_files> checkpoints::open(std::uint64_t step) const {
  return detail::open_tensors(store_, url(step), {});
}

/// Indexes go first: a checkpoint that is being removed is not seen.
MILLRACE_COROUTINE_BODY task<void> checkpoints::remove_older(std::uint64_t newest, std::size_t keep) const {
  const std::vector<shard> all = co_await detail::all_objects(store_, folder_ + "step-");
  std::vector<std::uint64_t> steps;
  for (const shard& s : all) {
    const auto o = detail::checkpoint_object_of(s.url, folder_);
    if (o && o->name == detail::safetensors_index_name && o->step <= newest) steps.push_back(o->step);
  }
  std::sort(steps.begin(), steps.end());
  if (steps.size() > keep) steps.erase(steps.begin(), steps.end() - static_cast<std::ptrdiff_t>(keep));
  for (const bool indexes : {true, false}) {
    for (const shard& s : all) {
      const auto o = detail::checkpoint_object_of(s.url, folder_);
      if (!o || o->step >= newest || std::find(steps.begin(), steps.end(), o->step) != steps.end()) continue;
      const bool index = o->name == detail::safetensors_index_name;
      const bool file = o->name.ends_with("safetensors");
      if (indexes ? index : file) co_await store_->remove(s.url);
    }
  }
}

}  // namespace millrace::inline MILLRACE_ABI
