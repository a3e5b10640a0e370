// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#if defined(MILLRACE_WITH_S3)
#include <openssl/err.h>
#include <openssl/evp.h>
#endif

#include <millrace/base/compiler.hpp>
#include <millrace/base/crc.hpp>
#include <millrace/base/detail/first_time.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/detail/log.hpp>
#include <millrace/coro/executor.hpp>
#include <millrace/formats/mds.hpp>
#include <millrace/index/detail/indexed_object.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/index/detail/text_frames.hpp>
#include <millrace/shards/storage.hpp>
#include <millrace/tar/entry.hpp>
#include <millrace/text/json_leaves.hpp>

namespace millrace::inline MILLRACE_ABI {

namespace detail {

/// The columns of a shard, as its own head and index.json have them.
class mds_columns {
 public:
  struct column {
    std::string name;
    std::string encoding;
    std::optional<std::uint64_t> size;  // none: it differs, and stands before the sample
    friend bool operator==(const column&, const column&) = default;
  };
  std::vector<column> all;
  std::size_t variable = 0;  // of them
  std::uint64_t fixed = 0;   // bytes of the others
  std::string wrong;         // why they cannot be read

  /// From what stands below `path` in a document.
  static mds_columns of(const text::json_leaves& document, const std::string& path) {
    mds_columns out;
    for (const auto& [place, value] : document.all()) {
      if (place.compare(0, path.size(), path) == 0) out.take(std::string_view(place).substr(path.size()), value);
    }
    out.finish();
    return out;
  }
  /// One member of a shard's object.
  void take(std::string_view place, const std::string& value) {
    for (const std::string_view part : {"column_names/", "column_encodings/", "column_sizes/"}) {
      if (place.substr(0, part.size()) != part) continue;
      const std::optional<std::uint64_t> i = number(place.substr(part.size()));
      if (!i) return fail("the columns cannot be read: \"" + std::string(place) + "\" has no number");
      column& its = numbered_[*i];
      if (part == "column_names/") {
        its.name = value;
      } else if (part == "column_encodings/") {
        its.encoding = value;
      } else {
        its.size = number(value);
        if (!its.size || *its.size == 0 || *its.size > UINT32_MAX) fail("a column has the size " + value);
      }
      return;
    }
    if (place == "version" && value != "2") fail("the shard is of version " + value + " and not 2");
    if (place == "format" && value != "mds") fail("the shard is of the format " + value + " and not mds");
  }
  void finish() {
    for (auto& [number, its] : numbered_) {
      if (number != all.size()) {
        fail("there is a column " + std::to_string(number) + ", and none " + std::to_string(all.size()));
        break;
      }
      all.push_back(std::move(its));
    }
    numbered_.clear();
    std::set<std::string_view> names;
    for (const column& c : all) {
      if (c.name.empty() || c.encoding.empty() || !names.insert(c.name).second) {
        fail("a column has no name, no encoding, or the name of another one");
      }
      if (c.size) {
        fixed += *c.size;
      } else {
        ++variable;
      }
    }
    if (all.empty()) fail("there are no columns");
  }
  static std::optional<std::uint64_t> number(std::string_view digits) noexcept {
    std::uint64_t value = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (failed != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return value;
  }

 private:
  void fail(std::string reason) {
    if (wrong.empty()) wrong = std::move(reason);
  }

  std::map<std::uint64_t, column> numbered_;  // until finish(): as many as there are, whatever their numbers
};

/// What index.json says of one shard's object.
class mds_entry {
 public:
  mds_entry() = default;
  std::string index;  // the URL of the index.json
  std::uint64_t samples = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t zip_bytes = 0;
  bool zipped = false;                        // the object is the compressed one
  std::map<std::string, std::string> hashes;  // of the object
  mds_columns columns;
};

class mds_metadata {
 public:
  mds_metadata() = default;
  std::map<std::string, mds_entry> by_url;
};

/// A hash of a stream of bytes.
class mds_hash {
 public:
  virtual ~mds_hash() = default;
  virtual void add(std::string_view piece) = 0;
  /// The hash of all pieces, in hexadecimal; the hash is finished then.
  virtual std::string digits() = 0;
};

#if defined(MILLRACE_WITH_S3)

class openssl_mds_hash final : public mds_hash {
 public:
  openssl_mds_hash() : context_(EVP_MD_CTX_new()) {
    if (context_ == nullptr) throw std::bad_alloc();
  }
  /// False if OpenSSL does not know the algorithm, knows it with any length, or does not compute it as it is set up
  /// here: MD4 is of its legacy provider, and in FIPS mode there is no MD5.
  bool begin(const std::string& algorithm) {
    const EVP_MD* const its = method(algorithm);
    if (its == nullptr) return false;
    if (EVP_DigestInit_ex(context_.get(), its, nullptr) == 1) return true;
    const bool no_memory = ERR_GET_REASON(ERR_peek_last_error()) == ERR_R_MALLOC_FAILURE;
    ERR_clear_error();  // else the next TLS connection of this thread may take it for its own
    if (no_memory) throw std::bad_alloc();
    return false;
  }
  void add(std::string_view piece) override { EVP_DigestUpdate(context_.get(), piece.data(), piece.size()); }
  std::string digits() override {
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), out, &size);
    std::string digits;
    for (unsigned i = 0; i < size; ++i) {
      digits += "0123456789abcdef"[out[i] >> 4];
      digits += "0123456789abcdef"[out[i] & 15];
    }
    return digits;
  }

 private:
  static const EVP_MD* method(const std::string& algorithm) {
    if (algorithm == "blake2b") return EVP_blake2b512();
    if (algorithm == "blake2s") return EVP_blake2s256();
    std::string name = algorithm;
    std::replace(name.begin(), name.end(), '_', '-');
    if (name.compare(0, 5, "shake") == 0) return nullptr;
    return EVP_get_digestbyname(name.c_str());
  }
  struct free_context {
    void operator()(EVP_MD_CTX* p) const noexcept { EVP_MD_CTX_free(p); }
  };
  std::unique_ptr<EVP_MD_CTX, free_context> context_;
};

MILLRACE_INLINE std::unique_ptr<mds_hash> make_openssl_mds_hash(const std::string& algorithm) {
  auto made = std::make_unique<openssl_mds_hash>();
  return made->begin(algorithm) ? std::move(made) : nullptr;
}

#else

MILLRACE_OTHER_COMPONENT std::unique_ptr<mds_hash> make_openssl_mds_hash(const std::string& algorithm);

#endif

/// `algorithm` as Python's hashlib and xxhash name it. Null if it cannot be computed here: the component s3 brings
/// OpenSSL.
MILLRACE_INLINE std::unique_ptr<mds_hash> make_mds_hash(const std::string& algorithm) {
  return is_linked(make_openssl_mds_hash) ? make_openssl_mds_hash(algorithm) : nullptr;
}

/// The ending of a compressed shard; empty of a raw one, nullopt of what is no shard.
MILLRACE_INLINE std::optional<std::string> mds_ending(std::string_view url) {
  for (const std::string_view ending : {"", ".zstd", ".gz", ".br", ".bz2", ".snappy"}) {
    const std::string whole = ".mds" + std::string(ending);
    if (url.size() > whole.size() && url.substr(url.size() - whole.size()) == whole) return std::string(ending);
  }
  return std::nullopt;
}

/// Reads a shard from its beginning to its end.
class mds_scanner final : public shard_scanner {
 public:
  mds_scanner(const shard_format& format, std::string name, const shard& object, const mds_entry* entry)
      : builder_(format, std::move(name)), object_(object), has_entry_(entry != nullptr) {
    if (has_entry_) entry_ = *entry;
    const std::string ending = mds_ending(object.url).value_or("");
    if (ending == ".zstd" || ending == ".gz") {
      unpacker_ = make_frame_unpacker(ending == ".gz" ? tar::format::gzip : tar::format::zstd, object);
    } else if (!ending.empty()) {
      throw decode_error("the shard is compressed by " + ending.substr(1) +
                             ", and only zstd and gz are read: write it anew, or unpack it",
                         where{object.shown(), 0, {}});
    }
    for (const auto& [algorithm, wanted] : entry_.hashes) {
      if (std::unique_ptr<mds_hash> its = make_mds_hash(algorithm))
        hashes_.push_back({std::move(its), algorithm, wanted});
    }
  }
  bool packed() const noexcept override { return true; }  // hashes
  bool verifies() const noexcept override { return !hashes_.empty(); }
  void add(const bytes& its) override {
    std::string_view piece = its.view();
    for (const object_hash& h : hashes_) h.is->add(piece);
    size_ += piece.size();
    if (unpacker_ == nullptr) return add_text(piece);
    while (!piece.empty() || unpacker_->more()) {
      const std::string_view text = unpacker_->next(piece);
      if (!unpacker_->wrong().empty())
        fail("the compressed shard is damaged: " + unpacker_->wrong(), at_ + text.size());
      add_text(text);
    }
  }
  shard_index finish(std::uint64_t size, std::string etag) override {
    for (const object_hash& h : hashes_) {
      const std::string is = h.is->digits();
      if (is == h.wanted) continue;
      throw archive_error(
          "the " + h.algorithm + " of the shard is " + is + " and not " + h.wanted + " as in index.json",
          where{object_.shown(), std::nullopt, {}});
    }
    if (unpacker_ != nullptr && !unpacker_->between_frames()) fail("the compressed shard is cut", at_);
    if (!head_done_ || at_ != offsets_.back()) fail("the shard is cut: it is in the middle of " + part(), at_);
    if (has_entry_) {
      compare("samples", entry_.samples, offsets_.size() - 1);
      compare("bytes", entry_.raw_bytes, at_);
      if (unpacker_ != nullptr) compare("compressed bytes", entry_.zip_bytes, size_);
    }
    return builder_.finish(size, std::move(etag), true, size);
  }

 private:
  static constexpr std::uint64_t most_head = 16 * MiB;

  struct object_hash {
    std::unique_ptr<mds_hash> is;
    std::string algorithm;
    std::string wanted;
  };

  [[noreturn]] void fail(std::string reason, std::uint64_t at) const {
    if (unpacker_ == nullptr) throw archive_error(std::move(reason), where{object_.shown(), at, {}});
    throw archive_error(std::move(reason) + ", at byte " + std::to_string(at) + " of what it is unpacked to",
                        where{object_.shown(), std::nullopt, {}});
  }
  std::string part() const {
    return head_done_ ? "sample " + std::to_string(builder_.samples()) : std::string("its head");
  }
  void compare(const char* what, std::uint64_t said, std::uint64_t is) const {
    if (said == is) return;
    throw archive_error("the shard has " + std::to_string(is) + ' ' + what + ", and " + std::to_string(said) + " by " +
                            shard(entry_.index).shown(),
                        where{object_.shown(), std::nullopt, {}});
  }
  void add_text(std::string_view text) {
    while (!text.empty()) {
      std::size_t taken = 0;
      if (!head_done_) {
        const std::size_t need = head_bytes();
        taken = std::min(need - head_.size(), text.size());
        head_ += text.substr(0, taken);
        at_ += taken;
        if (head_.size() == need && head_bytes() == need) begin_samples();
      } else {
        if (at_ == offsets_.back()) fail("something follows the last sample", at_);
        const std::uint64_t begin = offsets_[builder_.samples()];
        const std::uint64_t end = offsets_[builder_.samples() + 1];
        taken = static_cast<std::size_t>(std::min<std::uint64_t>(end - at_, text.size()));
        const std::string_view piece = text.substr(0, taken);
        crc_ = crc32c(crc_, piece.data(), piece.size());
        const std::size_t lengths = 4 * columns_.variable;
        if (lengths_.size() < lengths) lengths_ += piece.substr(0, lengths - lengths_.size());
        at_ += taken;
        if (at_ == end) end_sample(begin, end);
      }
      text.remove_prefix(taken);
    }
  }
  /// How many bytes stand before the first sample, as far as that is known.
  std::size_t head_bytes() {
    if (head_.size() < 4) return 4;
    const std::uint64_t samples = read_le(head_, 0, 4);
    const std::uint64_t table = 4 + 4 * (samples + 1);
    if (head_.size() == 4 && has_entry_) compare("samples", entry_.samples, samples);
    const std::uint64_t there = unpacker_ == nullptr ? object_.size.value_or(UINT64_MAX)
                                : has_entry_         ? entry_.raw_bytes
                                                     : UINT64_MAX;
    // Unpacked, a table may have any length: one that is packed to less than a sixteenth has no samples beside it.
    const std::uint64_t packed = std::max(object_.size.value_or(0), size_);
    const bool packs_too_well = unpacker_ != nullptr && table > most_head && (table - most_head) / 16 > packed;
    if (table > there || packs_too_well) {
      fail("the shard says that it has " + std::to_string(samples) + " samples", 0);
    }
    if (head_.size() < table) return static_cast<std::size_t>(std::max<std::uint64_t>(8, table));
    const std::uint64_t first = read_le(head_, 4, 4);
    if (first < table || first - table > most_head) fail("the first sample is at byte " + std::to_string(first), 4);
    return static_cast<std::size_t>(first);
  }
  void begin_samples() {
    const std::uint64_t samples = read_le(head_, 0, 4);
    offsets_.reserve(static_cast<std::size_t>(samples) + 1);
    for (std::uint64_t i = 0; i <= samples; ++i) {
      const std::size_t place = 4 + 4 * static_cast<std::size_t>(i);
      const std::uint64_t offset = read_le(head_, place, 4);
      if (!offsets_.empty() && offset <= offsets_.back()) {
        fail("sample " + std::to_string(i - 1) + " is empty or overlaps the next one: it ends at byte " +
                 std::to_string(offset),
             place);
      }
      offsets_.push_back(offset);
    }
    if (unpacker_ == nullptr && object_.size && offsets_.back() != *object_.size) {
      fail("the last sample ends at byte " + std::to_string(offsets_.back()) + ", and the shard at byte " +
               std::to_string(*object_.size),
           4 + 4 * samples);
    }
    const std::size_t json = 4 + 4 * (static_cast<std::size_t>(samples) + 1);
    const std::string text = head_.substr(json);
    const std::optional<text::json_leaves> document = text::json_leaves::parse(text, text::json_leaves::arrays::kept);
    if (!document) fail("the shard's own description is no JSON", json);
    columns_ = mds_columns::of(*document, "");
    if (!columns_.wrong.empty()) fail(columns_.wrong, json);
    if (has_entry_ && columns_.all != entry_.columns.all) {
      fail("the shard has other columns than " + shard(entry_.index).shown() + " says", json);
    }
    if (unpacker_ != nullptr && samples > 0) {
      builder_.begin_group(0);
    }
    builder_.describe((unpacker_ == nullptr ? "" : "packed ") + text);
    head_done_ = true;
    head_ = std::string();
  }
  void end_sample(std::uint64_t begin, std::uint64_t end) {
    std::uint64_t size = 4 * columns_.variable + columns_.fixed;
    for (std::size_t i = 0; i + 4 <= lengths_.size(); i += 4) size += read_le(lengths_, i, 4);
    if (size != end - begin) {
      fail("sample " + std::to_string(builder_.samples()) + " has " + std::to_string(end - begin) +
               " bytes, and its columns " + std::to_string(size),
           begin);
    }
    builder_.add(begin, end - begin, crc_);
    crc_ = 0;
    lengths_.clear();
  }

  sample_index_builder builder_;
  const shard object_;
  const bool has_entry_;
  mds_entry entry_;
  std::unique_ptr<frame_unpacker> unpacker_;
  std::vector<object_hash> hashes_;
  std::uint64_t size_ = 0;  // of the object, so far
  std::uint64_t at_ = 0;    // of the raw shard
  bool head_done_ = false;
  std::string head_;
  std::vector<std::uint64_t> offsets_;
  mds_columns columns_;
  std::uint32_t crc_ = 0;
  std::string lengths_;  // what the sample begins with
};

class mds_reader final : public shard_reader {
 public:
  mds_reader(const shard_index& index, const std::vector<std::string>& wanted) : name_(index.name()) {
    std::string text = index.description();
    if (text.compare(0, 7, "packed ") == 0) {
      text.erase(0, 7);
      text_size_ = index.groups() == 0 ? 0 : index.group_text_end(0);
    }
    const std::optional<text::json_leaves> document = text::json_leaves::parse(text, text::json_leaves::arrays::kept);
    if (document) columns_ = mds_columns::of(*document, "");
    if (!document || !columns_.wrong.empty()) {
      throw index_error("the index of this shard has no description of its columns", where{name_, std::nullopt, {}});
    }
    for (const std::string& name : wanted) {
      const auto at = std::find_if(columns_.all.begin(), columns_.all.end(),
                                   [&](const mds_columns::column& c) { return c.name == name; });
      if (at == columns_.all.end()) {
        std::string there;
        for (const mds_columns::column& c : columns_.all) there += (there.empty() ? "" : ", ") + c.name;
        throw configuration_error("mds: there is no column \"" + name + "\": there are " + there,
                                  where{name_, std::nullopt, {}});
      }
      order_.push_back(static_cast<std::size_t>(at - columns_.all.begin()));
    }
    if (wanted.empty()) {
      for (std::size_t i = 0; i < columns_.all.size(); ++i) order_.push_back(i);
    }
  }
  std::vector<shard_field> fields() const {
    std::vector<shard_field> all;
    for (const std::size_t i : order_) all.emplace_back(columns_.all[i].name, columns_.all[i].encoding);
    return all;
  }
  void fill(sample& s, const shard_index::rows&, std::size_t, const bytes& record) const override {
    std::vector<std::size_t> ends;
    ends.reserve(columns_.all.size() + 1);
    const std::size_t head = 4 * columns_.variable;
    bool fits = record.size() >= head;
    ends.push_back(head);
    std::size_t length = 0;
    for (const mds_columns::column& c : columns_.all) {
      if (!fits) break;
      const std::uint64_t size = c.size ? *c.size : read_le(record.view(), 4 * length++, 4);
      fits = size <= record.size() - ends.back();
      ends.push_back(ends.back() + static_cast<std::size_t>(size));
    }
    if (!fits || ends.back() != record.size()) {
      throw decode_error("the sample has " + std::to_string(record.size()) + " bytes, and its columns do not",
                         s.from.at(s.key));
    }
    s.fields.reserve(order_.size());
    for (const std::size_t i : order_) {
      s.fields.emplace_back(columns_.all[i].name, record.slice(ends[i], ends[i + 1] - ends[i]));
    }
  }
  unpacked_group unpack(const shard&, std::size_t, const std::vector<bytes>& parts) const override {
    const auto size = static_cast<std::size_t>(text_size_);
    writable_bytes into = writable_bytes::allocate(size);
    std::string_view in = parts.front().view();
    const shard object(name_);
    const tar::format kind = !in.empty() && in.front() == '\x1f' ? tar::format::gzip : tar::format::zstd;
    const std::unique_ptr<frame_unpacker> unpacker = make_frame_unpacker(kind, object);
    std::size_t at = 0;
    while (!in.empty() || unpacker->more()) {
      const std::string_view text = unpacker->next(in);
      if (!unpacker->wrong().empty() || text.size() > size - at) {
        throw archive_error("the compressed shard is damaged: " +
                                (unpacker->wrong().empty() ? "it is longer than the index says" : unpacker->wrong()),
                            where{name_, std::nullopt, {}});
      }
      std::memcpy(into.data() + at, text.data(), text.size());
      at += text.size();
    }
    if (at != size) {
      throw archive_error("the compressed shard is damaged: it is unpacked to " + std::to_string(at) + " of " +
                              std::to_string(size) + " bytes",
                          where{name_, std::nullopt, {}});
    }
    return unpacked_group(into.share(0, size));
  }

 private:
  std::string name_;
  mds_columns columns_;
  std::vector<std::size_t> order_;  // of the columns that are wanted
  std::uint64_t text_size_ = 0;
};

/// Takes what one index.json says of the shards that are listed (`urls`), of which none had said anything of `unknown`.
MILLRACE_INLINE void add_mds_index(mds_metadata& all, const std::string& url, const std::string& text,
                                   const std::set<std::string>& urls, std::set<std::string>& unknown,
                                   std::set<std::string>& not_compared) {
  const where here{shard(url).shown(), std::nullopt, {}};
  const std::optional<text::json_leaves> document = text::json_leaves::parse(text, text::json_leaves::arrays::kept);
  if (!document || document->find("version") != "2") {
    throw decode_error("index.json is no JSON document of MDS's version 2", here);
  }
  struct object {
    std::string name;
    std::uint64_t bytes = 0;
    std::map<std::string, std::string> hashes;
  };
  struct entry {
    mds_entry of;
    object raw;
    object zip;
  };
  std::vector<entry> shards;
  for (const auto& [path, value] : document->all()) {
    std::string_view rest = path;
    if (rest.substr(0, 7) != "shards/") continue;
    rest.remove_prefix(7);
    const std::size_t slash = rest.find('/');
    const std::optional<std::uint64_t> i = mds_columns::number(rest.substr(0, slash));
    if (!i || slash == std::string_view::npos || *i > shards.size()) {
      throw decode_error("index.json has shards that cannot be read", here);
    }
    if (*i == shards.size()) shards.emplace_back();
    entry& e = shards[static_cast<std::size_t>(*i)];
    rest.remove_prefix(slash + 1);
    e.of.columns.take(rest, value);
    if (rest == "samples") e.of.samples = mds_columns::number(value).value_or(UINT64_MAX);
    const bool zip = rest.substr(0, 9) == "zip_data/";
    if (!zip && rest.substr(0, 9) != "raw_data/") continue;
    object& o = zip ? e.zip : e.raw;
    rest.remove_prefix(9);
    if (rest == "basename") o.name = value;
    if (rest == "bytes") o.bytes = mds_columns::number(value).value_or(UINT64_MAX);
    if (rest.substr(0, 7) == "hashes/") o.hashes[std::string(rest.substr(7))] = value;
  }
  const std::string folder = url.substr(0, url.rfind('/') + 1);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    entry& e = shards[i];
    e.of.columns.finish();
    const auto fail = [&](const std::string& why) {
      throw decode_error("shard " + std::to_string(i) + " of index.json: " + why, here);
    };
    if (!e.of.columns.wrong.empty()) fail(e.of.columns.wrong);
    if (e.raw.name.empty()) fail("it has no raw_data");
    const bool raw = urls.count(folder + e.raw.name) != 0;
    if (!raw && (e.zip.name.empty() || urls.count(folder + e.zip.name) == 0)) {
      fail("there is no object " + shard(folder + (e.zip.name.empty() ? e.raw.name : e.zip.name)).shown());
    }
    e.of.index = url;
    e.of.raw_bytes = e.raw.bytes;
    e.of.zip_bytes = e.zip.bytes;
    // Where both are listed the raw one is read, and the other is known.
    for (const bool zipped : {false, true}) {
      const object& o = zipped ? e.zip : e.raw;
      if (o.name.empty()) continue;
      mds_entry one = e.of;
      one.zipped = zipped;
      one.hashes = o.hashes;
      for (const auto& [algorithm, value] : o.hashes) {
        if (make_mds_hash(algorithm) == nullptr) not_compared.insert(algorithm);
      }
      unknown.erase(folder + o.name);
      all.by_url.emplace(folder + o.name, std::move(one));
    }
  }
}

/// Reads the files index.json, shortest URLs first, until all shards are known. What comes over a network is read
/// twice: nothing else verifies it.
template <class Metadata = mds_metadata>
task<std::shared_ptr<const void>> read_mds_metadata(std::shared_ptr<const storage> from, std::vector<shard> listed) {
  const executor& ex = co_await this_executor();
  const auto made = std::make_shared<Metadata>();
  std::vector<shard> indexes;
  std::set<std::string> urls;
  for (const shard& s : listed) {
    const std::size_t slash = s.url.rfind('/');
    if (s.url.substr(slash + 1) == "index.json") indexes.push_back(s);
    urls.insert(s.url);
  }
  std::sort(indexes.begin(), indexes.end(), [](const shard& a, const shard& b) {
    return a.url.size() != b.url.size() ? a.url.size() < b.url.size() : a.url < b.url;
  });
  std::set<std::string> unknown;
  for (const std::string& url : urls) {
    if (mds_ending(url)) unknown.insert(url);
  }
  std::set<std::string> not_compared;
  for (const shard& at : indexes) {
    if (unknown.empty()) break;
    const std::string text = co_await text_read_twice(from, at);
    add_mds_index(*made, at.url, text, urls, unknown, not_compared);
  }
  if (!unknown.empty() && !indexes.empty()) {
    throw archive_error("no index.json names this shard", where{shard(*unknown.begin()).shown(), std::nullopt, {}});
  }
  std::string line;
  if (indexes.empty()) line = "there is no index.json: shards describe themselves, and no hashes are compared";
  for (const std::string& algorithm : not_compared) {
    line += (line.empty() ? "these hashes of index.json are not compared: " : ", ") + algorithm;
  }
  if (!line.empty()) log_line(ex, "millrace: mds: " + line);
  co_return std::shared_ptr<const void>(made);
}

template <class Unused = void>  // a coroutine is virtual: see MILLRACE_COROUTINE
class basic_mds_format final : public shard_format {
 public:
  explicit basic_mds_format(mds_options options) : options_(std::move(options)) {}
  std::string_view name() const noexcept override { return "mds"; }
  std::vector<shard> choose(std::vector<shard> listed) const override {
    std::set<std::string> raw;
    for (const shard& s : listed) {
      if (mds_ending(s.url) == "") raw.insert(s.url);
    }
    std::erase_if(listed, [&](const shard& s) {
      const std::optional<std::string> ending = mds_ending(s.url);
      return !ending || (!ending->empty() && raw.count(s.url.substr(0, s.url.size() - ending->size())) != 0);
    });
    return listed;
  }
  task<std::shared_ptr<const void>> metadata(std::shared_ptr<const storage> from,
                                             std::vector<shard> listed) const override {
    return read_mds_metadata<>(std::move(from), std::move(listed));
  }
  std::unique_ptr<shard_scanner> scanner(std::string its_name, const shard& object,
                                         std::shared_ptr<const void> metadata) const override {
    const auto* const known = static_cast<const mds_metadata*>(metadata.get());
    const mds_entry* entry = nullptr;
    if (known != nullptr) {
      const auto at = known->by_url.find(object.url);
      if (at != known->by_url.end()) entry = &at->second;
    }
    return std::make_unique<mds_scanner>(*this, std::move(its_name), object, entry);
  }
  std::shared_ptr<const shard_reader> reader(const shard_index& index) const override {
    return std::make_shared<const mds_reader>(index, options_.columns);
  }
  std::vector<shard_field> fields(const shard_index& index) const override {
    return mds_reader(index, options_.columns).fields();
  }
  bool knows(const shard& left_out) const override {
    return mds_ending(left_out.url) || left_out.url.substr(left_out.url.rfind('/') + 1) == "index.json";
  }

 private:
  const mds_options options_;
};

/// "uint16" and the like; nullopt of other words.
MILLRACE_INLINE std::optional<dtype> mds_type(std::string_view name) noexcept {
  struct known {
    std::string_view name;
    dtype type;
  };
  constexpr known all[] = {{"uint8", dtype::u8},  {"int8", dtype::i8},     {"uint16", dtype::u16},
                           {"int16", dtype::i16}, {"float16", dtype::f16}, {"uint32", dtype::u32},
                           {"int32", dtype::i32}, {"float32", dtype::f32}, {"uint64", dtype::u64},
                           {"int64", dtype::i64}, {"float64", dtype::f64}, {"int", dtype::i64}};
  for (const known& k : all) {
    if (k.name == name) return k.type;
  }
  return std::nullopt;
}

MILLRACE_INLINE double mds_half(std::uint64_t bits) noexcept {
  const auto exponent = static_cast<int>(bits >> 10 & 31);
  const auto fraction = static_cast<double>(bits & 1023);
  double value = 0;
  if (exponent == 31) {
    value = fraction == 0 ? HUGE_VAL : std::nan("");
  } else {
    value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

MILLRACE_INLINE std::uint64_t mds_word(const bytes& field, dtype type, std::string_view encoding, const where& at) {
  if (field.size() != size_of(type)) {
    throw decode_error("the field has " + std::to_string(field.size()) + " bytes, and " + std::string(encoding) +
                           " has " + std::to_string(size_of(type)),
                       at);
  }
  return read_le(field.view(), 0, static_cast<int>(field.size()));
}

[[noreturn]] MILLRACE_INLINE void mds_other(const char* function, std::string_view encoding) {
  throw configuration_error(std::string(function) + ": the encoding \"" + std::string(encoding) +
                            "\" is of another kind");
}

}  // namespace detail

MILLRACE_COROUTINE_BODY std::shared_ptr<const shard_format> mds(mds_options options) {
  return std::make_shared<const detail::basic_mds_format<>>(std::move(options));
}

MILLRACE_INLINE std::int64_t mds_int(const bytes& field, std::string_view encoding, const where& at) {
  if (encoding == "str_int") {
    std::string_view digits = field.view();
    std::int64_t value = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (failed == std::errc() && end == digits.data() + digits.size()) return value;
    throw decode_error("the field is no number of 64 bits: " + std::string(digits.substr(0, 80)), at);
  }
  const std::optional<dtype> type = detail::mds_type(encoding);
  if (!type || *type == dtype::f16 || *type == dtype::f32 || *type == dtype::f64)
    detail::mds_other("mds_int", encoding);
  const std::uint64_t word = detail::mds_word(field, *type, encoding, at);
  switch (*type) {
    case dtype::i8:
      return static_cast<std::int8_t>(word);
    case dtype::i16:
      return static_cast<std::int16_t>(word);
    case dtype::i32:
      return static_cast<std::int32_t>(word);
    default:
      break;
  }
  if (*type == dtype::u64 && word > INT64_MAX) {
    throw decode_error("the field is a number of 64 bits without a sign: " + std::to_string(word), at);
  }
  return static_cast<std::int64_t>(word);
}

MILLRACE_INLINE double mds_float(const bytes& field, std::string_view encoding, const where& at) {
  if (encoding == "str_float") {
    const std::string digits(field.view());
    char* end = nullptr;
    const double value = std::strtod(digits.c_str(), &end);
    if (!digits.empty() && end == digits.c_str() + digits.size()) return value;
    throw decode_error("the field is no number: " + digits.substr(0, 80), at);
  }
  const std::optional<dtype> type = detail::mds_type(encoding);
  if (!type || (*type != dtype::f16 && *type != dtype::f32 && *type != dtype::f64)) {
    detail::mds_other("mds_float", encoding);
  }
  const std::uint64_t word = detail::mds_word(field, *type, encoding, at);
  if (*type == dtype::f16) return detail::mds_half(word);
  if (*type == dtype::f32) return __builtin_bit_cast(float, static_cast<std::uint32_t>(word));
  return __builtin_bit_cast(double, word);
}

MILLRACE_INLINE array mds_array(const bytes& field, std::string_view encoding, const where& at) {
  if (encoding.substr(0, 7) != "ndarray" || (encoding.size() > 7 && encoding[7] != ':')) {
    detail::mds_other("mds_array", encoding);
  }
  std::string_view rest = encoding.substr(std::min<std::size_t>(encoding.size(), 8));
  const std::string_view said = rest.substr(0, rest.find(':'));
  rest.remove_prefix(std::min(rest.size(), said.size() + 1));
  const std::string_view all = field.view();
  std::size_t next = 0;
  const auto take = [&](std::size_t bytes) {
    if (bytes > all.size() - next) throw decode_error("the field ends in the middle of an ndarray's head", at);
    next += bytes;
    return detail::read_le(all, next - bytes, static_cast<int>(bytes));
  };
  std::optional<dtype> type = detail::mds_type(said);
  if (!said.empty() && (!type || said == "int")) detail::mds_other("mds_array", encoding);
  if (said.empty()) {
    constexpr dtype of_power[4][3] = {{dtype::u8, dtype::i8, dtype::u8},
                                      {dtype::u16, dtype::i16, dtype::f16},
                                      {dtype::u32, dtype::i32, dtype::f32},
                                      {dtype::u64, dtype::i64, dtype::f64}};
    const std::uint64_t code = take(1);  // the bits of an element, and its kind
    for (std::size_t power = 0; power < 4; ++power) {
      const std::uint64_t kind = code - (std::uint64_t{8} << power);
      if (kind < (power == 0 ? 2U : 3U)) type = of_power[power][kind];
    }
    if (!type) throw decode_error("an ndarray has the type " + std::to_string(code), at);
  }
  std::vector<std::int64_t> dims;
  if (!rest.empty()) {
    while (!rest.empty()) {
      const std::string_view one = rest.substr(0, rest.find(','));
      const std::optional<std::uint64_t> extent = detail::mds_columns::number(one);
      if (!extent || *extent > INT64_MAX) detail::mds_other("mds_array", encoding);
      dims.push_back(static_cast<std::int64_t>(*extent));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    }
  } else {
    const std::uint64_t head = take(1);
    for (std::uint64_t i = 0; i < head >> 2; ++i) {
      const std::uint64_t extent = take(std::size_t{1} << (head & 3));
      if (extent > INT64_MAX) throw decode_error("an ndarray has an extent of 2^63 or more", at);
      dims.push_back(static_cast<std::int64_t>(extent));
    }
  }
  shape extents;
  if (dims.size() > shape::max_rank) throw decode_error("an ndarray has more than 8 extents", at);
  for (const std::int64_t d : dims) extents.push_back(d);
  return array(field.slice(next, field.size() - next), *type, extents, at);
}

MILLRACE_INLINE mds_pixels mds_image(const bytes& field, const where& at) {
  const std::string_view all = field.view();
  mds_pixels out;
  const std::uint64_t mode = all.size() < 12 ? 0 : detail::read_le(all, 8, 4);
  if (all.size() < 12 || mode > all.size() - 12) throw decode_error("the field is too short for an image of PIL", at);
  out.width = static_cast<std::uint32_t>(detail::read_le(all, 0, 4));
  out.height = static_cast<std::uint32_t>(detail::read_le(all, 4, 4));
  out.mode = all.substr(12, static_cast<std::size_t>(mode));
  const std::size_t head = 12 + static_cast<std::size_t>(mode);
  out.pixels = field.slice(head, field.size() - head);
  return out;
}

}  // namespace millrace::inline MILLRACE_ABI
