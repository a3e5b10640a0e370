// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// millrace-ls, millrace-cat and millrace-reshard against files and an S3 server in this process: what they say and
// write, and that a reshard that is killed (SIGKILL) loses no sample and doubles none. What is written is read by
// Python's tarfile: run_reshard MILLRACE-LS MILLRACE-CAT MILLRACE-RESHARD VERSION.

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <millrace/base/rng.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/formats/line_shards.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/tar/writer.hpp>
#include <millrace/testing/s3_server/background.hpp>

#include "src/tools/shuffle_spool.hpp"

extern char** environ;

namespace mill = millrace;

namespace {

struct said {
  int status = 0;
  std::string text;
};

said run(const std::string& command, bool errors = true) {
  said out;
  std::FILE* pipe = ::popen((command + (errors ? " 2>&1" : "")).c_str(), "r");
  char buffer[4096];
  for (std::size_t n; pipe != nullptr && (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    out.text.append(buffer, n);
  }
  const int status = pipe == nullptr ? -1 : ::pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::printf("$ %s\n[%d] %s\n", command.c_str(), out.status, out.text.size() > 4000 ? "..." : out.text.c_str());
  return out;
}

int failures = 0;

/// The others are checked all the same.
void require(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::printf("FAILED: %s\n", what.c_str());
}
void require_said(const said& s, int status, std::string_view text) {
  if (s.text.find(text) == std::string::npos) std::printf("not said: %s\n", std::string(text).c_str());
  require(s.status == status, "the program left with " + std::to_string(s.status));
  require(s.text.find(text) != std::string::npos, "the program said something else");
}

std::string read_file(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// The members of tars: name and content.
using members = std::multiset<std::pair<std::string, std::string>>;

struct tools_under_test {
  std::string ls, cat, reshard, folder;
};

/// `shards` tars of `each` samples in a folder: "jpg" of up to 300 bytes, "cls", and of two in three "json". The keys
/// of shard s begin with "ds/".
members make_tars(const std::string& folder, int shards, int each, bool same_keys = false) {
  std::filesystem::create_directories(folder);
  members all;
  mill::rng random(11);
  for (int s = 0; s < shards; ++s) {
    std::string tar;
    mill::tar::writer w(tar);
    for (int i = 0; i < each; ++i) {
      const std::string key =
          same_keys ? "same/" + std::to_string(i) : "d" + std::to_string(s) + "/" + std::to_string(i);
      std::string jpg = "\xff\xd8\xff";
      for (std::uint64_t n = random.next() % 300; n > 0; --n) jpg += static_cast<char>(random.next());
      const auto add = [&](const std::string& name, const std::string& content) {
        w.add(name, content);
        all.emplace(name, content);
      };
      add(key + ".jpg", jpg);
      add(key + ".cls", std::to_string(s * each + i));
      if (i % 3 != 0) add(key + ".json", "{\"i\": " + std::to_string(i) + "}");
    }
    w.finish();
    std::ofstream(folder + "/t-" + std::to_string(s) + ".tar", std::ios::binary) << tar;
  }
  return all;
}

/// What Python's tarfile finds in the tars of a folder, in the order of their names, and in `order` the members' names.
members by_tarfile(const std::string& folder, std::vector<std::string>* order = nullptr) {
  const std::string program =
      "import glob, os, sys, tarfile\n"
      "for t in sorted(glob.glob(os.path.join(sys.argv[1], '**', '*.tar'), recursive=True)):\n"
      "    with tarfile.open(t) as a:\n"
      "        for m in a: print(m.name, a.extractfile(m).read().hex(), sep='\\t')\n";
  const std::string script = folder + ".read.py";
  std::ofstream(script) << program;
  std::FILE* pipe = ::popen(("python3 " + script + " " + folder).c_str(), "r");
  std::string text;
  char buffer[65536];
  for (std::size_t n; pipe != nullptr && (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  require(pipe != nullptr && ::pclose(pipe) == 0, "tarfile cannot read what was written");
  members all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t tab = text.find('\t', at), end = text.find('\n', at);
    std::string content;
    for (std::size_t i = tab + 1; i + 1 < end; i += 2) {
      content += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    }
    std::string name = text.substr(at, tab - at);
    if (order != nullptr) order->push_back(name);
    all.emplace(std::move(name), std::move(content));
    at = end + 1;
  }
  return all;
}

/// The shards of a folder one after the other, with their names.
std::string bytes_of(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& e : std::filesystem::recursive_directory_iterator(folder)) {
    if (e.is_regular_file()) names.insert(e.path().string());
  }
  std::string all;
  for (const std::string& n : names) all += n.substr(folder.size()) + '\n' + read_file(n);
  return all;
}

/// Orders of five samples by the spool's numbers are uniform over seeds; and so is where one of 1,000 stands.
void check_uniform() {
  std::map<std::string, int> seen;
  const int seeds = 24'000;
  for (int seed = 0; seed < seeds; ++seed) {
    std::vector<std::pair<std::uint64_t, char>> five;
    for (std::uint64_t i = 0; i < 5; ++i) {
      five.emplace_back(tools::sort_number(static_cast<std::uint64_t>(seed), i / 2, i % 2), static_cast<char>('a' + i));
    }
    std::sort(five.begin(), five.end());
    std::string order;
    for (const auto& [number, name] : five) order += name;
    ++seen[order];
  }
  double chi2 = 0;
  for (const auto& [order, n] : seen) chi2 += (n - 200.0) * (n - 200.0) / 200.0;
  std::printf("%zu orders of five, chi squared %.1f of 119 degrees\n", seen.size(), chi2);
  require(seen.size() == 120 && chi2 < 119 + 5 * 15.4, "orders are not uniform");
  std::vector<int> places(20);
  for (int seed = 0; seed < 4'000; ++seed) {
    const std::uint64_t mine = tools::sort_number(static_cast<std::uint64_t>(seed), 3, 7);
    int before = 0;
    for (std::uint64_t i = 0; i < 1'000; ++i)
      before += tools::sort_number(static_cast<std::uint64_t>(seed), 9, i) < mine;
    ++places[static_cast<std::size_t>(std::min(before, 999) / 50)];
  }
  chi2 = 0;
  for (const int n : places) chi2 += (n - 200.0) * (n - 200.0) / 200.0;
  std::printf("places of one of 1,000: chi squared %.1f of 19 degrees\n", chi2);
  require(chi2 < 19 + 5 * 6.2, "places are not uniform");
}

void check_options(const tools_under_test& t, const std::string& version) {
  for (const std::string& tool : {t.ls, t.cat, t.reshard}) {
    const std::string name = tool.substr(tool.rfind('/') + 1);
    require_said(run(tool + " --help"), 0, "Exit status: 0 fine, 1 bad data was found");
    require_said(run(tool + " --version"), 0, name + " " + version + "\n");
    require_said(run(tool), 2, "required\nTry '" + name + " --help'.");
  }
  require_said(run(t.ls + " x --format pages"), 2, "--format");
  require_said(run(t.ls + " x -n 0"), 2, "no whole number above 0");
  require_said(run(t.ls + " " + t.folder + "/none"), 3, "none: it cannot be read: No such file or directory");
  require_said(run(t.cat + " x"), 2, "KEY or --number is required");
  require_said(run(t.cat + " x k --number 3"), 2, "excludes");
  require_said(run(t.reshard + " x y"), 2, "--spool is required");
  require_said(run(t.reshard + " x y --go-on --spool z"), 2, "--no-shuffle");
  require_said(run(t.reshard + " x y --no-shuffle --spool z"), 2, "excludes");
  for (const char* wrong : {"train", "train=", "=1", "a=0.5,b=0.6", "a=0.5,a=0.5", "a=-1,b=2", "a/b=1"}) {
    require_said(run(t.reshard + " x y --no-shuffle --split " + wrong), 2, "--split");
  }
  require_said(run(t.reshard + " x y --no-shuffle --rename a"), 2, "--rename: 'a' is not OLD=NEW");
  require_said(run(t.reshard + " x 'y/{}.tar' --no-shuffle --split a=0.5,b=0.5"), 2, "{split}, too");
}

void check_ls_and_cat(const tools_under_test& t, mill::s3_server::background& server) {
  const std::string in = t.folder + "/look";
  make_tars(in, 2, 6);
  const said listed = run(t.ls + " " + in);
  require_said(listed, 0, "\n1  d1/1  jpg ");
  require_said(listed, 0, " (JPEG), cls 1 B (number 7), json 8 B (JSON)\n");
  require_said(listed, 0, "12 samples in 2 shards of tar: ");
  require_said(listed, 0, "  json: 8, 64 B, mean 8 B\n");
  const said some = run(t.ls + " " + in + "/t-1.tar -n 2");
  require_said(some, 0, "the first 2 samples in 1 shard of tar");
  require(some.text.find("d1/2") == std::string::npos, "more than -n says");
  require_said(run(t.ls + " -s " + in), 0, "12 samples in 2 shards");
  const said json = run(t.ls + " --json " + in +
                        " | python3 -c \"import json, sys\n"
                        "for l in sys.stdin: s = json.loads(l); print(s['shard'][-7:], "
                        "s['number'], s['key'], [f['field'] for f in s['fields']], "
                        "s['fields'][1]['crc32c'])\"");
  require_said(json, 0, "t-1.tar 0 d1/0 ['jpg', 'cls'] 443ffd08\n");  // CRC32C of "6"
  // Compressed, and cut.
  require(run("gzip -k " + in + "/t-0.tar").status == 0, "no gzip");
  require_said(run(t.ls + " -s " + in + "/t-0.tar.gz"), 0, "6 samples in 1 shard of tar");
  std::filesystem::remove(in + "/t-0.tar.gz");
  std::ofstream(t.folder + "/cut.tar", std::ios::binary) << read_file(in + "/t-0.tar").substr(0, 1200);
  require_said(run(t.ls + " " + t.folder + "/cut.tar"), 1, "cut.tar at byte ");

  // Of a store, and other formats.
  server.put("corpus", "look/t-0.tar", read_file(in + "/t-0.tar"));
  server.put("corpus", "look/README", std::string("not a shard"));
  const said stored = run(t.ls + " s3://corpus/look/");
  require_said(stored, 0, "6 samples in 1 shard of tar");
  require_said(stored, 0, "1 object is left out");
  std::filesystem::create_directories(t.folder + "/text");
  std::ofstream(t.folder + "/text/a.jsonl") << "{\"n\": 1}\n{}\n\n";
  require_said(run(t.ls + " " + t.folder + "/text"), 0,
               "0  a.jsonl#0  line 8 B (JSON)\n1  a.jsonl#1  line 2 B (JSON)\n"
               "2  a.jsonl#2  line 0 B (text)\n3 samples in 1 shard of lines");
  const std::string two_records(
      "\x03\0\0\0\0\0\0\0"
      "\xb0\x99\x49\x0e"
      "abc"
      "\x6e\x57\xf1\x21"
      "\0\0\0\0\0\0\0\0"
      "\x29\x03\x98\x07"
      "\xd8\xea\x82\xa2",
      35);
  std::ofstream(t.folder + "/a.tfrecord", std::ios::binary) << two_records;
  require_said(run(t.ls + " " + t.folder + "/a.tfrecord"), 0,
               "0  a.tfrecord#0  record 3 B\n1  a.tfrecord#1  record 0 B\n");
  const std::string record(
      "\x0a\x23\xd7\xce"
      "\x05\0\0\0"
      "hello\0\0\0",
      16);
  std::ofstream(t.folder + "/a.rec", std::ios::binary) << record << record;
  require_said(run(t.ls + " " + t.folder + "/a.rec"), 0, "1  a.rec#1  record 5 B\n2 samples in 1 shard of recordio");
  for (const char* name : {"cat/1.jpg", "cat/2.jpg", "dog/1.jpg"}) {
    const std::string path = t.folder + "/pets/" + name;
    std::filesystem::create_directories(path.substr(0, path.rfind('/')));
    std::ofstream(path) << name;
  }
  require_said(run(t.ls + " " + t.folder + "/pets"), 0, "0  cat/1  jpg 9 B\n1  cat/2  jpg 9 B\n2  dog/1  jpg 9 B\n");
  require_said(run(t.ls + " --format classes " + t.folder + "/pets"), 0, "3 samples in 2 shards of classes");
  require_said(run(t.ls + " --format folders " + t.folder + "/pets"), 0,
               "0  cat  1.jpg 9 B, 2.jpg 9 B\n1  dog  1.jpg 9 B\n");

  require(run(t.cat + " " + in + " d1/1 -f json", false).text == "{\"i\": 1}", "another field");
  require(run(t.cat + " " + in + " --number 7 -f cls", false).text == "7", "another sample");
  require(run(t.cat + " " + t.folder + "/text 'a.jsonl#0'", false).text == "{\"n\": 1}", "another line");
  require(run(t.cat + " s3://corpus/look/t-0.tar d0/2 -f cls", false).text == "2", "another sample of the store");
  require_said(run(t.cat + " " + in + " d1/1"), 3, "several fields, of which --field takes one: jpg, cls, json");
  require_said(run(t.cat + " " + in + " d1/1 -f png"), 3, "no field png, but jpg, cls, json");
  require_said(run(t.cat + " " + in + " d9/1"), 3, "none of 12 samples has this key");
  require_said(run(t.cat + " " + in + " --number 12"), 3, "there are 12 samples, and no number 12");
  const std::string out = t.folder + "/field";
  require_said(run(t.cat + " " + in + " d1/1 -f cls -o " + out), 0, "");
  require(read_file(out) == "7", "another file");
  require_said(run(t.cat + " " + in + " d1/2 -f cls -o " + out), 3, "the file cannot be made: File exists");
  require(read_file(out) == "7", "a file was overwritten");
  const said all = run(t.cat + " " + in + " d1/1 --all " + t.folder + "/fields");
  require_said(all, 0, "/fields/1.jpg\n");
  require(read_file(t.folder + "/fields/1.cls") == "7" && read_file(t.folder + "/fields/1.json") == "{\"i\": 1}",
          "other files");
  // Names that would leave the folder, hide, or be taken for an option.
  std::string evil;
  mill::tar::writer w(evil);
  w.add("a/../../up.txt", "1");
  w.add("-rf.txt", "2");
  w.add("b/.hidden.txt", "3");
  w.finish();
  std::ofstream(t.folder + "/evil.tar", std::ios::binary) << evil;
  require_said(run(t.cat + " " + t.folder + "/evil.tar --number 0 --all " + t.folder + "/evil"), 0, "/evil/up.txt\n");
  require(!std::filesystem::exists(t.folder + "/up.txt") && std::filesystem::exists(t.folder + "/evil/up.txt"),
          "a field was written elsewhere");
  require_said(run(t.cat + " " + t.folder + "/evil.tar --number 1 --all " + t.folder + "/evil"), 1, "safe name");
  require_said(run(t.cat + " " + t.folder + "/evil.tar --number 2 --all " + t.folder + "/evil"), 0, "/evil/hidden.txt");
  std::filesystem::create_symlink(t.folder + "/elsewhere", t.folder + "/fields/2.jpg");
  require_said(run(t.cat + " " + in + " d1/2 --all " + t.folder + "/fields"), 3, "the file cannot be made");
  require(!std::filesystem::exists(t.folder + "/elsewhere"), "a link was followed");
  // On a terminal.
  const auto on_terminal = [&](const std::string& field) {
    return run("python3 -c \"import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(['" + t.cat + "', '" +
               in + "', 'd1/1', '-f', '" + field + "'])))\" < /dev/null");
  };
  require_said(on_terminal("jpg"), 3, "the field is binary, and this is a terminal");
  require_said(on_terminal("json"), 0, "{\"i\": 1}");
}

/// A member beyond a bound is an error that names the option which lifts it.
void check_bounds(const tools_under_test& t) {
  const std::string in = t.folder + "/bounds";
  std::filesystem::create_directories(in);
  std::string tar;
  mill::tar::writer w(tar);
  w.add("k.txt", std::string(3000, 'x'));
  w.finish();
  std::ofstream(in + "/a.tar", std::ios::binary) << tar;
  const std::string wrong = "the member's 3000 bytes are more than --max-member allows";
  require_said(run(t.ls + " " + in + " --max-member 2999"), 1, wrong);
  require_said(run(t.ls + " " + in + " --max-member 3000"), 0, "k  txt 3.00 kB (text)");
  require_said(run(t.cat + " " + in + " k --max-member 2999"), 1, wrong);
  require(run(t.cat + " " + in + " k --max-member 3000", false).text == std::string(3000, 'x'), "another field");
  const std::string out = t.folder + "/bounds-out";
  require_said(run(t.reshard + " " + in + " " + out + " --no-shuffle --max-member 2999"), 1, wrong);
  require_said(run(t.reshard + " " + in + " " + out + " --no-shuffle --read-back --max-member 3000"), 0,
               "read back, and agrees");
  // So does a compressed one.
  require(run("gzip " + in + "/a.tar").status == 0, "no gzip");
  require_said(run(t.ls + " " + in + " --max-member 2999"), 1, wrong);
  require_said(run(t.ls + " " + in), 0, "k  txt 3.00 kB (text)");
}

/// Keys that are one in a tar are an error that names both.
void check_merged_keys(const tools_under_test& t) {
  const std::string in = t.folder + "/merged", out = t.folder + "/merged-out", spool = t.folder + "/merged-spool";
  std::filesystem::create_directories(in);
  std::ofstream(in + "/a.b.jsonl") << "{\"n\": 1}\n{\"n\": 2}\n";
  std::ofstream(in + "/a_b.jsonl") << "{\"n\": 3}\n";
  const auto reshard = [&](const std::string& more) {
    std::filesystem::remove_all(out);
    return run(t.reshard + " " + in + " " + out + " " + more);
  };
  const std::string wrong = "a.b.jsonl#0 and a_b.jsonl#0 would have one key in a tar";
  for (const std::string& how : {std::string("--no-shuffle"), "--spool " + spool}) {
    const said refused = reshard(how);
    require_said(refused, 1, wrong);
    require_said(refused, 1, "become _: give one another name, or both that of their shard (--shard-in-key)\n");
    require_said(refused, 1, "a_b.jsonl, a_b_jsonl#0: ");
    require(!std::filesystem::exists(out + "/shard-000000.tar"), "something was written");
    require_said(reshard(how + " --keys '*#0'"), 1, wrong);
    std::filesystem::remove_all(spool);
    require_said(reshard(how + " --keys 'a.b*'"), 0, "2 samples");
    require_said(reshard(how + " --keys '*#1'"), 0, "1 sample,");
    require_said(reshard(how + " --shard-in-key"), 0, "3 samples");
  }
  std::filesystem::resize_file(in + "/a_b.jsonl", 0);
  require_said(reshard("--no-shuffle"), 0, "2 samples");
  // Folders, whose names are the keys.
  for (const char* name : {"v1.0", "v1_0"}) {
    std::filesystem::create_directories(t.folder + "/versions/" + name);
    std::ofstream(t.folder + "/versions/" + name + "/x.txt") << name;
  }
  const std::string folders = t.reshard + " --format folders --no-shuffle " + t.folder + "/versions " + out + "-f";
  require_said(
      run(folders), 1,
      "v1.0 and v1_0 would have one key in a tar, where dots of its last part become _: give one another name\n");
  require_said(run(folders + " --keys v1.0"), 0, "1 sample,");
  // Neighbours of two tars.
  std::filesystem::create_directories(t.folder + "/neighbours");
  for (const char* name : {"t-0", "t-1"}) {
    std::string tar;
    mill::tar::writer w(tar);
    w.add("k.txt", name);
    w.finish();
    std::ofstream(t.folder + "/neighbours/" + name + ".tar", std::ios::binary) << tar;
  }
  const said side_by_side = run(t.reshard + " --no-shuffle " + t.folder + "/neighbours " + out + "-n");
  require_said(side_by_side, 1, "t-1.tar at byte 0, k: the sample before it, at byte 0 of ");
  require_said(side_by_side, 1, "t-0.tar, has the same key");
}

/// Formats that have a header of their own.
void check_described(const tools_under_test& t) {
  // MDS: two shards of three samples of a text and a number, with the index.json that names them.
  const auto word = [](std::size_t n) {
    std::string four(4, '\0');
    for (int i = 0; i < 4; ++i) four[static_cast<std::size_t>(i)] = static_cast<char>(n >> (8 * i));
    return four;
  };
  const std::string columns = R"({"column_encodings": ["str", "uint8"], "column_names": ["txt", "cls"],)"
                              R"( "column_sizes": [null, 1], "format": "mds", "version": 2})";
  const std::string folder = t.folder + "/mds";
  std::filesystem::create_directories(folder);
  std::string shards;
  members all;
  for (std::size_t s = 0; s < 2; ++s) {
    std::string samples, offsets;
    const std::size_t begin = 4 + 4 * 4 + columns.size();
    offsets = word(3) + word(begin);
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string text(1 + 3 * s + i, static_cast<char>('a' + i));
      const std::string number(1, static_cast<char>(3 * s + i));
      samples += word(text.size()) + text + number;
      offsets += word(begin + samples.size());
      const std::string key = "shard_0000" + std::to_string(s) + "_mds#" + std::to_string(i);
      all.emplace(key + ".txt", text);
      all.emplace(key + ".cls", number);
    }
    const std::string name = "shard.0000" + std::to_string(s) + ".mds";
    const std::string shard = offsets + columns + samples;
    std::ofstream(folder + "/" + name, std::ios::binary) << shard;
    shards += (s == 0 ? "" : ", ") + columns.substr(0, columns.size() - 1) +
              R"(, "compression": null, "hashes": [], "samples": 3, "size_limit": 67108864, "zip_data": null,)"
              R"( "raw_data": {"basename": ")" + name + R"(", "bytes": )" + std::to_string(shard.size()) +
              R"(, "hashes": {}}})";
  }
  std::ofstream(folder + "/index.json") << R"({"shards": [)" << shards << R"(], "version": 2})";
  require_said(run(t.ls + " " + folder), 0, "0  shard.00001.mds#0  txt 4 B (text), cls 1 B (text)\n");
  require_said(run(t.ls + " -s " + folder + "/shard.00001.mds"), 0, "3 samples in 1 shard of mds");
  require(run(t.cat + " " + folder + " 'shard.00001.mds#2' -f txt", false).text == "cccccc", "another text");
  const std::string out = t.folder + "/of-mds";
  std::filesystem::create_directories(out);
  require_said(run(t.reshard + " " + folder + " " + out + "/t-{}.tar --spool " + t.folder + "/spool"), 0, "6 samples");
  require(by_tarfile(out) == all, "other members than those of the MDS");

  // Rows of an array of two bytes each.
  std::string head = "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }";
  head += std::string(118 - head.size() - 1, ' ') + '\n';
  std::filesystem::create_directories(t.folder + "/npy");
  std::ofstream(t.folder + "/npy/a.npy", std::ios::binary)
      << std::string("\x93NUMPY\1\0", 8) << static_cast<char>(head.size()) << '\0' << head << "abcdef";
  require_said(run(t.ls + " " + t.folder + "/npy"), 0, "3 samples in 1 shard of npy");
  require_said(run(t.ls + " --format mds " + t.folder + "/npy"), 3, "");
}

void check_reshard(const tools_under_test& t, mill::s3_server::background& server) {
  const std::string in = t.folder + "/in";
  const members all = make_tars(in, 5, 60);
  const std::string spool = " --spool " + t.folder + "/spool";
  const auto to = [&](const std::string& name) { return t.folder + "/" + name; };

  // The same samples, in an order that the seed alone gives.
  const said one = run(t.reshard + " " + in + " " + to("one") + spool + " --shard-bytes 100kB --read-back");
  require_said(one, 0, "300 samples, ");
  require_said(one, 0, "; read back, and agrees");
  require(!std::filesystem::exists(t.folder + "/spool"), "the spool is left");
  std::vector<std::string> order, source_order, other;
  require(by_tarfile(to("one"), &order) == all, "other samples were written");
  by_tarfile(in, &source_order);
  require(order != source_order, "nothing was shuffled");
  require(std::filesystem::exists(to("one") + "/shard-000004.tar"), "shards of another size");
  require_said(run(t.reshard + " " + in + " " + to("two") + spool + " --shard-bytes 100kB --memory 50kB"), 0,
               "300 samples");
  require(bytes_of(to("one")) == bytes_of(to("two")), "the number of runs has changed the order");
  require_said(run(t.reshard + " " + in + " " + to("three") + spool + " --shard-samples 70 --seed 1"), 0,
               "300 samples");
  require(by_tarfile(to("three"), &other) == all && other != order, "another seed gives the same order, or not all");
  require(std::filesystem::exists(to("three") + "/shard-000004.tar"), "shards of another number of samples");
  require_said(run(t.reshard + " " + in + " " + to("one") + spool), 3, "it is there, and nothing is overwritten");
  require(!std::filesystem::exists(t.folder + "/spool"), "a spool was made before that was known");

  // Repacking.
  other.clear();
  require_said(run(t.reshard + " " + in + " '" + to("flat") + "/x-{}.tar' --no-shuffle --shard-samples 100"), 0,
               "300 samples");
  require(by_tarfile(to("flat"), &other) == all && other == source_order, "the order was not kept");
  require(
      std::filesystem::exists(to("flat") + "/x-000002.tar") && !std::filesystem::exists(to("flat") + "/x-000003.tar"),
      "other shards");

  // Splits: whatever the order, a key is in the same one.
  const said split = run(t.reshard + " " + in + " " + to("split") + spool + " --split train=0.8,val=0.2");
  require_said(split, 0, "/train-{}.tar: ");
  require_said(run(t.reshard + " " + in + " " + to("split2") + " --no-shuffle --split train=0.8,val=0.2"), 0,
               "/val-{}.tar: ");
  require(by_tarfile(to("split")) == all && by_tarfile(to("split2")) == all, "a split lost or doubled samples");
  std::filesystem::create_directories(to("v1"));
  std::filesystem::create_directories(to("v2"));
  std::filesystem::copy(to("split") + "/val-000000.tar", to("v1") + "/a.tar");
  std::filesystem::copy(to("split2") + "/val-000000.tar", to("v2") + "/a.tar");
  std::vector<std::string> val;
  require(by_tarfile(to("v1"), &val) == by_tarfile(to("v2")), "the order has changed the split");
  const auto keys = static_cast<int>(
      std::count_if(val.begin(), val.end(), [](const std::string& n) { return n.substr(n.size() - 4) == ".cls"; }));
  std::printf("%d of 300 samples in val\n", keys);
  require(keys > 30 && keys < 90, "the share is another one");

  // Where one output cannot be written, the other one is not ended as if its samples were all.
  std::filesystem::create_directories(to("half"));
  std::ofstream(to("half") + "/val-000000.tar") << "mine";
  require_said(run(t.reshard + " " + in + " " + to("half") + " --no-shuffle --split train=0.8,val=0.2"), 3,
               "val-000000.tar: write_shards: it is there");
  require(!std::filesystem::exists(to("half") + "/train.millrace.json"), "a part was ended as if it were all");

  // Filters and names.
  members wanted;
  for (const auto& [name, content] : all) {
    const std::string key = name.substr(0, name.rfind('.')), field = name.substr(name.rfind('.') + 1);
    const int i = std::stoi(key.substr(key.find('/') + 1));
    if (key.substr(0, 2) != "d1" && key.substr(0, 2) != "d3") continue;
    if (i % 3 == 0 || field == "cls") continue;
    wanted.emplace(key + "." + (field == "jpg" ? "img" : "json"), content);
  }
  const said filtered = run(t.reshard + " " + in + " " + to("filtered") + spool +
                            " --keys 'd[13]/*' --with json --drop cls --rename jpg=img");
  require_said(filtered, 0, "80 samples, ");
  require_said(filtered, 0, "left out by the filters: 220 samples");
  require(by_tarfile(to("filtered")) == wanted, "the filters gave something else");
  require_said(run(t.reshard + " " + in + " " + to("only") + " --no-shuffle --only cls"), 0, "300 samples");
  require(by_tarfile(to("only")).size() == 300, "--only gave something else");
  require_said(run(t.reshard + " " + in + " " + to("clash") + spool + " --rename jpg=cls"), 1, "would have this name");
  std::filesystem::remove_all(t.folder + "/spool");
  require_said(run(t.reshard + " " + in + " " + to("none") + spool + " --only png"), 1, "without fields");
  std::filesystem::remove_all(t.folder + "/spool");
  require_said(run(t.reshard + " " + in + " " + to("none") + spool + " --keys x"), 3, "there is no sample");
  std::filesystem::remove_all(t.folder + "/spool");
  require_said(run(t.reshard + " " + in + " " + to("none") + spool + " --disk 1kB"), 3, "--disk allows");

  // Keys that several shards have.
  const std::string same = t.folder + "/same";
  const members doubled = make_tars(same, 6, 40, true);
  require_said(run(t.reshard + " " + same + " " + to("same_out") + spool), 0, "240 samples");
  require(by_tarfile(to("same_out")) == doubled, "samples of one key were lost, doubled or joined");
  require_said(run(t.reshard + " " + same + " " + to("same_key") + spool + " --shard-in-key"), 0, "240 samples");
  std::set<std::string> names;
  for (const auto& m : by_tarfile(to("same_key"))) names.insert(m.first);
  require(names.size() == doubled.size() && names.count("t-3/same/7.cls") == 1, "--shard-in-key made other keys");
  std::filesystem::create_directories(t.folder + "/clones");
  for (const char* s : {"a", "b", "c"}) {
    std::string tar;
    mill::tar::writer w(tar);
    w.add("k.txt", s);
    w.finish();
    std::ofstream(t.folder + "/clones/" + s + ".tar", std::ios::binary) << tar;
  }
  require_said(run(t.reshard + " " + t.folder + "/clones " + to("clones_out") + spool), 1, "--shard-in-key");
  std::filesystem::remove_all(t.folder + "/spool");

  // Other formats: keys without the dots that would end them.
  require_said(run(t.reshard + " " + t.folder + "/text " + to("text_out") + spool), 0,
               "keys with dots, which became _: 3");
  const members lines{{"a_jsonl#0.line", "{\"n\": 1}"}, {"a_jsonl#1.line", "{}"}, {"a_jsonl#2.line", ""}};
  require(by_tarfile(to("text_out")) == lines, "other lines were written");
  require_said(run(t.reshard + " " + t.folder + "/a.tfrecord " + to("tfrecord") + " --no-shuffle"), 0, "2 samples");
  // With an index in the folder the shard is not read for it once more; one of another version is not believed.
  const std::string text = t.folder + "/text";
  require_said(run(t.reshard + " " + text + " x/ --dry-run"), 0, "1 shard without an index: read once for it");
  const auto loop = mill::make_event_loop();
  std::vector<mill::shard_index> indexes;
  indexes.push_back(mill::block_on(
      *loop, mill::index_shard(mill::files(), mill::shard(text + "/a.jsonl", 13), "a.jsonl", mill::line_shards())));
  std::string index;
  mill::write_indexes(indexes, index);
  std::ofstream(text + "/millrace.index", std::ios::binary) << index;
  const said indexed = run(t.reshard + " " + text + " x/ --dry-run");
  require_said(indexed, 0, "source: 1 shard of lines, 13 B\n");
  require(indexed.text.find("without an index") == std::string::npos, "the index was not found");
  require_said(run(t.reshard + " " + text + " " + to("text_indexed") + spool), 0, "3 samples");
  require(by_tarfile(to("text_indexed")) == lines, "other lines were written by the index");
  // The plan has as many shards as are written: by the number of samples, and by their bytes in a tar.
  for (const std::string bound : {"--shard-samples 1", "--shard-bytes 1kB"}) {
    const std::string out = to("bound" + bound.substr(8, 2));
    require_said(run(t.reshard + " " + text + " " + out + " --dry-run " + bound), 0, "destination: about 3 shards of ");
    require_said(run(t.reshard + " " + text + " " + out + spool + " " + bound), 0, "3 samples");
    require(std::filesystem::exists(out + "/shard-000002.tar"), "fewer shards were written: " + bound);
    require(!std::filesystem::exists(out + "/shard-000003.tar"), "more shards were written: " + bound);
  }
  require_said(run(t.reshard + " " + in + " x/ --dry-run --shard-samples 70"), 0, "destination: at least 1 shard of ");
  std::ofstream(text + "/a.jsonl", std::ios::app) << "4\n";
  require_said(run(t.reshard + " " + text + " x/ --dry-run"), 0, "1 shard without an index");
  require_said(run(t.ls + " " + text), 0, "4 samples in 1 shard of lines");

  const members records{{"a_tfrecord#0.record", "abc"}, {"a_tfrecord#1.record", ""}};
  require(by_tarfile(to("tfrecord")) == records, "other records were written");
  require_said(run(t.reshard + " " + t.folder + "/a.rec " + to("rec") + spool), 0, "2 samples");
  require(by_tarfile(to("rec")) == members{{"a_rec#0.record", "hello"}, {"a_rec#1.record", "hello"}}, "other records");
  require_said(run(t.reshard + " " + t.folder + "/pets " + to("pets_out") + spool + " --format classes"), 0,
               "3 samples");
  require(by_tarfile(to("pets_out")) == members{{"cat/1.cls", "0"},
                                                {"cat/1.jpg", "cat/1.jpg"},
                                                {"cat/2.cls", "0"},
                                                {"cat/2.jpg", "cat/2.jpg"},
                                                {"dog/1.cls", "1"},
                                                {"dog/1.jpg", "dog/1.jpg"}},
          "other images were written");

  // What a dry run says is what a run does.
  for (const auto& e : std::filesystem::directory_iterator(in)) {
    server.put("corpus", "in/" + e.path().filename().string(), read_file(e.path().string()));
  }
  const std::string stored = t.reshard + " s3://corpus/in/ s3://corpus/out/" + spool + " --shard-bytes 100kB";
  const said plan = run(stored + " --dry-run --price-1000 1000 --price-put-1000 100000 --price-gb 1000000");
  require_said(plan, 0, "source: 5 shards of tar, ");
  require(server.log().entries().end() != server.log().entries().begin(), "no log");
  server.log().clear();
  require_said(run(stored), 0, "300 samples");
  std::map<std::string, int> requests;
  for (const mill::s3_server::logged_request& r : server.log().entries()) {
    const bool listing = r.method == "GET" && r.key.empty();
    ++requests[listing ? "LIST" : r.method == "POST" ? "PUT" : r.method];
  }
  std::printf("%d GET, %d PUT, %d LIST\n", requests["GET"], requests["PUT"], requests["LIST"]);
  const std::string did =
      "requests: about " + std::to_string(requests["GET"]) + " GET, " + std::to_string(requests["PUT"]) + " PUT; ";
  require_said(plan, 0, did);
  require_said(plan, 0, "price: 2027.0000 for requests, ");
}

/// Starts a program, with its output to a file; its number.
::pid_t start(const std::vector<std::string>& command, const std::string& log) {
  ::posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  ::posix_spawn_file_actions_adddup2(&files, 1, 2);
  std::vector<char*> arguments;
  for (const std::string& a : command) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  ::pid_t child = -1;
  require(::posix_spawn(&child, arguments[0], &files, nullptr, arguments.data(), environ) == 0, "it cannot be started");
  ::posix_spawn_file_actions_destroy(&files);
  return child;
}

/// What a child does to a folder or asks of a server, to be waited for.
class activity {
 public:
  /// Files that are made, written or renamed in a folder, which is made.
  explicit activity(const std::string& folder) : descriptor_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    std::filesystem::create_directories(folder);
    const bool watched = ::inotify_add_watch(descriptor_, folder.c_str(), IN_CREATE | IN_MODIFY | IN_MOVED_TO) >= 0;
    require(watched, "the folder cannot be watched: " + folder);
  }
  /// Requests.
  explicit activity(mill::s3_server::request_log& log)
      : log_(&log), descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    log.notify(descriptor_);
  }
  activity(const activity&) = delete;
  activity& operator=(const activity&) = delete;
  ~activity() {
    if (log_ != nullptr) log_->notify(-1);
    ::close(descriptor_);
  }

  /// Waits for some of it, and returns how much; 0: the child has ended before.
  std::uint64_t wait(::pid_t child) {
    const int ended = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
    ::pollfd all[2] = {{descriptor_, POLLIN, 0}, {ended, POLLIN, 0}};
    int ready = -1;
    do {
      ready = ::poll(all, 2, 60'000);
    } while (ready < 0 && errno == EINTR);
    require(ended >= 0 && ready > 0, "the program does nothing for a minute");
    ::close(ended);
    if (ready <= 0 || all[0].revents == 0) return 0;
    alignas(::inotify_event) char memory[64 * 1024];
    const ::ssize_t came = ::read(descriptor_, memory, sizeof memory);
    std::uint64_t events = 0;
    if (log_ != nullptr) std::memcpy(&events, memory, sizeof events);
    for (::ssize_t at = 0; log_ == nullptr && at < came; ++events) {
      ::inotify_event one;
      std::memcpy(&one, memory + at, sizeof one);
      at += static_cast<::ssize_t>(sizeof one + one.len);
    }
    return events;
  }

 private:
  mill::s3_server::request_log* log_ = nullptr;
  int descriptor_;
};

/// Kills a job at other moments each time until it ends by itself, and once more from the beginning, until it was hit
/// often enough in all of its phases. The shards are those of a run that was not killed, byte by byte.
void check_kills(const tools_under_test& t, mill::s3_server::background& server, bool to_store, bool shuffle) {
  const std::string in = t.folder + "/in", spool = t.folder + "/killed.spool", log = t.folder + "/killed.log";
  const std::string what = std::string(to_store ? "store" : "files") + (shuffle ? ", shuffled" : ", repacked");
  const auto place_of = [&](const std::string& name) {
    return (to_store ? "s3://corpus/k/" : t.folder + "/k/") + name + (shuffle ? ".shuffled" : ".repacked");
  };
  std::filesystem::remove_all(spool);
  const auto command = [&](const std::string& place) {
    std::vector<std::string> c{t.reshard, in, place, "--shard-bytes", "60kB", "--split", "train=0.9,val=0.1"};
    const std::vector<std::string> shuffled{"--spool", spool, "--checkpoint", "20kB", "--memory", "100kB"};
    if (shuffle) c.insert(c.end(), shuffled.begin(), shuffled.end());
    if (!shuffle) c.insert(c.end(), {"--no-shuffle", "--go-on"});
    return c;
  };
  // What takes time in a store.
  for (const char* method : {"PUT", "POST"}) {
    server.faults().add({.method = method, .key_prefix = "k/"},
                        mill::s3_server::fault::delay_head(std::chrono::milliseconds(15)));
  }
  // The shards of a place, by their names.
  const auto loop = mill::make_event_loop();
  const mill::s3::client s3 = mill::s3::client::from_environment();
  const auto shards_of = [&](const std::string& place) {
    std::map<std::string, std::string> all;
    for (const char* part : {"train", "val"}) {
      for (int i = 0; i < 60; ++i) {
        char name[32];
        std::snprintf(name, sizeof name, "/%s-%06d.tar", part, i);
        const std::string url = place + name;
        if (!to_store && std::filesystem::exists(url)) all[name] = read_file(url);
        if (!to_store) continue;
        try {
          const mill::bytes data = mill::block_on(*loop, s3.read(url));
          all[name] = data.view();
        } catch (const mill::s3::error& e) {
          require(e.status() == 404, e.what());
        }
      }
    }
    return all;
  };
  int status = 0;
  const bool ended = ::waitpid(start(command(place_of("whole")), log), &status, 0) > 0 && status == 0;
  require(ended, "it did not end: " + read_file(log));
  const std::map<std::string, std::string> whole = shards_of(place_of("whole"));
  const auto phase_of = [](const std::string& journal) {
    const std::size_t at = journal.find("\nphase ");
    return at == std::string::npos ? -1 : journal[at + 7] - '0';
  };
  int kills = 0, by_phase[3] = {};
  const auto enough = [&] { return shuffle ? by_phase[0] >= 5 && by_phase[1] >= 5 : kills >= 5; };
  int rounds = 0;
  for (int i = 0; rounds < 12 && !enough(); ++rounds) {
    const std::string place = place_of("killed-" + std::to_string(rounds));
    for (bool over = false; !over; ++i) {
      std::string seen = read_file(spool + "/journal");
      // Of a repacking into a store its requests tell how far it is.
      std::optional<activity> seen_of;
      if (shuffle || !to_store) {
        seen_of.emplace(shuffle ? spool : place);
      } else {
        seen_of.emplace(server.log());
      }
      const ::pid_t child = start(command(place), log);
      if (shuffle && i < 200) {
        // A checkpoint or a few on, in the phase that has been killed less: each gets further than the one before.
        const int aim = by_phase[0] <= by_phase[1] ? 0 : 1;
        for (int changes = 0; changes <= (aim == 0 ? i % 4 : 0) && seen_of->wait(child) != 0;) {
          std::string journal = read_file(spool + "/journal");
          if (journal == seen || phase_of(journal) < aim) continue;
          seen = std::move(journal);
          ++changes;
        }
      } else if (i < 200) {
        std::uint64_t left = static_cast<std::uint64_t>(3 * (i % 60) + 1);
        for (std::uint64_t did = 1; left > 0 && did != 0; left -= std::min(left, did)) did = seen_of->wait(child);
      }
      if (i < 200) ::kill(child, SIGKILL);  // one that has ended stays ended
      const ::pid_t gone = ::waitpid(child, &status, 0);
      require(gone == child, "the program is gone");
      over = WIFEXITED(status);
      if (over) {
        require(WEXITSTATUS(status) == 0, "it failed: " + read_file(log));
        continue;
      }
      ++kills;
      const std::string journal = read_file(spool + "/journal");
      if (const int phase = phase_of(journal); phase >= 0) ++by_phase[phase];
      // Killed when all was done and the journal was gone: the next one would say that the shards are there.
      over = shuffle && journal.empty() && shards_of(place) == whole;
    }
    const bool empty = !std::filesystem::exists(spool) || std::filesystem::is_empty(spool);
    require(WIFEXITED(status) ? !std::filesystem::exists(spool) : empty, "the spool is left");
    std::filesystem::remove_all(spool);
    require(shards_of(place) == whole, "the shards of " + place + " are others");
  }
  std::printf("%s: %d kills in %d rounds, %d while it read, %d while it wrote\n", what.c_str(), kills, rounds,
              by_phase[0], by_phase[1]);
  require(enough(), "it was hardly killed");
  server.faults().clear();
  const std::string copy = t.folder + "/k.copy";
  std::filesystem::remove_all(copy);
  std::filesystem::create_directories(copy);
  for (const auto& [name, text] : whole) std::ofstream(copy + name, std::ios::binary) << text;
  require(by_tarfile(copy) == by_tarfile(in), "samples were lost or doubled");
}

/// What is wrong is found, and said.
void check_damage(const tools_under_test& t) {
  const std::string in = t.folder + "/in", spool = t.folder + "/bad.spool", out = t.folder + "/bad";
  const std::string command = t.reshard + " " + in + " " + out + " --spool " + spool + " --checkpoint 20kB --disk 10MB";
  // Killed in the middle, by a limit of the size of a file: the journal is there, and so are some runs.
  const auto stop_half_way = [&](const char* limit) {
    std::filesystem::remove_all(spool);
    std::filesystem::remove_all(out);
    require(run("bash -c 'ulimit -f " + std::string(limit) + "; exec " + command + "'").status != 0,
            "it was not stopped");
    require(std::filesystem::exists(spool + "/journal"), "there is no journal");
  };
  stop_half_way("60");
  require_said(run(command + " --seed 5"), 3,
               "of another job, or of another version of the source: there it is \"seed 0\", "
               "here \"seed 5\"");
  require_said(run(command), 0, "300 samples");
  require(by_tarfile(out) == by_tarfile(in), "other samples");
  stop_half_way("30");
  std::filesystem::resize_file(spool + "/run-0.data", 10);
  require_said(run(command), 1, "run-0.data: the file has 10 bytes, and the journal says");
  stop_half_way("60");
  {
    std::fstream f(spool + "/run-0.data", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(100);
    f.put('!');
  }
  require_said(run(command), 1, "a sample is not as it was written");
  stop_half_way("30");
  {
    std::fstream f(spool + "/journal", std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(-20, std::ios::end);
    f.put('!');
  }
  require_said(run(command), 1, "the journal is damaged");
  std::filesystem::remove_all(spool);
  std::filesystem::remove_all(out);

  // A shard that was changed after it was written: its index tells nothing, reading it does.
  const std::string flat = t.reshard + " " + in + " " + out + " --no-shuffle --shard-samples 100 --go-on";
  require_said(run(flat), 0, "; the indexes agree");
  const std::string shard = out + "/shard-000001.tar";
  std::string text = read_file(shard);
  text[512] = static_cast<char>(text[512] ^ 1);
  std::ofstream(shard, std::ios::binary) << text;
  require_said(run(flat), 0, "; the indexes agree");
  require_said(run(flat + " --read-back"), 1, "NOT VERIFIED");
  std::filesystem::remove(shard + ".millrace.index");
  const said not_as_read = run(flat);
  require_said(not_as_read, 1, "NOT VERIFIED");
  require_said(not_as_read, 1, "shard.millrace.json says 300 samples with fingerprint ");
}

int run_all(const tools_under_test& t, const std::string& version) {
  mill::s3_server::background server;
  for (const char* name : {"AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_SESSION_TOKEN"}) {
    ::unsetenv(name);
  }
  ::setenv("AWS_ENDPOINT_URL_S3", server.endpoint().c_str(), 1);
  ::setenv("AWS_ACCESS_KEY_ID", "test-key", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "test-secret", 1);
  ::setenv("AWS_REGION", "us-east-1", 1);
  std::filesystem::remove_all(t.folder);
  std::filesystem::create_directories(t.folder);
  check_uniform();
  check_options(t, version);
  check_ls_and_cat(t, server);
  check_bounds(t);
  check_merged_keys(t);
  check_described(t);
  check_reshard(t, server);
  for (const bool shuffled : {true, false}) {
    check_kills(t, server, false, shuffled);
    check_kills(t, server, true, shuffled);
  }
  check_damage(t);
  std::filesystem::remove_all(t.folder);
  if (failures == 0) std::puts("all as it should be");
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  try {
    const std::string folder =
        std::filesystem::temp_directory_path().string() + "/run_reshard." + std::to_string(::getpid());
    return run_all({arguments[1], arguments[2], arguments[3], folder}, arguments[4]);
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
}
