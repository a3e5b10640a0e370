// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Runs the programs of src/tools one after the other against an S3 server in this process, and checks what they say and
// do, and their exit codes: run_tools MILLRACE-INDEX MILLRACE-VERIFY MILLRACE-PLAN MILLRACE-CACHE VERSION.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/index/index_set.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/order/epoch_fingerprint.hpp>
#include <millrace/order/rank_share.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/s3_server/background.hpp>

#include "tests/support/drawn_matroska.hpp"
#include "tests/support/drawn_mp4.hpp"

namespace mill = millrace;

namespace {

struct said {
  int status = 0;
  std::string text;
};

said run(const std::string& command) {
  said out;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (std::size_t n; pipe != nullptr && (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    out.text.append(buffer, n);
  const int status = pipe == nullptr ? -1 : ::pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::printf("$ %s\n%s", command.c_str(), out.text.c_str());
  return out;
}

void require(bool good, const char* what) {
  if (good) return;
  std::printf("FAILED: %s\n", what);
  std::exit(1);
}
void require_said(const said& s, int status, std::string_view text) {
  require(s.status == status, "the program left with another status");
  if (s.text.find(text) == std::string::npos)
    std::printf("not said: %.*s\n", static_cast<int>(text.size()), text.data());
  require(s.text.find(text) != std::string::npos, "the program said something else");
}

std::string shard_of(int samples, std::size_t bytes) {
  std::string tar;
  mill::tar::writer w(tar);
  for (int i = 0; i < samples; ++i) {
    w.add(std::to_string(i) + ".jpg", std::string(bytes, static_cast<char>('a' + i % 26)));
    w.add(std::to_string(i) + ".cls", std::to_string(i % 10));
  }
  w.finish();
  return tar;
}

/// A file for each of two ranks, for an epoch that they shared.
std::vector<std::string> fingerprints(const mill::index_set& set, const std::string& folder) {
  const mill::sample_order order(set.counts(), 7, 3);
  std::vector<std::string> names;
  for (std::uint64_t r = 0; r < 2; ++r) {
    const mill::rank_share share(order.tracks(), r, 2);
    mill::epoch_fingerprint seen;
    for (std::uint64_t at = 0; at < order.size();) {
      const mill::order_step step = mill::step_at(order.size(), at, 16, 2);
      for (const std::uint64_t g : share.positions(step)) seen.add(order.at(g), 3);
      at += step.count;
    }
    names.push_back(folder + "/rank-" + std::to_string(r) + ".txt");
    std::ofstream(names.back()) << "3 " << seen.text() << "\n";
  }
  return names;
}

/// What every tool has, and what it refuses: before anything is read or written.
void check_options(const std::string& index, const std::string& verify, const std::string& plan,
                   const std::string& cache, const std::string& version) {
  const auto help = [](const std::string& tool, std::initializer_list<std::string_view> options) {
    const said s = run(tool + " --help");
    require_said(s, 0, "Exit status: 0 fine, 1 bad data was found, 2 wrong usage, 3 it could not finish.");
    require(run(tool + " -h").text == s.text, "-h is not --help");
    for (const std::string_view option : options) require_said(s, 0, option);
  };
  help(index, {"PREFIX", "--out", "--listing", "--format", "--seconds", "--stride", "--stream", "--headers", "--shards",
               "--max-member", "--max-line"});
  help(verify, {"INDEX", "FINGERPRINTS"});
  help(plan, {"PLACE", "--world", "--batch", "--tracks", "--slice", "--take-batches", "--memory-mb", "--hosts",
              "--cache", "--cache-gb", "--seed", "--epoch", "--price-1000", "--price-gb", "--limit", "--latency-ms",
              "--mb-s"});
  help(cache, {"stat", "verify", "drop", "fill"});
  require_said(run(cache + " fill --help"), 0, "--keep-free");
  require_said(run(cache + " --version"), 0, "millrace-cache " + version + "\n");
  require_said(run(index + " --version"), 0, "millrace-index " + version + "\n");
  require_said(run(verify + " --version"), 0, "millrace-verify " + version + "\n");
  require_said(run(plan + " --version"), 0, "millrace-plan " + version + "\n");

  require_said(run(cache), 2, "millrace-cache: ");
  require_said(run(cache + " stat"), 2, "DIRECTORY is required");
  require_said(run(cache + " drop ''"), 2, "DIRECTORY: must not be empty");
  require_said(run(cache + " fill s3://x/ y"), 2, "--bytes is required");
  require_said(run(cache + " fill s3://x/ y --bytes much"), 2, "--bytes");
  require_said(run(index), 2, "millrace-index: PREFIX is required\nTry 'millrace-index --help'.");
  require_said(run(index + " ''"), 2, "PREFIX: must not be empty");
  require_said(run(index + " x y"), 2, "not expected: y");
  require_said(run(index + " x --bogus"), 2, "not expected: --bogus");
  require_said(run(index + " x --stream --headers"), 2, "excludes");
  require_said(run(index + " x --format pages"), 2,
               "--format: pages not in {classes,folders,lines,mds,megatron,npy,objects,parquet,recordio,tar,tfrecord,"
               "video}");
  require_said(run(index + " x --seconds 1"), 3, "--seconds and --stride are of films (--format video)");
  require_said(run(index + " x --shards 0"), 2, "--shards: '0' is no whole number above 0");
  require_said(run(index + " x --out"), 2, "--out");
  require_said(run(verify + " x"), 2, "FINGERPRINTS is required");
  require_said(run(plan + " x --world y"), 2, "--world: 'y' is no whole number above 0");
  require_said(run(plan + " x --world -1"), 2, "--world");
  require_said(run(plan + " x --seed 18446744073709551616"), 2, "--seed: '18446744073709551616' is no whole number");
  for (const char* wrong : {"-1", "1x", "nan", "inf"}) {
    require_said(run(plan + " x --price-gb " + wrong), 2, "--price-gb");
  }
}

/// A tar whose one member has so many bytes, most of which the disk does not have.
void make_long_tar(const std::string& name, std::uint64_t bytes) {
  std::string tar;
  mill::tar::writer w(tar);
  w.add("long.bin", "x");
  w.finish();
  char size[16];
  std::snprintf(size, sizeof size, "%011llo", static_cast<unsigned long long>(bytes));
  tar.replace(124, 11, size);
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(tar[i]);
  std::snprintf(size, sizeof size, "%06o", sum);
  tar.replace(148, 6, size);
  std::ofstream(name, std::ios::binary) << tar.substr(0, 513);
  std::filesystem::resize_file(name, 512 + (bytes + 511) / 512 * 512 + 1024);
}

/// A member or a line beyond a bound is an error that names the option which lifts it.
void check_bounds(const std::string& index, const std::string& folder) {
  const std::string in = folder + "/long";
  std::filesystem::create_directories(in);
  make_long_tar(in + "/a.tar", (1 << 30) + 1);
  for (const char* way : {" --headers", " --stream", ""}) {
    const said refused = run(index + " " + in + way);
    require_said(refused, 1, "the member's 1073741825 bytes are more than --max-member allows");
    require_said(refused, 1, "a.tar at byte 0");
  }
  require_said(run(index + " " + in + " --headers --max-member 2GiB"), 0, "1 shard, 1 samples");
  make_long_tar(in + "/a.tar", 3000);
  require_said(run(index + " " + in + " --stream --max-member 2999"), 1,
               "3000 bytes are more than --max-member allows");
  require_said(run(index + " " + in + " --stream --max-member 3000"), 0, "1 shard, 1 samples");
  const std::string text = folder + "/long-text";
  std::filesystem::create_directories(text);
  std::ofstream(text + "/a.jsonl") << "{}\n" << std::string(17 << 20, '1') << "\n";
  require_said(run(index + " " + text + " --format lines"), 1, "line 1 is longer than 16777216 bytes (--max-line)");
  require_said(run(index + " " + text + " --format lines --max-line 17MiB"), 0, "1 shard, 2 samples");
}

/// Of five shards of less than a block under s3://corpus/train/.
void check_cache(const std::string& cache, const std::string& plan, const std::string& folder,
                 mill::s3_server::background& server) {
  const std::string in = folder + "/cache";
  const std::string fill = cache + " fill s3://corpus/train/ " + in + " --keep-free 0 --bytes ";
  const auto shards_read = [&] {
    std::size_t n = 0;
    for (const mill::s3_server::logged_request& r : server.log().entries()) n += r.key.find(".tar") != r.key.npos;
    return n;
  };
  require_said(run(cache + " stat " + in), 3, "cannot be opened as the folder of a cache");
  const said filled = run(fill + "64MiB");
  require_said(filled, 0, "] 5 objects, ");
  require_said(filled, 0, "0 B from the cache; 5 blocks or parts of them written, 0 refused, 0 damaged");
  server.log().clear();
  require_said(run(fill + "64MiB"), 0, "0 B from the store");
  require(shards_read() == 0, "what was cached was read from the store");
  const said stat = run(cache + " stat " + in);
  require_said(stat, 0, "3 segments, 0 in use; 5 slots of 1 MiB taken; ");
  require_said(stat, 0, " in 5 blocks\n  s3://corpus/train/: ");
  require_said(stat, 0, "last used 20");
  require_said(run(cache + " verify " + in), 0, "are as they were written; 0 damaged");
  // By an index, and by the list alone; of a folder without a cache an error.
  const std::string planned = plan + " s3://corpus/train/ --batch 8 --cache ";
  require_said(run(planned + in), 0, "the next epoch reads from the store about 0 bytes by 0 requests");
  require_said(run(plan + " s3://corpus/train/millrace.index --batch 8 --cache " + in), 0,
               "about 0 bytes by 0 requests");
  require_said(run(planned + folder), 3, "the folder holds no cache");

  {
    std::fstream f(in + "/segment.000001", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(5000);
    f.put('!');
  }
  require_said(run(cache + " stat " + in), 0, " in 5 blocks");
  const said damaged = run(cache + " verify " + in);
  require_said(damaged, 1, "segment 1, slot 0, block 0 of s3://corpus/train/");
  require_said(damaged, 1, ".tar: its data are damaged at byte 4096\n");
  require_said(damaged, 1, "1 damaged\n");
  {
    std::fstream f(in + "/headers", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(4096 + 100);
    f.put('!');
  }
  require_said(run(cache + " verify " + in), 1, "segment 0, slot 1: its header is damaged");
  require_said(run(cache + " stat " + in), 0, "blocks without a whole header: 1;");
  require_said(run(fill + "64MiB"), 0, "2 blocks or parts of them written, 0 refused, 2 damaged");
  require_said(run(cache + " verify " + in), 0, "; 0 damaged");

  // What does not fit is said, and so is a store that fails.
  const std::string small = folder + "/small";
  const std::string fill_small = cache + " fill s3://corpus/train/ " + small + " --keep-free 0 --bytes 3300000";
  require_said(run(fill_small), 3, "3 blocks or parts of them written, 2 refused");
  require_said(run(fill_small), 3, "not all is kept: the cache or its disk is full");
  server.faults().add({.method = "GET", .key_prefix = "train/4.tar"},
                      mill::s3_server::fault::refuse(403, "AccessDenied"));
  require_said(run(cache + " fill s3://corpus/train/ " + folder + "/new --keep-free 0 --bytes 64MiB"), 3,
               "not all was read: s3://corpus/train/4.tar");
  server.faults().clear();
  require_said(run(cache + " fill s3://corpus/none/ " + small + " --bytes 64MiB"), 3, "millrace-cache: ");

  // A data set that nothing uses makes room for another.
  server.put("corpus", "other/a.tar", std::string(2 << 20, 'a'));
  require_said(run(cache + " fill s3://corpus/other/ " + small + " --keep-free 0 --bytes 3300000"), 0,
               "blocks or parts of them written, 0 refused");
  require_said(run(cache + " stat " + small), 0, "\n  s3://corpus/other/: 2.10 MB, last used ");

  // Files of the cache alone are removed, and not while a process uses them.
  std::ofstream(small + "/segment.txt") << "mine";
  std::filesystem::create_symlink(folder + "/cache/index", small + "/segment.000009");
  const int used = ::open((small + "/segment.000001").c_str(), O_RDWR | O_CLOEXEC);
  struct ::flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = off_t(1) << 62;
  lock.l_len = 1;
  require(used >= 0 && ::fcntl(used, F_OFD_SETLK, &lock) == 0, "a segment cannot be locked");
  require_said(run(cache + " stat " + small), 0, "3 segments, 1 in use");
  require_said(run(cache + " drop " + small), 3, "a process uses segment.000001 of the cache: nothing was removed");
  require_said(run(cache + " stat " + small), 0, "3 segments, 1 in use");
  ::close(used);
  const said dropped = run(cache + " drop " + small);
  require_said(dropped, 0, "removed 3 segments, headers, locks, index: ");
  require_said(dropped, 0, "; the folder stays, and 2 that are not of the cache\n");
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(small)) left.insert(entry.path().filename().string());
  require(left == std::set<std::string>{"segment.txt", "segment.000009"}, "something else was removed, or not enough");
  require(std::filesystem::exists(folder + "/cache/index"), "a link was followed");
  require_said(run(cache + " drop " + small), 3, "the folder holds no cache: its index cannot be opened");
  std::ofstream(small + "/index") << "an index of something else";
  require_said(run(cache + " drop " + small), 3, "the folder holds no cache: its index is not that of one");
  require_said(run(cache + " stat " + small), 3, "the folder holds no cache: its index is not that of one");
  require(std::filesystem::exists(small + "/index"), "a file of another was removed");
}

int run_tools(const std::string& index, const std::string& verify, const std::string& plan, const std::string& cache) {
  mill::s3_server::background server;
  for (int i = 0; i < 5; ++i) {
    server.put("corpus", "train/" + std::to_string(i) + ".tar", shard_of(40 + i, 3000));
  }
  server.put("corpus", "train/README", std::string("not a shard"));
  for (const char* name : {"AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_SESSION_TOKEN"})
    ::unsetenv(name);
  ::setenv("AWS_ENDPOINT_URL_S3", server.endpoint().c_str(), 1);
  ::setenv("AWS_ACCESS_KEY_ID", "test-key", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "test-secret", 1);
  ::setenv("AWS_REGION", "us-east-1", 1);
  const auto reads = [&] {  // of shards
    std::size_t n = 0;
    for (const mill::s3_server::logged_request& r : server.log().entries()) {
      n += r.method == "GET" && r.key.find(".tar") != std::string::npos ? 1 : 0;
    }
    return n;
  };

  require_said(run(plan + " s3://corpus/train/ --world 4"), 0, "5 shards, ");
  require_said(run(plan + " s3://corpus/train/ --world 4"), 0, "without an index");
  require_said(run(plan + " s3://corpus/train/millrace.index"), 3, "there is no index");
  require_said(run(plan + " s3://corpus/train/ --world 4 --hosts 2"), 3, "without an index");

  // Every answer is late: who asks for one shard after the other asks on one connection.
  server.faults().add({.method = "GET", .key_prefix = "train/"},
                      mill::s3_server::fault::delay_head(std::chrono::milliseconds(300)));
  require_said(run(index + " s3://corpus/train/"), 0, "5 shards, 210 samples");
  // A second reading, of what has no checksum, has a connection of its own in any case: the first ones tell.
  std::set<std::string> begun;
  std::set<std::uint64_t> connections;
  for (const mill::s3_server::logged_request& r : server.log().entries()) {
    if (r.key.find(".tar") != std::string::npos && begun.insert(r.key).second) connections.insert(r.connection);
  }
  require(connections.size() == 5, "shards were read one after the other");
  server.faults().clear();
  const std::size_t first = reads();
  require(first == 10, "a small shard without a checksum is read twice, by one request each time");
  require_said(run(index + " s3://corpus/train/"), 0, "5 shards, 210 samples");
  require(reads() == first, "shards that had not changed were read again");
  server.put("corpus", "train/3.tar", shard_of(50, 3000));
  const std::size_t second = reads();
  const said updated = run(index + " s3://corpus/train/");
  require_said(updated, 0, "5 shards, 217 samples");
  require_said(updated, 0, "[####################] 1 of 1 shards");
  require(reads() - second == 2, "more than the shard that had changed was read");

  require_said(run(plan + " s3://corpus/train/ --world 4 --batch 8 --hosts 2 --cache-gb 1"), 0,
               "with a disk cache of 953.7 MiB on each of 2 hosts, reads from the store: about 0 bytes");
  require_said(run(plan + " s3://corpus/train/ --world 4 --hosts 3"), 3, "3 hosts do not divide");
  require_said(run(plan + " s3://corpus/train/ --world 4 --batch 8"), 0, " s at the 5500 a second that a prefix takes");
  require_said(run(plan + " s3://corpus/train/ --world 4 --batch 8 --limit 100"), 0, " s at the 100 a second");
  require_said(run(plan + " s3://corpus/train/ --world 4 --batch 8 --price-1000 0.4 --latency-ms 30 --mb-s 100"), 0,
               "7 batches on each of 4 ranks, 7 entries of weight 0");

  const auto loop = mill::make_event_loop();
  const mill::s3::client s3 = mill::s3::client::from_environment();
  const mill::bytes text = mill::block_on(*loop, s3.read("s3://corpus/train/millrace.index"));
  const mill::index_set set(mill::read_indexes(text.view(), "millrace.index"));
  require(set.size() == 5 && set[3].name() == "3.tar" && set[3].samples() == 50, "another index was written");
  require(set[0].has_checksums() && !set[0].etag().empty(), "an index without checksums or ETag");

  const std::string folder =
      std::filesystem::temp_directory_path().string() + "/run_tools." + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  const std::vector<std::string> ranks = fingerprints(set, folder);
  const std::string both = " s3://corpus/train/millrace.index " + ranks[0] + " " + ranks[1];
  require_said(run(verify + both), 0, "epoch 3: each of 217 samples once");
  require_said(run(verify + " s3://corpus/train/millrace.index " + ranks[0]), 1, "epoch 3: WRONG: ");
  std::ofstream(ranks[1], std::ios::app) << "no fingerprint\n";
  require_said(run(verify + both), 1, "the line is not an epoch and a fingerprint");

  check_bounds(index, folder);
  check_cache(cache, plan, folder, server);

  // Of large members the headers alone are read, by ranges.
  server.put("corpus", "films/0.tar", shard_of(6, std::size_t(4) << 20));
  server.log().clear();
  require_said(run(index + " s3://corpus/films/"), 0, "1 shard, 6 samples");
  std::size_t ranges = 0;
  std::uint64_t bytes = 0;
  for (const mill::s3_server::logged_request& r : server.log().entries()) {
    unsigned long long from = 0, to = 0;
    if (r.method != "GET" || r.key != "films/0.tar") continue;
    require(std::sscanf(r.range.c_str(), "bytes=%llu-%llu", &from, &to) == 2, "a large shard was read without a range");
    ++ranges;
    bytes += to - from + 1;
  }
  require(ranges > 1 && bytes < std::uint64_t(4) << 20, "of a large shard more than the headers was read");

  // Files, and a shard that is cut: the others are indexed, and it is said.
  std::filesystem::create_directory(folder + "/tars");
  std::ofstream(folder + "/tars/a.tar", std::ios::binary) << shard_of(10, 100);
  std::ofstream(folder + "/tars/b.tar", std::ios::binary) << shard_of(10, 100).substr(0, 4700);
  const std::string out = folder + "/my.index";
  const said cut = run(index + " " + folder + "/tars --headers --out " + out);
  require_said(cut, 1, "1 shard, 10 samples");
  require_said(cut, 1, "b.tar at byte 4096, 2.jpg: ");
  require_said(run(plan + " " + out + " --batch 3"), 0, "4 batches on each of 1 rank, 2 entries of weight 0");

  require_said(run(verify + " " + out + " " + folder + "/empty"), 3, "there is no such file");
  std::ofstream(folder + "/empty").put('\n');
  require_said(run(verify + " " + out + " " + folder + "/empty"), 1, "the files have no fingerprints");
  require_said(run(verify + " " + folder + "/nothing " + ranks[0]), 3, "there is no index");
  require_said(run(verify + " " + ranks[0] + " " + ranks[0]), 1, ranks[0]);  // that is no index
  require_said(run(index + " " + folder + "/tars --out /proc/none"), 3, "the file cannot be made");
  require_said(run(index + " " + folder + "/nothing"), 3, "the folder cannot be read: No such file or directory");
  require_said(run(plan + " " + folder + "/nothing/"), 3, "the folder cannot be read");
  require_said(run(index + " s3://corpus/none/"), 3, "no object has this prefix");
  // Lines of text files, and objects, of which nothing is read.
  server.put("corpus", "text/a.jsonl", std::string("{}\n{}\r\n"));
  server.put("corpus", "text/b.jsonl", std::string("{}"));
  require_said(run(index + " --format lines s3://corpus/text/"), 0, "2 shards, 3 samples, 6 B in samples");
  require_said(run(index + " --format lines s3://corpus/text/"), 0, "2 shards, 3 samples");  // the index is no text
  require_said(run(index + " --format lines s3://corpus/text/ --listing s3://corpus/text/millrace.listing"), 0,
               "2 objects listed: s3://corpus/text/millrace.listing: ");
  require_said(run(index + " --format lines s3://corpus/text/"), 0, "2 shards, 3 samples");  // nor is the listing
  server.put("corpus", "text/b.jsonl.gz", std::string("\x1f\x8b\x08 and so on, to more bytes than a few"));
  require_said(run(index + " --format lines s3://corpus/text/"), 1,
               "b.jsonl.gz at byte 0: the frame of gzip that begins here is damaged");
  // A TFRecord file of the records "abc" and "".
  server.put("corpus", "records/a.tfrecord",
             std::string("\x03\0\0\0\0\0\0\0" "\xb0\x99\x49\x0e" "abc" "\x6e\x57\xf1\x21"
                         "\0\0\0\0\0\0\0\0" "\x29\x03\x98\x07" "\xd8\xea\x82\xa2",
                         35));
  require_said(run(index + " --format tfrecord s3://corpus/records/"), 0, "1 shard, 2 samples, 3 B in samples");
  require_said(run(index + " --format tfrecord s3://corpus/text/a"), 1,
               "a.jsonl at byte 0: the object ends in the middle of record 0");
  // An MDS shard of a sample "abc", and two documents of Megatron.
  const std::string columns = R"({"column_encodings": ["str"], "column_names": ["a"], "column_sizes": [null],)"
                              R"( "format": "mds", "version": 2})";
  const char begin = static_cast<char>(12 + columns.size());
  server.put("corpus", "mds/0/x.mds", std::string("\1\0\0\0", 4) + begin + std::string(3, '\0') +
                                          static_cast<char>(begin + 7) + std::string(3, '\0') + columns +
                                          std::string("\3\0\0\0abc", 7));
  require_said(run(index + " --format mds s3://corpus/mds/"), 0, "1 shard, 1 samples, 7 B in samples");
  require_said(run(index + " --format mds s3://corpus/mds/"), 0, "1 shard, 1 samples, 7 B in samples");
  server.put("corpus", "mds/index.json", std::string("{\"shards\": [], \"version\": 2}"));
  server.put("corpus", "mds/0/x.mds", std::string("\2\0\0\0", 4));
  require_said(run(index + " --format mds s3://corpus/mds/"), 1, "0/x.mds: no index.json names this shard");
  server.put("corpus", "tokens/x.bin", std::string("aabb"));
  require_said(run(index + " --format megatron s3://corpus/tokens/"), 3, "there is no s3://corpus/tokens/x.idx");
  // Two films of one second, and what lies beside them.
  mill::rng random(1);
  mill::test::drawn_mp4 mp4;
  mp4.tracks.resize(1);
  mp4.tracks[0].frames.resize(25, {.content = "frame", .duration = 24});
  mp4.tracks[0].frames[0].key = true;
  mill::test::drawn_matroska matroska = mill::test::drawn_matroska::draw(random, 8, 100, false);
  matroska.duration = 1000;
  server.put("corpus", "clips/a.mp4", mp4.plain());
  server.put("corpus", "clips/b.mkv", matroska.file());
  server.put("corpus", "clips/README", std::string("these are films"));
  require_said(run(index + " --format video --seconds 0.5 s3://corpus/clips/"), 0, "2 shards, 4 samples");
  require_said(run(index + " --format video --seconds 0.5 --stride 0.1 s3://corpus/clips/"), 0, "2 shards, 12 samples");
  require_said(run(index + " --format video --seconds 0 s3://corpus/clips/"), 3, "are positive");
  server.put("corpus", "images/cat/1.jpg", std::string("cat"));
  server.put("corpus", "images/dog/1.jpg", std::string("dog"));
  server.put("corpus", "images/README", std::string("these are images"));
  server.log().clear();
  const said images = run(index + " --format classes s3://corpus/images");
  require_said(images, 0, "2 folders, 2 samples");
  require_said(images, 0, "millrace-index: 1 object is left out");
  for (const mill::s3_server::logged_request& r : server.log().entries()) {
    require(r.key.find("jpg") == std::string::npos, "an image was read");
  }
  require_said(run(plan + " s3://corpus/images/millrace.index"), 0, "2 samples");
  // A shard that cannot be had is not bad data.
  server.faults().add({.method = "GET", .key_prefix = "films/0.tar"},
                      mill::s3_server::fault::refuse(403, "AccessDenied"));
  server.put("corpus", "films/0.tar", shard_of(7, 1000));
  const said refused = run(index + " s3://corpus/films/");
  require_said(refused, 3, "not indexed: s3://corpus/films/0.tar: 403 AccessDenied");
  require_said(refused, 3, "no shard could be indexed; s3://corpus/films/millrace.index is as it was");
  std::filesystem::remove_all(folder);
  std::puts("all as it should be");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 6) return 2;
  try {
    check_options(arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
    return run_tools(arguments[1], arguments[2], arguments[3], arguments[4]);
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
}
