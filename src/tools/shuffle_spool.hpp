// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/base/crc.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/run_context.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/data/origin.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/index/detail/samples_sum.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/io/file.hpp>
#include <millrace/loop/detail/descriptors.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/shards/sample.hpp>
#include <millrace/text/text.hpp>

#include "src/tools/samples.hpp"

namespace tools {

/// The random number that a sample is sorted by: of the seed and its place in the source alone, so the order depends
/// neither on timing nor on how many runs there are. Samples are sorted by (number, place); places differ, so every
/// sample stands at one position, and as the numbers are independent and uniform, so is the order among all orders
/// (but for two numbers of 64 bits that are equal).
inline std::uint64_t sort_number(std::uint64_t seed, std::uint64_t shard, std::uint64_t ordinal) noexcept {
  std::uint64_t words[2] = {ordinal, shard};
  mill::sample_rng::block(words, mill::detail::mix64(seed ^ 0x7265736861726421));  // "reshard!"
  return words[0];
}

/// What has been counted of one output.
struct output_count {
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;  // of fields
  mill::detail::samples_sum sum;
};

/// The external shuffle: a folder of a local disk. Each sample is appended to the run that the first bits of its number
/// say, then each run's rows are sorted in memory and its samples are read in that order. Runs are in the order of the
/// numbers, so all runs, one after the other, are all samples sorted by number.
///
/// commit() writes down how long each run is, and the caller's place in the source with it, in a journal that is
/// replaced at once: a process that was killed finds the last one, cuts the runs to it and goes on there.
class shuffle_spool {
 public:
  enum class phase : unsigned char { deal, write, done };

  /// Makes the folder, or opens one with a journal, which must be of the same `job`: lines of text that say all that
  /// the output depends on.
  shuffle_spool(std::string folder, std::string job, std::size_t outputs, std::uint64_t bytes, std::size_t memory)
      : folder_(std::move(folder)), job_(std::move(job)), memory_(memory) {
    if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) failed(errno, "the folder cannot be made", folder_);
    counts.resize(outputs);
    const std::optional<std::string> text = read_file(path("journal"));
    if (text) {
      read_journal(*text);
      resumed_ = true;
      if (runs_.size() % outputs != 0) not_of_this_job("another number of outputs");
    } else {
      std::uint64_t runs = std::max<std::uint64_t>(1, 2 * bytes / std::max<std::size_t>(memory, 1));
      runs = std::min<std::uint64_t>(runs + 1, std::max<std::uint64_t>(1, 128 / outputs));
      runs_.resize(outputs * static_cast<std::size_t>(runs));
    }
    of_output_ = runs_.size() / outputs;
    buffer_ = std::clamp<std::size_t>(memory / 4 / runs_.size(), 64 * mill::KiB, mill::MiB);
    if (!resumed_) write_journal();
  }

  bool resumed() const noexcept { return resumed_; }
  phase at() const noexcept { return phase_; }
  std::size_t runs() const noexcept { return runs_.size(); }
  /// Bytes of the disk that the runs take.
  std::uint64_t bytes() const noexcept {
    std::uint64_t all = 0;
    for (const run& r : runs_) all += r.data.size + r.rows.size;
    return all;
  }

  place_in_source place;             ///< of the next sample
  std::vector<output_count> counts;  ///< of each output
  std::uint64_t samples = 0;         ///< read, with those that were left out
  std::uint64_t rekeyed = 0;
  std::uint64_t seed = 0;  ///< set by the caller

  /// Before the first add(): cuts the runs to what the journal says.
  mill::task<void> open() {
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      co_await open_one(runs_[i].data, path("run-" + std::to_string(i) + ".data"));
      co_await open_one(runs_[i].rows, path("run-" + std::to_string(i) + ".rows"));
    }
  }
  /// Appends a sample to its run.
  mill::task<void> add(std::size_t output, std::uint64_t shard, std::uint64_t ordinal, const mill::sample& s) {
    if (shard >> 24 != 0 || ordinal >> 40 != 0) {
      throw mill::configuration_error("more than 2^24 shards, or 2^40 samples of one, cannot be shuffled");
    }
    row r;
    r.number = sort_number(seed, shard, ordinal);
    r.place = shard << 40 | ordinal;
    __extension__ using wide = unsigned __int128;
    const auto in_output = static_cast<std::size_t>(static_cast<wide>(r.number) * of_output_ >> 64);
    run& to = runs_[output * of_output_ + in_output];
    r.offset = to.data.size;
    r.length = record_bytes(s);
    co_await reserve(to.data, static_cast<std::size_t>(r.length), buffer_);
    append_record(to.data, s);
    co_await reserve(to.rows, sizeof r, 16 * mill::KiB);
    append(to.rows, std::string_view(reinterpret_cast<const char*>(&r), sizeof r));
    output_count& count = counts[output];
    ++count.samples;
    for (const mill::field& f : s.fields) count.bytes += f.data.size();
    count.sum.add(s);
  }
  /// What has been added is on the disk, and the journal says so.
  mill::task<void> commit() {
    for (run& r : runs_) {
      co_await flush(r.data);
      co_await flush(r.rows);
    }
    for (run& r : runs_) {
      co_await r.data.open.sync();
      co_await r.rows.open.sync();
    }
    write_journal();
  }
  /// All samples are in: their files are closed, and what is written from them may be there from now on.
  mill::task<void> end_deal() {
    co_await commit();
    for (run& r : runs_) {
      co_await r.data.open.close();
      co_await r.rows.open.close();
      r.data.memory = mill::writable_bytes();
      r.rows.memory = mill::writable_bytes();
    }
    phase_ = phase::write;
    write_journal();
  }
  /// Removes what it has made; the folder, too, if nothing else is in it.
  void remove() {
    phase_ = phase::done;
    write_journal();
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      ::unlink(path("run-" + std::to_string(i) + ".data").c_str());
      ::unlink(path("run-" + std::to_string(i) + ".rows").c_str());
    }
    ::unlink(path("journal").c_str());
    ::rmdir(folder_.c_str());
  }

  /// The samples of an output, in the order of their numbers; but one that has the key of the one before it waits until
  /// another one has come, as two of one key side by side would be read as one. `shards`: those of the source, for
  /// errors. They and the spool must outlive it.
  static mill::async_generator<mill::sample> shuffled(shuffle_spool* self, std::size_t output,
                                                      const std::vector<mill::shard>* shards) {
    std::deque<placed_sample> waiting;  // the first has the key of the one before it
    std::string key;
    place_in_source before;
    for (std::size_t i = 0; i < self->of_output_; ++i) {
      mill::stream<placed_sample> all(sorted(self, output * self->of_output_ + i));
      while (std::optional<placed_sample> s = co_await all.next()) {
        if (s->it.key == key) {
          s->it = compact_slices(std::move(s->it));
          waiting.push_back(std::move(*s));
          if (waiting.size() > 4096) too_many_of(waiting.front(), before, *shards);
          continue;
        }
        key = s->it.key;
        before = {s->shard, s->ordinal};
        co_yield mill::give(s->it);
        while (!waiting.empty() && waiting.front().it.key != key) {
          placed_sample late = std::move(waiting.front());
          waiting.pop_front();
          key = late.it.key;
          before = {late.shard, late.ordinal};
          co_yield mill::give(late.it);
        }
      }
    }
    if (!waiting.empty()) too_many_of(waiting.front(), before, *shards);
  }

  /// Free bytes of a folder's disk, of the nearest folder above it that is there.
  static std::uint64_t free_bytes(std::string folder) {
    for (;;) {
      struct ::statvfs of {};
      if (::statvfs(folder.c_str(), &of) == 0) return static_cast<std::uint64_t>(of.f_bavail) * of.f_frsize;
      const std::size_t slash = folder.rfind('/');
      if (slash == std::string::npos || slash == 0) {
        if (::statvfs(slash == 0 ? "/" : ".", &of) == 0) return static_cast<std::uint64_t>(of.f_bavail) * of.f_frsize;
        return 0;
      }
      folder.resize(slash);
    }
  }

 private:
  /// Of the .rows files. They are read on the machine that wrote them.
  struct row {
    std::uint64_t number = 0;
    std::uint64_t place = 0;  // 24 bits of the shard, 40 of the ordinal
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };
  /// A file that is appended to, and what is not in it yet.
  struct part {
    mill::file open;
    std::uint64_t size = 0;  // with what is not written yet
    mill::writable_bytes memory;
    std::size_t filled = 0;
  };
  struct run {
    part data;
    part rows;
  };

  [[noreturn]] static void failed(int error, const char* what, const std::string& name) {
    throw mill::io_error::of(error, what, mill::where{name, std::nullopt, {}});
  }
  [[noreturn]] static void too_many_of(const placed_sample& s, const place_in_source& before,
                                       const std::vector<mill::shard>& shards) {
    throw mill::archive_error("its sample " + std::to_string(s.ordinal) + " and sample " +
                                  std::to_string(before.ordinal) + " of " + shards[before.shard].shown() +
                                  " have the same key, and cannot be kept apart, as there are too many of that key: "
                                  "--shard-in-key makes keys of different shards different",
                              mill::where{shards[s.shard].shown(), std::nullopt, s.it.key});
  }
  [[noreturn]] void not_of_this_job(const std::string& difference) const {
    throw mill::configuration_error("the folder is of another job, or of another version of the source: " + difference +
                                        "; remove it to begin anew",
                                    mill::where{folder_, std::nullopt, {}});
  }
  std::string path(const std::string& name) const { return folder_ + '/' + name; }

  static std::optional<std::string> read_file(const std::string& name) {
    const int file = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno == ENOENT) return std::nullopt;
    if (file < 0) failed(errno, "the file cannot be opened", name);
    std::string text;
    char buffer[8192];
    for (;;) {
      const ::ssize_t n = ::read(file, buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      const int error = errno;
      if (n <= 0) ::close(file);
      if (n < 0) failed(error, "the file cannot be read", name);
      if (n == 0) return text;
      text.append(buffer, static_cast<std::size_t>(n));
    }
  }

  mill::task<void> open_one(part& p, std::string name) {
    mill::file_options how;
    how.write = true;
    how.create = true;
    how.mode = 0600;  // all of the data
    const std::string kept = name;
    p.open = co_await mill::file::open(std::move(name), how);
    const std::uint64_t there = co_await p.open.size();
    if (there < p.size) {
      throw mill::index_error("the file has " + std::to_string(there) + " bytes, and the journal says " +
                                  std::to_string(p.size) + ": remove the folder to begin anew",
                              mill::where{kept, std::nullopt, {}});
    }
    if (::truncate(kept.c_str(), static_cast<::off_t>(p.size)) != 0) failed(errno, "the file cannot be cut", kept);
  }
  /// Makes room for `bytes` more.
  mill::task<void> reserve(part& p, std::size_t bytes, std::size_t buffer) {
    if (p.memory && p.memory.capacity() - p.filled >= bytes) co_return;
    co_await flush(p);
    if (p.memory && p.memory.capacity() >= bytes) co_return;
    p.memory = mill::writable_bytes::allocate(std::max(bytes, buffer));
  }
  mill::task<void> flush(part& p) {
    if (p.filled == 0) co_return;
    const std::size_t n = std::exchange(p.filled, 0);
    mill::bytes full = p.memory.share(0, n);
    co_await p.open.write_at(std::move(full), p.size - n);
    // It is read no more and is filled again, unless one large sample has made it.
    if (p.memory.capacity() > 2 * buffer_) p.memory = mill::writable_bytes();
  }
  static void append(part& p, std::string_view text) noexcept {
    if (!text.empty()) std::memcpy(p.memory.data() + p.filled, text.data(), text.size());
    p.filled += text.size();
    p.size += text.size();
  }
  static void append_number(part& p, std::uint64_t n, std::size_t bytes) noexcept {
    char text[8];
    for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(n >> (8 * i));
    append(p, std::string_view(text, bytes));
  }
  static std::uint64_t number_at(std::string_view text, std::size_t at, std::size_t bytes) noexcept {
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < bytes; ++i) n |= std::uint64_t{static_cast<unsigned char>(text[at + i])} << (8 * i);
    return n;
  }

  // A record: 4 bytes CRC32C of the rest, 4 length of the key, 2 number of fields; of each field 2 bytes length of its
  // name and 8 of its data; the key, the names, the data.
  static std::uint64_t record_bytes(const mill::sample& s) noexcept {
    std::uint64_t all = 10 + s.key.size();
    for (const mill::field& f : s.fields) all += 10 + f.extension.size() + f.data.size();
    return all;
  }
  static void append_record(part& p, const mill::sample& s) noexcept {
    const std::size_t begin = p.filled;
    append_number(p, 0, 4);
    append_number(p, s.key.size(), 4);
    append_number(p, s.fields.size(), 2);
    for (const mill::field& f : s.fields) {
      append_number(p, f.extension.size(), 2);
      append_number(p, f.data.size(), 8);
    }
    append(p, s.key);
    for (const mill::field& f : s.fields) append(p, f.extension);
    for (const mill::field& f : s.fields) append(p, f.data.view());
    const std::uint32_t crc = mill::crc32c(0, p.memory.data() + begin + 4, p.filled - begin - 4);
    for (std::size_t i = 0; i < 4; ++i) p.memory.data()[begin + i] = static_cast<char>(crc >> (8 * i));
  }
  /// nullopt: it is damaged.
  static std::optional<mill::sample> read_record(const mill::bytes& record) {
    const std::string_view text = record.view();
    if (text.size() < 10) return std::nullopt;
    if (mill::crc32c(0, text.data() + 4, text.size() - 4) != number_at(text, 0, 4)) return std::nullopt;
    const auto key = static_cast<std::size_t>(number_at(text, 4, 4));
    const auto fields = static_cast<std::size_t>(number_at(text, 8, 2));
    mill::sample s;
    std::size_t name = 10 + 10 * fields;
    s.key = text.substr(name, key);
    name += key;
    std::size_t data = name;
    for (std::size_t i = 0; i < fields; ++i) data += static_cast<std::size_t>(number_at(text, 10 + 10 * i, 2));
    for (std::size_t i = 0; i < fields; ++i) {
      const auto name_bytes = static_cast<std::size_t>(number_at(text, 10 + 10 * i, 2));
      const auto bytes = static_cast<std::size_t>(number_at(text, 12 + 10 * i, 8));
      s.fields.emplace_back(std::string(text.substr(name, name_bytes)), record.slice(data, bytes));
      name += name_bytes;
      data += bytes;
    }
    return s;
  }

  /// Neighbours in the sorted order that are read together, one after the other, into one piece of memory.
  struct piece {
    std::size_t first = 0;
    std::size_t end = 0;
  };
  /// A run's rows in their order, and its open file.
  class sorted_run {
   public:
    sorted_run(std::string data, std::string rows, std::uint64_t data_bytes, std::uint64_t rows_bytes)
        : name_(std::move(data)), file_(::open(name_.c_str(), O_RDONLY | O_CLOEXEC)) {
      if (file_.get() < 0) failed(errno, "the file cannot be opened", name_);
      const mill::detail::owned_fd from(::open(rows.c_str(), O_RDONLY | O_CLOEXEC));
      if (from.get() < 0) failed(errno, "the file cannot be opened", rows);
      rows_.resize(static_cast<std::size_t>(rows_bytes / sizeof(row)));
      read_at(from.get(), reinterpret_cast<char*>(rows_.data()), static_cast<std::size_t>(rows_bytes), 0, rows);
      std::sort(rows_.begin(), rows_.end(), [](const row& a, const row& b) {
        return a.number != b.number ? a.number < b.number : a.place < b.place;
      });
      for (const row& r : rows_) {
        if (r.length <= data_bytes && r.offset <= data_bytes - r.length) continue;
        throw mill::index_error("the rows of a run are damaged", mill::where{rows, std::nullopt, {}});
      }
    }
    std::size_t size() const noexcept { return rows_.size(); }
    const row& operator[](std::size_t i) const noexcept { return rows_[i]; }
    const std::string& name() const noexcept { return name_; }
    int file() const noexcept { return file_.get(); }
    std::size_t bytes_of(piece p) const noexcept {
      std::size_t bytes = 0;
      for (std::size_t i = p.first; i < p.end; ++i) bytes += static_cast<std::size_t>(rows_[i].length);
      return bytes;
    }
    mill::bytes read(piece p, mill::writable_bytes& to) const {
      std::size_t at = 0;
      for (std::size_t i = p.first; i < p.end; ++i) {
        const auto length = static_cast<std::size_t>(rows_[i].length);
        read_at(file_.get(), to.data() + at, length, rows_[i].offset, name_);
        at += length;
      }
      return to.share(0, at);
    }

   private:
    static void read_at(int file, char* to, std::size_t bytes, std::uint64_t offset, const std::string& name) {
      while (bytes > 0) {
        const ::ssize_t n = ::pread(file, to, bytes, static_cast<::off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) failed(errno, "the file cannot be read", name);
        if (n == 0) throw mill::index_error("the file is cut", mill::where{name, offset, {}});
        to += n;
        bytes -= static_cast<std::size_t>(n);
        offset += static_cast<std::uint64_t>(n);
      }
    }

    std::string name_;
    mill::detail::owned_fd file_;
    std::vector<row> rows_;
  };

  static mill::task<mill::bytes> read_piece(std::shared_ptr<const sorted_run> from, mill::slab_pool slabs, piece p) {
    const mill::coroutine_context here = co_await mill::this_context();
    const mill::cpu_pool::share pool = mill::cpu_pool::share::of(here.runtime());
    const std::size_t bytes = from->bytes_of(p);
    mill::writable_bytes to = bytes <= slabs.slab_bytes() ? slabs.acquire() : mill::writable_bytes::allocate(bytes);
    auto job = [from, p, memory = std::move(to)]() mutable { return from->read(p, memory); };
    mill::bytes data = co_await pool.run(std::move(job));
    co_return std::move(data);
  }

  static mill::async_generator<placed_sample> sorted(shuffle_spool* self, std::size_t number) {
    const mill::coroutine_context here = co_await mill::this_context();
    const std::size_t most = std::clamp<std::size_t>(self->memory_ / 64, mill::MiB, 8 * mill::MiB);
    const mill::slab_pool slabs = here.runtime().slabs(most);
    const run& r = self->runs_[number];
    const std::string name = self->path("run-" + std::to_string(number));
    auto all = std::make_shared<const sorted_run>(name + ".data", name + ".rows", r.data.size, r.rows.size);
    // A run that fits is read ahead as it lies, and not from place to place.
    if (r.data.size <= self->memory_) ::posix_fadvise(all->file(), 0, 0, POSIX_FADV_WILLNEED);
    std::vector<piece> pieces;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < all->size(); ++i) {
      if (pieces.empty() || bytes + (*all)[i].length > most || i - pieces.back().first == 4096) {
        pieces.push_back({i, i});
        bytes = 0;
      }
      bytes += (*all)[i].length;
      pieces.back().end = i + 1;
    }
    auto read = [all, slabs](piece p) { return read_piece(all, slabs, p); };
    mill::stream<mill::bytes> read_ahead =
        mill::from_range(std::move(pieces)) | mill::map_concurrent(read, {.limit = 3});
    std::size_t i = 0;
    while (std::optional<mill::bytes> some = co_await read_ahead.next()) {
      for (std::size_t at = 0; at < some->size(); ++i) {
        const auto length = static_cast<std::size_t>((*all)[i].length);
        std::optional<mill::sample> s = read_record(some->slice(at, length));
        if (!s) {
          throw mill::index_error("a sample is not as it was written: remove the folder to begin anew",
                                  mill::where{all->name(), (*all)[i].offset, {}});
        }
        at += length;
        const std::uint64_t place = (*all)[i].place;
        placed_sample out(place >> 40, place & ((std::uint64_t{1} << 40) - 1), std::move(*s));
        co_yield mill::give(out);
      }
    }
    // Once more only after a kill: the memory is for the next run's file.
    ::posix_fadvise(all->file(), 0, 0, POSIX_FADV_DONTNEED);
  }

  void write_journal() const {
    std::string text = "millrace-reshard 1\njob " + std::to_string(job_.size()) + '\n' + job_;
    text += "phase " + std::to_string(static_cast<int>(phase_)) + '\n';
    const auto number = [&](std::uint64_t n) { text += std::to_string(n) + '\n'; };
    number(place.shard);
    number(place.ordinal);
    number(samples);
    number(rekeyed);
    number(counts.size());
    for (const output_count& c : counts) {
      number(c.samples);
      number(c.bytes);
      text += c.sum.value().text() + '\n';
    }
    number(runs_.size());
    for (const run& r : runs_) {
      number(r.data.size);
      number(r.rows.size);
    }
    number(mill::crc32c(0, text.data(), text.size()));
    const std::string half = path("journal.part");
    const int file = ::open(half.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) failed(errno, "the file cannot be made", half);
    const mill::detail::owned_fd open(file);
    for (std::string_view rest = text; !rest.empty();) {
      const ::ssize_t n = ::write(file, rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) failed(errno, "the file cannot be written", half);
      rest.remove_prefix(static_cast<std::size_t>(n));
    }
    if (::fsync(file) != 0 || ::rename(half.c_str(), path("journal").c_str()) != 0) {
      failed(errno, "the journal cannot be replaced", half);
    }
    const mill::detail::owned_fd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0 || ::fsync(folder.get()) != 0) failed(errno, "the folder cannot be synchronised", folder_);
  }

  void read_journal(std::string_view text) {
    const std::string_view whole = text;
    const auto damaged = [&] {
      throw mill::index_error("the journal is damaged: remove the folder to begin anew",
                              mill::where{path("journal"), whole.size() - text.size(), {}});
    };
    const auto line = [&] {
      const std::size_t end = text.find('\n');
      if (end == std::string_view::npos) damaged();
      const std::string_view out = text.substr(0, end);
      text.remove_prefix(end + 1);
      return out;
    };
    const auto number = [&] {
      const std::optional<std::uint64_t> n = mill::text::parse_decimal<std::uint64_t>(line());
      if (!n) damaged();
      return *n;
    };
    if (line() != "millrace-reshard 1") damaged();
    std::string_view head = line();
    if (head.substr(0, 4) != "job ") damaged();
    const auto job_bytes = mill::text::parse_decimal<std::size_t>(head.substr(4));
    if (!job_bytes || *job_bytes > text.size()) damaged();
    const std::string_view job = text.substr(0, *job_bytes);
    text.remove_prefix(*job_bytes);
    if (job != job_) {
      std::string_view mine = job_, its = job;
      while (!mine.empty() && !its.empty() && mine.substr(0, mine.find('\n')) == its.substr(0, its.find('\n'))) {
        mine.remove_prefix(std::min(mine.find('\n') + 1, mine.size()));
        its.remove_prefix(std::min(its.find('\n') + 1, its.size()));
      }
      not_of_this_job("there it is \"" + std::string(its.substr(0, its.find('\n'))) + "\", here \"" +
                      std::string(mine.substr(0, mine.find('\n'))) + '"');
    }
    head = line();
    if (head != "phase 0" && head != "phase 1" && head != "phase 2") damaged();
    phase_ = static_cast<phase>(head.back() - '0');
    place.shard = number();
    place.ordinal = number();
    samples = number();
    rekeyed = number();
    if (number() != counts.size()) damaged();
    for (output_count& c : counts) {
      c.samples = number();
      c.bytes = number();
      const std::optional<mill::hash128> sum = mill::hash128::parse(line());
      if (!sum) damaged();
      c.sum = mill::detail::samples_sum(*sum);
    }
    const std::uint64_t runs = number();
    if (runs == 0 || runs > 100'000) damaged();
    runs_.resize(static_cast<std::size_t>(runs));
    for (run& r : runs_) {
      r.data.size = number();
      r.rows.size = number();
    }
    const std::size_t summed = whole.size() - text.size();
    if (number() != mill::crc32c(0, whole.data(), summed) || !text.empty()) damaged();
  }

  const std::string folder_;
  const std::string job_;
  const std::size_t memory_;
  std::vector<run> runs_;
  std::size_t of_output_ = 1;  // runs of each output
  std::size_t buffer_ = 0;
  phase phase_ = phase::deal;
  bool resumed_ = false;
};

}  // namespace tools
