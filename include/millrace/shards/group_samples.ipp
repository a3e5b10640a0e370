// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/shards/untar_plain.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

MILLRACE_INLINE void note_delivered(error& broken, const shard& from, std::uint64_t count, const char* item) {
  std::string note = "after " + std::to_string(count) + ' ' + item + (count == 1 ? " of " : "s of ");
  const std::string name = from.shown();
  note += broken.object() == name ? "this shard" : name;
  broken.add_note(note + (count == 1 ? " was delivered" : " were delivered"));
}

/// Endings of images in WebDatasets.
MILLRACE_INLINE bool is_image_ending(std::string_view extension) noexcept {
  static constexpr std::string_view all[] = {"jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm"};
  const std::string_view last = extension.substr(extension.rfind('.') + 1);
  return std::find(std::begin(all), std::end(all), last) != std::end(all);
}

MILLRACE_INLINE MILLRACE_NOINLINE void note_dotted(const sample& s, std::string_view extension) {
  if (!is_image_ending(extension)) return;
  for (const field& f : s.fields) {
    if (f.extension.find('.') == std::string::npos || !is_image_ending(f.extension)) continue;
    say_first("dotted keys",
              "the images " + f.extension + " and " + std::string(extension) +
                  " are fields of one sample, as a key ends at the first dot of the name (WebDataset's rule): if they "
                  "are to be samples of their own, their names need other characters in place of dots",
              s.from.at(s.key));
    return;
  }
}

MILLRACE_INLINE void add_field(sample& s, const sample_name& name, member& m) {
  if (s.fields.size() >= 4096) {  // each is compared with all
    throw archive_error("the sample has more than 4096 members", m.from.at(m.entry.name));
  }
  std::string extension = name.lower_extension();
  if (extension == "__key__" || extension == "__url__" || extension == "__bad__" || extension == "__local_path__") {
    throw archive_error("the extension \"" + extension + "\" stands for what a sample has beside its members",
                        m.from.at(m.entry.name));
  }
  if (s.find(extension) != nullptr) {
    throw archive_error("the sample has two members with the extension \"" + extension + "\"", m.from.at(m.entry.name));
  }
  if (MILLRACE_UNLIKELY(extension.find('.') != std::string::npos)) note_dotted(s, extension);
  s.fields.emplace_back(std::move(extension), std::move(m.entry.body));
  // In a plain tar a body begins at a block, and the next header at the next one.
  if (m.entry.data_offset > m.from.offset) s.from.end = m.entry.data_offset + (m.entry.size + 511) / 512 * 512;
}

MILLRACE_INLINE std::string no_sample_of(std::uint64_t members, std::string_view first) {
  return "no sample: none of its " + std::to_string(members) +
         " files has a name of key, dot and extension outside of \"__...__\" (the first is \"" + std::string(first) +
         "\")";
}

MILLRACE_COROUTINE_BODY async_generator<sample> group_members(async_generator<member> in, std::uint64_t first) {
  sample current;
  bool open = false;
  std::uint64_t held = 0;  // bytes of its members
  const coroutine_context here = co_await this_context();
  const std::size_t largest = here.run().budget().largest_item();
  std::shared_ptr<const shard> source;   // of the last sample that was opened
  std::uint64_t delivered = 0;  // samples of it
  std::uint64_t passed_over = 0;  // members of the shard, while it has no sample
  std::string first_passed;       // its name
  archive_warnings warnings(here.get_executor(), true, "group_samples");
  for (;;) {
    std::optional<member> m;
    try {
      m = co_await in.next();
    } catch (error& e) {
      if (source != nullptr) note_delivered(e, *source, delivered, "sample");
      throw;
    }
    if (!m) break;
    const sample_name name = sample_name::parse(m->entry.name);
    if (name.is_sample()) {
      if (open && !(source == m->from.from && current.key == name.key())) {
        co_yield give(current);
        ++delivered;
        open = false;
      }
      if (!open) {
        if (source != m->from.from) delivered = std::exchange(first, 0);
        source = m->from.from;
        current = sample(std::string(name.key()), origin(source, m->from.offset, delivered));
        if (source != nullptr && source->dealt) {
          current.mark.known = true;
          current.mark.seed = source->seed;
          current.mark.epoch = source->epoch;
        }
        open = true;
        held = 0;
      }
      try {
        held += m->entry.body.size();
        if (held > largest) {
          throw archive_error(run_budget::too_large("the sample's first", held, largest), m->from.at(m->entry.name));
        }
        add_field(current, name, *m);
      } catch (error& e) {
        note_delivered(e, *source, delivered, "sample");
        throw;
      }
    } else if (source == nullptr && passed_over++ == 0) {
      first_passed = m->entry.name;
    }
    if (m->last) {
      if (source == nullptr && first == 0 && passed_over != 0) {
        warnings.add_once(*m->from.from, no_sample_of(passed_over, first_passed));
      }
      passed_over = 0;
      if (open) co_yield give(current);  // now, and not with the next shard, which may be broken
      open = false;
      source = nullptr;
    }
  }
  if (open) co_yield give(current);
}

MILLRACE_TEMPLATE(async_generator<sample> shuffle_items<sample>(async_generator<sample>, shuffle_options));
MILLRACE_TEMPLATE(async_generator<std::vector<sample>> batch_items<sample>(async_generator<sample>, std::size_t,
                                                                         last_batch));

}  // namespace millrace::detail
