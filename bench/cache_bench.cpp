// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A disk cache: a warm epoch by fetch(disk_cache()), and four by epochs() of tars of samples of 128 KiB, beside bare
// O_DIRECT reads of the same file in parts of 8 MiB, eight at a time, by io_uring; and a cold epoch beside fetch()
// without a cache and bare O_DIRECT writes of as much, in turns. Server in a process of its own on core 0, client on
// core 1; one runtime, whose slabs are warm. The time of a cold epoch is that until its last chunk has come, its CPU
// that until its last block is written. However large the data are, epochs() reads some 25 MB of it twice, slices at
// the ends of its 24 tracks.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/cache_bench.cpp -o cache_bench -lcurl -luring -larchive
//   -lssl -lcrypto -lexpat
//
//   cache_bench [folder, default .] [MiB of data, default 2048]
//
// The folder is on the disk that is measured; what the program makes in it, it deletes.

#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <millrace/base/units.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/formats/index_shard.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/shards/disk_cache.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/s3_server/detail/text.hpp>
#include <millrace/testing/s3_server/store.hpp>
#include <millrace/train/dataset.hpp>

#include "bench/common/contender.hpp"
#include "bench/common/measure.hpp"
#include "bench/common/served.hpp"

namespace {

namespace mill = millrace;

constexpr std::size_t part_bytes = 8 * mill::MiB;
constexpr std::size_t shard_bytes = 64 * mill::MiB;

/// Reads `size` bytes of a file past the page cache, or writes them to a new file, eight parts at a time.
std::uint64_t bare(bool write, const std::string& path, std::uint64_t size) {
  constexpr unsigned depth = 8;
  const int fd = ::open(path.c_str(), (write ? O_RDWR | O_CREAT | O_EXCL : O_RDONLY) | O_DIRECT | O_CLOEXEC, 0600);
  io_uring ring;
  if (fd < 0 || (write && ::fallocate(fd, 0, 0, static_cast<off_t>(size)) != 0) ||
      io_uring_queue_init(depth, &ring, 0) != 0) {
    throw std::runtime_error("cannot use " + path);
  }
  static mill::slab_pool pool(part_bytes);
  std::vector<mill::writable_bytes> memory;
  for (unsigned i = 0; i < depth; ++i) memory.push_back(pool.acquire());
  std::uint64_t asked = 0, came = 0;
  const auto ask = [&](std::uint64_t slab) {
    io_uring_sqe* const e = io_uring_get_sqe(&ring);
    if (write) {
      io_uring_prep_write(e, fd, memory[slab].data(), part_bytes, asked);
    } else {
      io_uring_prep_read(e, fd, memory[slab].data(), part_bytes, asked);
    }
    io_uring_sqe_set_data64(e, slab);
    asked += part_bytes;
  };
  for (unsigned i = 0; i < depth && asked < size; ++i) ask(i);
  while (came < size) {
    io_uring_submit_and_wait(&ring, 1);
    io_uring_cqe* c = nullptr;
    while (io_uring_peek_cqe(&ring, &c) == 0) {
      if (c->res != static_cast<int>(part_bytes)) throw std::runtime_error("a short transfer of " + path);
      came += part_bytes;
      const std::uint64_t slab = io_uring_cqe_get_data64(c);
      io_uring_cqe_seen(&ring, c);
      if (asked < size) ask(slab);
    }
  }
  io_uring_queue_exit(&ring);
  ::close(fd);
  return came;
}

std::uint64_t read_all(mill::runtime& rt, const std::shared_ptr<const mill::storage>& store, std::size_t shards,
                       const std::string& etag) {
  std::vector<mill::shard> known;
  for (std::size_t i = 0; i < shards; ++i) {
    known.emplace_back("s3://b/" + std::to_string(i), std::uint64_t(shard_bytes), etag);
  }
  auto chunks = mill::from_range(std::move(known)) | mill::fetch(store);
  std::uint64_t total = 0;
  for (const mill::chunk& c : rt.run(std::move(chunks), {.show = mill::progress::off})) total += c.data.size();
  return total;
}

/// A tar of shard_bytes.
std::string tar_of_samples() {
  constexpr std::size_t sample_bytes = 128 * mill::KiB;
  std::string text;
  mill::tar::writer out(text);
  for (std::size_t i = 0; i < shard_bytes / sample_bytes; ++i) {
    const std::size_t end = i + 1 == shard_bytes / sample_bytes ? 1024 : 0;  // the end of a tar
    out.add(std::to_string(i) + ".bin", bench::noise(sample_bytes - 512 - end, i + 1));
  }
  out.finish();
  if (text.size() != shard_bytes) throw std::runtime_error("the tar has another size");
  return text;
}

std::uint64_t train_all(mill::runtime& rt, const std::shared_ptr<const mill::storage>& store,
                        const std::shared_ptr<const mill::index_set>& indexes, std::uint64_t epoch) {
  const mill::dataset data(store, indexes, {.prefix = "s3://b/"});
  auto run = rt.run(mill::epochs(data, {.seed = 7, .epochs = 4, .first_epoch = epoch, .batch = 64}) | mill::batch(),
                    {.show = mill::progress::off});
  std::uint64_t total = 0;
  for (const std::vector<mill::sample>& b : run) {
    for (const mill::sample& s : b) {
      for (const mill::field& f : s.fields) total += f.data.size();
    }
  }
  return total;
}

/// Waits until nothing more is written.
void settle(const mill::disk_cache_storage& cache) {
  for (std::uint64_t before = ~std::uint64_t(0), now = 0; now != before;) {
    before = now;
    ::usleep(100'000);
    now = cache.stats().admitted;
  }
}

void remove_cache(const std::string& folder) {
  std::error_code none;
  std::filesystem::remove_all(folder, none);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string where_to = argc > 1 ? argv[1] : ".";
  const std::string warm_folder = where_to + "/millrace-warm";
  const std::string cold_folder = where_to + "/millrace-cold";
  const std::size_t shards = static_cast<std::size_t>(argc > 2 ? std::atoi(argv[2]) : 2048) * mill::MiB / shard_bytes;
  bench::print_machine();
  const std::string content = tar_of_samples();
  // With a CRC32C of each object, as S3 keeps a checksum of each: who reads it compares it, cached or not.
  const std::string sum = mill::s3_server::detail::to_base64(mill::s3_server::detail::checksum_of("crc32c", content));
  const bench::served server(false, [&](mill::s3_server::background& s) {
    const mill::bytes shared = mill::bytes::copy(content);
    for (std::size_t i = 0; i < shards; ++i) {
      mill::s3_server::object o(shared);
      o.checksums.emplace_back("x-amz-checksum-crc32c", sum);
      s.objects().put("b", std::to_string(i), std::move(o));
    }
  });
  bench::pin(1);
  const std::shared_ptr<const mill::storage> s3 = mill::detail::storage_of(server.client());
  mill::runtime rt;
  std::string etag;
  {
    mill::task<mill::storage::part> first =
        s3->read(mill::shard("s3://b/0"), std::string(), 0, 1000, mill::slab_pool(part_bytes));
    const auto loop = mill::make_event_loop();
    etag = mill::block_on(mill::coroutine_context(*loop), std::move(first)).etag;
  }
  std::vector<mill::shard_index> made;
  for (std::size_t i = 0; i < shards; ++i) {
    const auto loop = mill::make_event_loop();
    const std::string name = std::to_string(i);
    made.push_back(mill::block_on(*loop, mill::index_shard(s3, mill::shard("s3://b/" + name), name)));
  }
  const auto indexes = std::make_shared<const mill::index_set>(std::move(made));
  const std::uint64_t size = shards * shard_bytes;
  const auto cache_in = [&](const std::string& folder) {  // whole segments, with room for every block
    return mill::disk_cache(s3, {.directory = folder, .bytes = size + mill::GiB, .keep_free = 0});
  };
  remove_cache(warm_folder);
  const auto warm = cache_in(warm_folder);
  std::uint64_t missed = ~std::uint64_t(0);
  for (int i = 0; i < 8 && warm->stats().misses != missed; ++i) {  // until all of it is there
    missed = warm->stats().misses;
    read_all(rt, warm, shards, etag);
    settle(*warm);
  }
  const mill::disk_cache_stats filled = warm->stats();
  const std::string read_file = where_to + "/millrace-bare-read", written_file = where_to + "/millrace-bare-written";
  ::unlink(read_file.c_str());
  bare(true, read_file, size);
  bench::contender reads("bare O_DIRECT reads, 8 at a time", [&] { return bare(false, read_file, size); });
  bench::contender cached("fetch(disk_cache), warm", [&] { return read_all(rt, warm, shards, etag); });
  std::uint64_t epoch = 0, delivered = 0, of_disk = 0;  // bytes, of epochs()
  bench::contender trained("epochs(disk_cache), warm", [&] {
    const std::uint64_t before = warm->stats().hit_bytes;
    const std::uint64_t bytes = train_all(rt, warm, indexes, epoch += 4);
    of_disk += warm->stats().hit_bytes - before;
    delivered += bytes;
    return bytes;
  });
  bench::contender without("fetch without a cache", [&] { return read_all(rt, s3, shards, etag); });
  bench::contender writes("bare O_DIRECT writes, 8 at a time",
                          [&] {
                            ::unlink(written_file.c_str());
                            return bare(true, written_file, size);
                          });
  std::uint64_t refused = 0;
  bench::contender cold("fetch(disk_cache), cold", [&] {
    remove_cache(cold_folder);
    const auto cache = cache_in(cold_folder);
    bench::meter m;
    m.start();
    const std::uint64_t bytes = read_all(rt, cache, shards, etag);
    const bench::cost came = m.stop(static_cast<double>(bytes));
    settle(*cache);
    bench::cost all = m.stop(static_cast<double>(bytes));
    all.seconds = came.seconds;
    refused += cache->stats().refused;
    return all;
  });
  bench::take_turns({&reads, &cached, &trained});
  bench::take_turns({&without, &writes, &cold});
  bench::print_table({&reads, &cached, &trained, &without, &writes, &cold});
  bench::goal_at_least("GB/s, warm / bare", bench::ratio(cached.gb_per_second, reads.gb_per_second), 0.95);
  bench::goal_at_least("GB/s, warm by epochs() / bare", bench::ratio(trained.gb_per_second, reads.gb_per_second), 0.95);
  const double more = static_cast<double>(of_disk) / static_cast<double>(delivered);
  std::printf("  the same of bytes that it reads, %.3f of its own (slices at the ends of tracks): %.3f\n", more,
              more * bench::ratio(trained.gb_per_second, reads.gb_per_second));
  bench::goal_at_most("CPU s/GB, warm", cached.cpu_per_gb.median(), 0.12, "s");
  bench::goal_at_most("CPU s/GB, warm by epochs()", trained.cpu_per_gb.median(), 0.12, "s");
  bench::goal_at_most("time, cold / without", bench::ratio(without.gb_per_second, cold.gb_per_second), 1.05);
  std::printf("  time, cold / the longer of without and bare writes: %.2f\n",
              std::min(without.gb_per_second.median(), writes.gb_per_second.median()) / cold.gb_per_second.median());
  bench::goal_at_most("CPU s/GB, cold / without", bench::ratio(cold.cpu_per_gb, without.cpu_per_gb), 1.05);
  const mill::disk_cache_stats s = warm->stats();
  std::printf("  warm: %llu hits, %llu misses; cold: %llu of %llu blocks refused\n",
              static_cast<unsigned long long>(s.hits - filled.hits),
              static_cast<unsigned long long>(s.misses - filled.misses), static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(size / mill::MiB * static_cast<std::uint64_t>(bench::rounds + 1)));
  remove_cache(warm_folder);
  remove_cache(cold_folder);
  ::unlink(read_file.c_str());
  ::unlink(written_file.c_str());
}
