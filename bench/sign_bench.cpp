// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Signatures of ranged GETs per second and core: millrace::s3::signer beside the bare hashing that no signer can do
// without (SHA-256 of a canonical request of the same length, HMAC of a string to sign of the same length with the key
// of the day at hand, on reused OpenSSL contexts). Both run in turns; the median of five turns counts.
// Build: c++ -std=c++20 -O2 -Iinclude -I. bench/sign_bench.cpp -o sign_bench -lcrypto

#include <cstdio>
#include <span>
#include <string>

#include <millrace/base/clock.hpp>
#include <millrace/s3/sign/signer.hpp>

#include "bench/common/measure.hpp"

namespace {

namespace s3 = millrace::s3;

constexpr int turns = 5;
constexpr int signatures = 200000;

struct workload {
  std::string token;
  std::size_t canonical_size = 0;
  std::size_t string_size = 0;
  bench::figure ours, bare;
};

s3::signing_request request(const s3::header_field& range, const std::string& path) {
  s3::signing_request r;
  r.host = "mybucket.s3.eu-west-1.amazonaws.com";
  r.path = path;
  r.headers = std::span<const s3::header_field>(&range, 1);
  r.region = "eu-west-1";
  return r;
}

double rate_of_signer(workload& w, unsigned& sink) {
  s3::signer signer;
  const s3::credentials who("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", w.token);
  const std::int64_t start = millrace::monotonic_ns();
  for (int i = 0; i < signatures; ++i) {
    const std::string path = "/train/shard-" + std::to_string(100000 + i % 1000) + ".tar";
    const std::string bytes = "bytes=" + std::to_string(i) + "-16777215";
    const s3::header_field range{"Range", bytes};
    const s3::signed_headers added = signer.sign(request(range, path), who, 1767268800 + i / 1000);
    sink += static_cast<unsigned char>(added["authorization"].back());
  }
  const double seconds = static_cast<double>(millrace::monotonic_ns() - start) * 1e-9;
  w.canonical_size = signer.canonical_request().size();
  w.string_size = signer.string_to_sign().size();
  return signatures / seconds;
}

double rate_of_bare_hashing(const workload& w, unsigned& sink) {
  s3::detail::sha256 sha256;
  s3::detail::hmac_sha256 hmac;
  std::string canonical(w.canonical_size, 'c');
  std::string text(w.string_size, 's');
  s3::detail::digest key{};
  s3::detail::digest out{};
  const std::int64_t start = millrace::monotonic_ns();
  for (int i = 0; i < signatures; ++i) {
    canonical[0] = static_cast<char>(i);
    sha256(canonical, out);
    text[0] = static_cast<char>(out[0]);
    hmac(key.data(), key.size(), text, out);
    sink += out[0];
  }
  return signatures / (static_cast<double>(millrace::monotonic_ns() - start) * 1e-9);
}

void print(const char* name, const bench::figure& rates) {
  std::printf("  %-28s %8.0f signatures/s   (%.0f .. %.0f)\n", name, rates.median(), rates.lowest(), rates.highest());
}

}  // namespace

int main() {
  unsigned sink = 0;
  workload loads[2];
  loads[1].token.assign(900, 't');
  for (workload& w : loads) rate_of_signer(w, sink);  // warm up, and learn the sizes
  for (int turn = 0; turn < turns; ++turn) {
    for (workload& w : loads) {
      w.ours.add(rate_of_signer(w, sink));
      w.bare.add(rate_of_bare_hashing(w, sink));
    }
  }
  for (workload& w : loads) {
    std::printf(
        "ranged GET, session token of %zu bytes: canonical request %zu bytes (median of %d, lowest .. highest)\n",
        w.token.size(), w.canonical_size, turns);
    print("s3::signer", w.ours);
    print("hashing alone", w.bare);
    bench::goal_at_least("signatures per second and core", w.ours.median(), 500000, "");
    std::printf("  signatures/s, s3::signer / hashing alone: %.2f\n", bench::ratio(w.ours, w.bare));
  }
  return sink == 1 ? 1 : 0;  // keeps the work from being optimised away
}
