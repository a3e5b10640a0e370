// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <millrace/base/running_crc.hpp>
#include <millrace/http/message.hpp>
#include <millrace/s3/sign/signer.hpp>

namespace millrace::inline MILLRACE_ABI::s3::detail {

/// A checksum that a store declares of an object, and the sums of the object's bytes so far.
///
/// Either of all bytes (FULL_OBJECT), or of an upload in parts (COMPOSITE, "...-7"): the checksum of the checksums of
/// its parts. That needs to know where the parts end: cut_at(). A store that gives no number of an object whose ETag is
/// that of an upload in parts ("...-7", as moto does) may mean both: either is right then, and CRC-32 for CRC-32C.
class body_checksum {
 public:
  body_checksum(const body_checksum& other);
  body_checksum(body_checksum&&) noexcept = default;
  body_checksum& operator=(const body_checksum&) = delete;
  body_checksum& operator=(body_checksum&&) noexcept = default;

  /// The cheapest of those in the fields of an answer; nothing when there is none whose algorithm is known here.
  static std::optional<body_checksum> of(const http::headers& fields);

  /// "crc32c", for messages.
  std::string_view name() const noexcept { return std::string_view(how_.field).substr(15); }
  /// The CRC that is to be added up; none for a hash.
  crc_kind crc() const noexcept { return how_.crc; }
  /// Parts of the upload whose checksums this is (or may be) of; 0: it is of the object's bytes.
  std::uint64_t parts() const noexcept { return parts_; }

  std::uint64_t part_size() const noexcept { return part_size_; }
  /// All parts of the upload have `bytes` bytes, but the last. False when their number does not fit that.
  bool cut_at(std::uint64_t bytes, std::uint64_t size) noexcept {
    part_size_ = bytes;
    for (body_checksum* other = other_.get(); other != nullptr; other = other->other_.get()) other->part_size_ = bytes;
    return bytes != 0 && size != 0 && (size - 1) / bytes + 1 == parts_;
  }

  /// The next bytes. `crc` need not be computed again if it is of them and of the kind that is needed.
  void add(std::string_view data, const running_crc& crc = running_crc());
  /// Returns true if the bytes added have this checksum. Ends the adding.
  bool matches();
  /// Returns true if the store has a CRC-32 of `data`, all bytes of the object, which did not match, and calls it
  /// CRC-32C, as moto does if Python lacks the other one.
  bool matches_as_crc32(std::string_view data) const;
  /// True if the checksum that matched is of another algorithm than its name says.
  bool misnamed() const noexcept { return misnamed_; }

 private:
  struct algorithm {
    const char* field;
    std::size_t size;
    crc_kind crc;
    const EVP_MD* (*hash)();
  };
  body_checksum(const algorithm& how, std::string declared, std::uint64_t parts)
      : how_(how), declared_(std::move(declared)), parts_(parts) {
    begin_run();
  }

  /// The algorithms known here, the cheapest first.
  static const algorithm* begin_known() noexcept;
  static const algorithm* end_known() noexcept;
  static const algorithm& crc32() noexcept { return begin_known()[1]; }

  /// The declared value may be of `parts` parts by `how`, too.
  void allow(const algorithm& how, std::uint64_t parts) {
    std::unique_ptr<body_checksum>* last = &other_;
    while (*last != nullptr) last = &(*last)->other_;
    last->reset(new body_checksum(how, declared_, parts));
  }

  static std::uint64_t count_of(std::string_view digits) noexcept;
  /// Parts of the upload that made the object, as far as its ETag tells: the MD5 of MD5s and their number. 0: not one.
  static std::uint64_t parts_of(const http::headers& fields);
  /// Base64 of whole groups; empty for anything else.
  static std::string decode(const std::string& text);

  void begin_run();
  /// add() and matches(), without other algorithms that the checksum may be of.
  void add_alone(std::string_view data, const running_crc& crc);
  bool matches_alone();
  void add_run(std::string_view data, const running_crc& crc);
  /// The checksum of the run, as S3 writes it before base64; the next run begins.
  std::string end_run();
  void end_part();

  algorithm how_;
  std::string declared_;
  std::uint64_t parts_;
  std::uint64_t part_size_ = 0;
  running_crc crc_;
  std::unique_ptr<EVP_MD_CTX, openssl_free> hash_;
  std::uint64_t filled_ = 0;            // of the part that is being added
  std::uint64_t count_ = 0;             // parts that have been added
  bool misnamed_ = false;
  std::unique_ptr<body_checksum> other_;  // another algorithm that it may be of, and that one's other_ too
  std::string sums_;                    // theirs
};

}  // namespace millrace::s3::detail

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/s3/wire/detail/body_checksum.ipp>
#endif
