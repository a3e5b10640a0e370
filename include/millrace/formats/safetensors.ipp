// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <millrace/base/clock.hpp>
#include <millrace/base/compiler.hpp>
#include <millrace/base/error.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/data/hash128.hpp>
#include <millrace/decode/array.hpp>
#include <millrace/device/detail/slot_device.hpp>
#include <millrace/formats/safetensors.hpp>
#include <millrace/index/detail/little_endian.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/memory/bytes.hpp>
#include <millrace/memory/slab_pool.hpp>
#include <millrace/shards/range_reader.hpp>
#include <millrace/sync/all_of.hpp>
#include <millrace/text/json_leaves.hpp>
#include <millrace/text/json_scan.hpp>
#include <millrace/text/text.hpp>

namespace millrace::inline MILLRACE_ABI::detail {

inline constexpr dtype stored_types[] = {dtype::boolean, dtype::u8,  dtype::i8,  dtype::u16, dtype::i16,
                                         dtype::u32,     dtype::i32, dtype::u64, dtype::i64, dtype::f16,
                                         dtype::bf16,    dtype::f32, dtype::f64};

/// "F32", "BOOL", ...
MILLRACE_INLINE std::string stored_name(dtype type) {
  std::string name = name_of(type);
  for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

MILLRACE_INLINE std::optional<dtype> type_of_stored(std::string_view name) {
  for (const dtype d : stored_types) {
    if (stored_name(d) == name) return d;
  }
  return std::nullopt;
}

/// Bytes of a tensor, or of so many rows of one; nullopt if they are too many.
MILLRACE_INLINE std::optional<std::uint64_t> bytes_of_stored(dtype type, const shape& dims,
                                                             std::optional<std::uint64_t> rows = std::nullopt) {
  std::uint64_t bytes = size_of(type);
  for (std::size_t d = 0; d < dims.rank(); ++d) {
    const auto n = d == 0 && rows ? *rows : static_cast<std::uint64_t>(dims[d]);
    if (__builtin_mul_overflow(bytes, n, &bytes)) return std::nullopt;
  }
  return bytes;
}

/// Walks through one JSON document of known form. Anything else is an archive_error with its byte.
class json_walk {
 public:
  /// `begin`: the byte of the object where the text begins.
  json_walk(std::string_view text, std::uint64_t begin, const std::string& object)
      : text_(text), begin_(begin), object_(object) {
    text::json_scan scan(text);
    if (!scan.document()) {
      at_ = scan.at();
      refuse(std::string("not JSON: ") + scan.reason());
    }
  }
  [[noreturn]] void refuse(const std::string& reason, const std::string& key = {}) const {
    throw archive_error("safetensors: " + reason, where{object_, begin_ + at_, key});
  }
  bool take(char c) {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr) ++at_;
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void need(char c) {
    if (!take(c)) refuse(std::string("expected '") + c + '\'');
  }
  /// The name of the next member; nullopt at the object's end. `first`: of this object.
  std::optional<std::string> member(bool& first) {
    if (first) need('{');
    if (take('}')) return std::nullopt;
    if (!first) need(',');
    first = false;
    std::string name = string();
    need(':');
    return name;
  }
  std::string string() {
    const std::string_view raw = raw_string();
    if (raw.find('\\') == std::string_view::npos) return std::string(raw.substr(1, raw.size() - 2));
    const auto leaves = text::json_leaves::parse(raw);
    if (!leaves || leaves->all().size() != 1) refuse("a string with an escape that is half of a character");
    return leaves->all().front().second;
  }
  std::vector<std::uint64_t> numbers() {
    std::vector<std::uint64_t> all;
    need('[');
    if (take(']')) return all;
    do {
      take(' ');
      const std::size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
      const auto n = text::parse_decimal<std::uint64_t>(text_.substr(at_, end - at_));
      if (!n) refuse("expected a whole number of 64 bits");
      all.push_back(*n);
      at_ = end;
    } while (take(','));
    need(']');
    return all;
  }
  shape shape_of(const std::vector<std::uint64_t>& extents, const std::string& tensor) const {
    shape dims;
    if (extents.size() > shape::max_rank) refuse("more than 8 dimensions", tensor);
    for (const std::uint64_t n : extents) {
      if (n > INT64_MAX) refuse("the shape is too large", tensor);
      dims.push_back(static_cast<std::int64_t>(n));
    }
    return dims;
  }
  /// Passes over a value.
  void skip() {
    std::size_t depth = 0;
    do {
      if (take('{') || take('[')) {
        ++depth;
      } else if (take('}') || take(']')) {
        --depth;
      } else if (take(',') || take(':')) {
      } else if (at_ < text_.size() && text_[at_] == '"') {
        raw_string();
      } else {
        at_ = std::min(text_.find_first_of(" \t\r\n,:{}[]\"", at_), text_.size());
      }
    } while (depth > 0 && at_ < text_.size());
  }
  /// The name of a file of the folder.
  std::string file_name(const std::string& tensor) {
    std::string file = string();
    if (file.empty() || file.find('/') != std::string::npos) refuse("a file outside of the folder", tensor);
    return file;
  }
  bool at_string() {
    if (!take('"')) return false;
    --at_;
    return true;
  }

 private:
  std::string_view raw_string() {
    if (!at_string()) refuse("expected a string");
    const std::size_t begin = at_++;
    while (text_[at_] != '"') at_ += text_[at_] == '\\' ? 2u : 1u;
    ++at_;
    return text_.substr(begin, at_ - begin);
  }

  std::string_view text_;
  std::uint64_t begin_;
  std::string object_;
  std::size_t at_ = 0;
};

MILLRACE_INLINE void append_quoted(std::string& out, std::string_view text) {
  if (!text::append_json_string(out, text)) throw usage_error("safetensors: a name or text is not UTF-8");
}

MILLRACE_INLINE std::string safetensors_name(std::uint64_t index, std::uint64_t of) {
  const auto digits = [](std::uint64_t n) {
    const std::string text = std::to_string(n);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return "model-" + digits(index) + "-of-" + digits(of) + '.' + "safetensors";
}

MILLRACE_INLINE std::string safetensors_front(std::vector<tensor_slice>& tensors,
                                              const std::vector<std::pair<std::string, std::string>>& metadata) {
  // Readers by DCP_SHARDING_INFO would take no rows for those of another file that begin there.
  std::erase_if(tensors, [](const tensor_slice& t) {
    const shape& dims = t.memory.dims();
    return t.rows != 0 && t.first_row <= t.rows && dims.rank() != 0 && dims[0] == 0;
  });
  std::sort(tensors.begin(), tensors.end(), [](const tensor_slice& a, const tensor_slice& b) {
    return std::make_tuple(size_of(b.memory.type()), std::string_view(a.name)) <
           std::make_tuple(size_of(a.memory.type()), std::string_view(b.name));
  });
  std::vector<std::string_view> names;
  for (const tensor_slice& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw configuration_error("safetensors: two tensors are named \"" + std::string(*twice) + '"');
  }
  std::string sharding;
  std::string list;
  std::uint64_t at = 0;
  for (const tensor_slice& t : tensors) {
    if (t.name == "__metadata__") throw configuration_error("safetensors: no tensor can be named \"__metadata__\"");
    const shape& dims = t.memory.dims();
    const std::uint64_t own = dims.rank() == 0 ? 0 : static_cast<std::uint64_t>(dims[0]);
    if (t.rows != 0 && (dims.rank() == 0 || t.first_row > t.rows || own > t.rows - t.first_row)) {
      throw configuration_error("safetensors: rows " + std::to_string(t.first_row) + " and on of \"" + t.name +
                                "\" are not among its " + std::to_string(t.rows));
    }
    std::string offsets, whole, part;
    for (std::size_t i = 0; i < dims.rank(); ++i) {
      const char* const comma = i == 0 ? "" : ",";
      part += comma + std::to_string(dims[i]);
      offsets += comma + std::to_string(i == 0 && t.rows != 0 ? t.first_row : 0);
      whole += comma + std::to_string(i == 0 && t.rows != 0 ? t.rows : static_cast<std::uint64_t>(dims[i]));
    }
    list += ',';
    append_quoted(list, t.name);
    list += ":{\"dtype\":\"" + stored_name(t.memory.type()) + "\",\"shape\":[" + part + "],\"data_offsets\":[" +
            std::to_string(at) + ',' + std::to_string(at + t.memory.bytes()) + "]}";
    at += t.memory.bytes();
    sharding += sharding.empty() ? '{' : ',';
    append_quoted(sharding, t.name);
    sharding += ":{\"saved_offsets\":[" + offsets + "],\"shape\":[" + whole + "]}";
  }
  const bool parts = std::any_of(tensors.begin(), tensors.end(), [](const tensor_slice& t) { return t.rows != 0; });
  std::string json = "{\"__metadata__\":{\"format\":\"pt\"";
  if (parts) {
    json += ",\"DCP_SHARDING_INFO\":";
    append_quoted(json, sharding + '}');
  }
  for (const auto& [key, value] : metadata) {
    json += ',';
    append_quoted(json, key);
    json += ':';
    append_quoted(json, value);
  }
  json += '}' + list + '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > safetensors_header::longest) throw configuration_error("safetensors: the header is too long");
  std::string front;
  append_le(front, json.size(), 8);
  return front + json;
}

MILLRACE_COROUTINE async_generator<bytes> tensor_pieces(std::string front, std::vector<tensor_slice> tensors) {
  bytes head = bytes::copy(front);
  co_yield give(head);
  for (const tensor_slice& t : tensors) {
    const bytes all = array(t.memory, nullptr).memory();
    for (std::size_t at = 0; at < all.size(); at += 8 * MiB) {
      bytes piece = all.slice(at, std::min<std::size_t>(all.size() - at, 8 * MiB));
      co_yield give(piece);
    }
  }
}

MILLRACE_COROUTINE_BODY task<std::string> put_tensors(std::shared_ptr<const storage> to, std::string url,
                                                      std::vector<tensor_slice> tensors,
                                                      std::vector<std::pair<std::string, std::string>> metadata,
                                                      write_options how) {
  require_writing(*to, url, how);
  std::string front = safetensors_front(tensors, metadata);
  std::uint64_t size = front.size();
  for (const tensor_slice& t : tensors) size += t.memory.bytes();
  how.part = std::max<std::size_t>(how.part, static_cast<std::size_t>(size / 9000));
  async_generator<bytes> content = tensor_pieces(std::move(front), std::move(tensors));
  std::string etag = co_await to->put(std::move(url), std::move(content), how);
  co_return std::move(etag);
}

MILLRACE_INLINE std::string headers_for_index(const tensor_files& all, std::string_view folder) {
  const std::vector<stored_tensor>& whole = all.tensors();
  std::string out = "\"millrace_tensors\": [";
  const char* comma = "";
  for (const stored_tensor& t : whole) {
    out += std::exchange(comma, ",") + std::string("\n      [");
    append_quoted(out, t.name);
    out += ",\"" + stored_name(t.type) + "\",[";
    for (std::size_t d = 0; d < t.dims.rank(); ++d) out += (d == 0 ? "" : ",") + std::to_string(t.dims[d]);
    out += "]]";
  }
  out += "\n    ],\n    \"millrace_files\": [";
  comma = "";
  for (const tensor_files::file& f : all.files()) {
    const std::vector<stored_tensor>& in = f.header.tensors;
    const std::uint64_t size = f.object.size.value_or(0);
    out += std::exchange(comma, ",") + std::string("\n      [");
    append_quoted(out, std::string_view(f.object.url).substr(folder.size()));
    out += ',';
    append_quoted(out, f.object.etag);
    out += ",\"" + f.digest + "\",[" + std::to_string(size) + ',' + std::to_string(in.empty() ? size : in[0].begin);
    for (const stored_tensor& t : in) {
      out += ',' + std::to_string(all.find(t.name) - whole.data()) + ',' + std::to_string(t.first_row) + ',';
      out += std::to_string(t.dims.rank() == 0 ? 0 : t.dims[0]);
    }
    out += "]]";
  }
  return out + "\n    ]";
}

/// "millrace_tensors": see headers_for_index().
MILLRACE_INLINE std::vector<stored_tensor> tensors_of_index(json_walk& walk) {
  std::vector<stored_tensor> all;
  walk.need('[');
  while (!walk.take(']')) {
    if (!all.empty()) walk.need(',');
    stored_tensor t;
    walk.need('[');
    t.name = walk.string();
    walk.need(',');
    const std::optional<dtype> type = type_of_stored(walk.string());
    if (!type) walk.refuse("no tensor here has its type", t.name);
    t.type = *type;
    walk.need(',');
    t.dims = walk.shape_of(walk.numbers(), t.name);
    walk.need(']');
    t.rows = t.dims.rank() == 0 ? 0 : static_cast<std::uint64_t>(t.dims[0]);
    all.push_back(std::move(t));
  }
  return all;
}

/// "millrace_files": see headers_for_index().
MILLRACE_INLINE std::vector<tensor_files::file> files_of_index(json_walk& walk, const std::vector<stored_tensor>& whole,
                                                               const std::string& folder) {
  std::vector<tensor_files::file> all;
  walk.need('[');
  while (!walk.take(']')) {
    if (!all.empty()) walk.need(',');
    tensor_files::file f;
    walk.need('[');
    const std::string name = walk.file_name({});
    f.object = shard(folder + name);
    walk.need(',');
    f.object.etag = walk.string();
    walk.need(',');
    f.digest = walk.string();
    walk.need(',');
    const std::vector<std::uint64_t> n = walk.numbers();
    walk.need(']');
    if (n.size() % 3 != 2) walk.refuse("a file without its numbers", name);
    f.object.size = n[0];
    std::uint64_t at = n[1];
    for (std::size_t i = 2; i < n.size(); i += 3) {
      if (n[i] >= whole.size()) walk.refuse("a tensor that is not in the list", name);
      stored_tensor t = whole[static_cast<std::size_t>(n[i])];
      if (n[i + 1] > t.rows || n[i + 2] > t.rows - n[i + 1]) walk.refuse("rows that the tensor does not have", name);
      const std::optional<std::uint64_t> bytes = bytes_of_stored(t.type, t.dims, n[i + 2]);
      t.begin = at;
      if (!bytes || __builtin_add_overflow(at, *bytes, &at)) walk.refuse("the shape is too large", name);
      t.end = at;
      t.first_row = n[i + 1];
      if (t.dims.rank() != 0) {
        shape own = shape().with_outer(static_cast<std::int64_t>(n[i + 2]));
        for (std::size_t d = 1; d < t.dims.rank(); ++d) own.push_back(t.dims[d]);
        t.dims = own;
      }
      f.header.tensors.push_back(std::move(t));
    }
    if (at != n[0]) {
      walk.refuse("tensors of " + std::to_string(at) + " bytes in a file of " + std::to_string(n[0]), name);
    }
    all.push_back(std::move(f));
  }
  return all;
}

MILLRACE_INLINE safetensors_index safetensors_index::parse(std::string_view text, const std::string& folder,
                                                           std::vector<std::string> only) {
  safetensors_index out;
  json_walk walk(text, 0, shown_url(folder + safetensors_index_name));
  std::sort(only.begin(), only.end());
  only.erase(std::unique(only.begin(), only.end()), only.end());
  std::size_t found = 0;
  std::vector<stored_tensor> whole;
  bool first = true;
  bool mapped = false;
  while (std::optional<std::string> name = walk.member(first)) {
    bool within = true;
    if (*name == "weight_map") {
      mapped = true;
      while (std::optional<std::string> tensor = walk.member(within)) {
        std::string file = walk.file_name(*tensor);
        if (!only.empty() && !std::binary_search(only.begin(), only.end(), *tensor)) continue;
        ++found;
        out.names.push_back(std::move(file));
      }
    } else if (*name == "metadata") {
      while (std::optional<std::string> key = walk.member(within)) {
        if (*key == "millrace_state") {
          out.state = walk.string();
        } else if (*key == "millrace_tensors") {
          whole = tensors_of_index(walk);
        } else if (*key == "millrace_files") {
          out.files = files_of_index(walk, whole, folder);
        } else {
          walk.skip();
        }
      }
    } else {
      walk.skip();
    }
  }
  if (!mapped) walk.refuse("an index without a weight_map");
  if (found < only.size()) {
    throw configuration_error("safetensors: the index does not have all of the " + std::to_string(only.size()) +
                                  " tensors that were asked for, but " + std::to_string(found),
                              where{shown_url(folder + safetensors_index_name), std::nullopt, {}});
  }
  std::sort(out.names.begin(), out.names.end());
  out.names.erase(std::unique(out.names.begin(), out.names.end()), out.names.end());
  return out;
}

MILLRACE_COROUTINE_BODY task<tensor_files::file> read_front(std::shared_ptr<const storage> from, std::string url) {
  tensor_files::file out;
  out.object = shard(std::move(url));
  const std::string shown = out.object.shown();
  range_reader reader(from);
  std::string text;
  std::uint64_t wanted = 64 * KiB;
  while (text.size() < wanted) {
    const std::size_t length = static_cast<std::size_t>(std::min<std::uint64_t>(wanted - text.size(), 8 * MiB));
    const auto how = text.empty() ? range_reader::by::read_small : range_reader::by::read;
    const storage::part p = co_await reader.read(out.object, text.size(), length, std::nullopt, how);
    if (p.rest || !out.object.size) {
      throw configuration_error("safetensors: the store does not serve ranges", where{shown, std::nullopt, {}});
    }
    const bool first = text.empty();
    text += p.data.view();
    if (first) {
      if (text.size() < 8) throw archive_error("safetensors: the file is shorter than 8 bytes", where{shown, 0, {}});
      const std::uint64_t json = read_le(text, 0, 8);
      if (json > safetensors_header::longest || json > *out.object.size - 8) {
        throw archive_error("safetensors: the header says that it has " + std::to_string(json) +
                                " bytes, more than the file or than 100000000",
                            where{shown, 0, {}});
      }
      wanted = 8 + json;
    }
    if (p.data.empty()) break;
  }
  out.header = safetensors_header::parse(text, *out.object.size, shown);
  hasher128 hash;
  hash.add(std::string_view(text).substr(0, static_cast<std::size_t>(wanted)));
  out.digest = hash.value().text();
  co_return std::move(out);
}

/// An index: 8 MiB of it, and the rest by three requests at most, so that opening costs as many at any number of files.
MILLRACE_COROUTINE task<std::string> text_of_index(std::shared_ptr<const storage> from, std::string url) {
  shard object(std::move(url));
  range_reader reader(std::move(from));
  std::string text;
  std::uint64_t length = 8 * MiB;
  do {
    slab_pool pool(static_cast<std::size_t>(length));
    const storage::part p = co_await reader.read(object, text.size(), static_cast<std::size_t>(length), pool);
    if (p.rest || !object.size) {
      throw configuration_error("safetensors: the store does not serve ranges",
                                where{object.shown(), std::nullopt, {}});
    }
    text += p.data.view();
    if (text.size() == 8 * MiB) length = (*object.size - text.size() + 2) / 3;
  } while (text.size() < *object.size);
  co_return std::move(text);
}

MILLRACE_COROUTINE_BODY task<tensor_files> open_tensors(std::shared_ptr<const storage> from, std::string url,
                                                        std::vector<std::string> only) {
  std::vector<task<tensor_files::file>> reads;
  safetensors_index index;
  if (!url.empty() && url.back() == '/') {
    const std::string text = co_await text_of_index(from, url + safetensors_index_name);
    index = safetensors_index::parse(text, url, std::move(only));
    if (index.files.empty()) {
      for (const std::string& name : index.names) reads.push_back(read_front(from, url + name));
    }
  } else {
    reads.push_back(read_front(from, url));
  }
  const bool by_index = !index.files.empty();
  if (!by_index) index.files = co_await all_of(std::move(reads));
  tensor_files out(std::move(from), std::move(index.files), std::move(index.state), by_index);
  co_return std::move(out);
}

/// Bytes of a file, and their place in the program's memory.
struct wanted_bytes {
  std::size_t file = 0;
  std::uint64_t begin = 0;
  std::size_t length = 0;
  char* to = nullptr;
};

/// A request: one stretch, read into place, or several short ones.
struct wanted_request {
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t length = 0;
};

/// The program's memory; a second slab, while the first one is in use, is from the heap.
class memory_in_place final : public slab_source {
 public:
  explicit memory_in_place(char* at) noexcept : at_(at) {}
  MILLRACE_INLINE void* allocate(std::size_t size) override {
    if (!std::exchange(lent_, true)) return at_;
    void* const made = std::malloc(size);
    if (made == nullptr) throw std::bad_alloc();
    return made;
  }
  void free(void* memory, std::size_t) noexcept override {
    if (memory != at_) std::free(memory);
  }

 private:
  char* const at_;
  bool lent_ = false;
};

/// Copies to a device from memory that is kept until they are done. Its end waits for those that are on their way.
class device_copies {
 public:
  device_copies(slot_device& on, bytes from) : on_(on), from_(std::move(from)), done_(on.make_event()) {}
  device_copies(const device_copies&) = delete;
  device_copies& operator=(const device_copies&) = delete;
  ~device_copies() {
    if (!pending_) return;
    static_cast<void>(attempt_twice([this] {
      on_.record(done_);  // a copy may have thrown before it was recorded
      on_.synchronize(done_);
    }));
  }
  void add(char* to, const char* from, std::size_t n) {
    pending_ = true;
    on_.copy_to_device(to, from, n);
  }
  void record() { on_.record(done_); }
  bool done() {
    pending_ = pending_ && !on_.query(done_);
    return !pending_;
  }

 private:
  slot_device& on_;
  const bytes from_;
  const slot_device::object done_;
  bool pending_ = false;
};

class tensor_loading {
 public:
  std::shared_ptr<slot_device> device;  // null: the memory is the host's
  std::optional<slab_pool> staging;     // page-locked, for a device
  std::vector<shard> objects;
  std::vector<wanted_bytes> pieces;
  std::vector<wanted_request> requests;
  std::size_t next = 0;
  std::exception_ptr failure;  // the first
  bool changed = false;        // it is a changed_error

  /// Looks at the files, whose headers an index has, and reads on from what they are now. changed_error if a header is
  /// another one.
  MILLRACE_COROUTINE task<void> confirm(std::shared_ptr<const storage> from, const tensor_files& by);

  void plan() {
    std::sort(pieces.begin(), pieces.end(), [](const wanted_bytes& a, const wanted_bytes& b) {
      return std::make_pair(a.file, a.begin) < std::make_pair(b.file, b.begin);
    });
    std::vector<wanted_bytes> cut;
    for (const wanted_bytes& p : pieces) {
      const bool joins = !cut.empty() && p.length < MiB && cut.back().length < MiB && cut.back().file == p.file &&
                         p.begin >= cut.back().begin + cut.back().length &&
                         p.begin - (cut.back().begin + cut.back().length) <= 64 * KiB &&
                         p.begin + p.length - cut[requests.back().first].begin <= 8 * MiB;
      if (joins) {
        cut.push_back(p);
        ++requests.back().count;
        requests.back().length = static_cast<std::size_t>(p.begin + p.length - cut[requests.back().first].begin);
        continue;
      }
      for (std::size_t at = 0; at < p.length; at += 8 * MiB) {
        const std::size_t length = std::min<std::size_t>(p.length - at, 8 * MiB);
        requests.push_back(wanted_request{cut.size(), 1, length});
        cut.push_back(wanted_bytes{p.file, p.begin + at, length, p.to + at});
      }
    }
    pieces = std::move(cut);
  }
};

MILLRACE_COROUTINE_BODY task<void> tensor_loading::confirm(std::shared_ptr<const storage> from,
                                                           const tensor_files& by) {
  std::vector<std::size_t> which;
  std::vector<task<tensor_files::file>> reads;
  for (const wanted_bytes& p : pieces) {  // sorted by their files
    if (!which.empty() && which.back() == p.file) continue;
    which.push_back(p.file);
    reads.push_back(read_front(from, by.files()[p.file].object.url));
  }
  std::vector<tensor_files::file> now = co_await all_of(std::move(reads));
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].digest != by.files()[which[i]].digest) {
      throw changed_error("safetensors: the file is not the one that was committed: another save has written it",
                          where{now[i].object.shown(), 0, {}});
    }
    objects[which[i]] = std::move(now[i].object);
  }
}

MILLRACE_COROUTINE task<void> load_one(range_reader& reader, tensor_loading& all, wanted_request r) {
  const wanted_bytes front = all.pieces[r.first];
  shard& object = all.objects[front.file];
  std::shared_ptr<slab_source> memory;
  if (r.count == 1) memory = std::make_shared<memory_in_place>(front.to);
  slab_pool pool = all.staging ? *all.staging : memory ? slab_pool(r.length, std::move(memory)) : slab_pool(r.length);
  const storage::part p = co_await reader.read(object, front.begin, r.length, pool.uncompared());
  if (p.rest || p.data.size() != r.length) {
    throw archive_error("safetensors: the store sent another range than was asked for",
                        where{object.shown(), front.begin, {}});
  }
  std::optional<device_copies> copies;
  if (all.device) copies.emplace(*all.device, p.data);
  for (std::size_t i = r.first; i < r.first + r.count; ++i) {
    const wanted_bytes& each = all.pieces[i];
    const char* const from = p.data.data() + (each.begin - front.begin);
    if (copies) {
      copies->add(each.to, from, each.length);
    } else if (from != each.to) {
      std::memcpy(each.to, from, each.length);
    }
  }
  if (!copies) co_return;
  copies->record();
  constexpr duration last_look = std::chrono::milliseconds(1);
  for (duration pause = std::chrono::microseconds(50); !copies->done(); pause = std::min(pause * 2, last_look)) {
    co_await sleep_for(pause);
  }
}

/// Reads requests until none is left or one has failed.
MILLRACE_COROUTINE task<void> load_in_turn(range_reader& reader, tensor_loading& all) {
  while (all.next < all.requests.size() && all.failure == nullptr) {
    const wanted_request r = all.requests[all.next++];
    std::exception_ptr failure;
    bool changed = false;
    try {
      co_await load_one(reader, all, r);
    } catch (const changed_error&) {
      failure = std::current_exception();
      changed = true;
    } catch (...) {  // the others end first: they write to the program's memory
      failure = std::current_exception();
    }
    if (failure == nullptr || all.failure != nullptr) continue;
    all.failure = std::move(failure);
    all.changed = changed;
  }
}

}  // namespace millrace::inline MILLRACE_ABI::detail

namespace millrace::inline MILLRACE_ABI {

MILLRACE_INLINE safetensors_header safetensors_header::parse(std::string_view front, std::uint64_t file_bytes,
                                                             const std::string& object) {
  safetensors_header out;
  if (front.size() < 8) throw archive_error("safetensors: the file is shorter than 8 bytes", where{object, 0, {}});
  const std::uint64_t length = detail::read_le(front, 0, 8);
  if (length > longest || length > front.size() - 8) {
    throw archive_error("safetensors: a header of " + std::to_string(length) + " bytes, of which " +
                            std::to_string(front.size() - 8) + " are there (100000000 are the most)",
                        where{object, 0, {}});
  }
  const std::uint64_t data = 8 + length;
  detail::json_walk walk(front.substr(8, static_cast<std::size_t>(length)), 8, object);
  std::string sharding;
  bool first = true;
  bool metadata_seen = false;
  while (std::optional<std::string> name = walk.member(first)) {
    bool within = true;
    if (*name == "__metadata__") {
      if (std::exchange(metadata_seen, true)) walk.refuse("two members are named \"__metadata__\"");
      while (std::optional<std::string> key = walk.member(within)) {
        std::string value = walk.string();
        if (*key == "DCP_SHARDING_INFO") sharding = value;
        out.metadata.emplace_back(std::move(*key), std::move(value));
      }
      continue;
    }
    stored_tensor t;
    t.name = std::move(*name);
    std::optional<dtype> type;
    std::optional<std::vector<std::uint64_t>> dims, offsets;
    while (std::optional<std::string> key = walk.member(within)) {
      if (*key == "dtype" && !type) {
        const std::string spelled = walk.string();
        type = detail::type_of_stored(spelled);
        if (!type) walk.refuse("no tensor here has the type \"" + spelled + '"', t.name);
      } else if (*key == "shape" && !dims) {
        dims = walk.numbers();
      } else if (*key == "data_offsets" && !offsets) {
        offsets = walk.numbers();
      } else {
        walk.refuse("a member that no tensor has, or has twice: " + *key, t.name);
      }
    }
    if (!type || !dims || !offsets || offsets->size() != 2) {
      walk.refuse("a tensor without dtype, shape or two data_offsets", t.name);
    }
    t.dims = walk.shape_of(*dims, t.name);
    const std::optional<std::uint64_t> bytes = detail::bytes_of_stored(*type, t.dims);
    if (!bytes) walk.refuse("the shape is too large", t.name);
    if ((*offsets)[0] > (*offsets)[1] || (*offsets)[1] > UINT64_MAX - data || (*offsets)[1] - (*offsets)[0] != *bytes) {
      walk.refuse("data_offsets that are not " + std::to_string(*bytes) + " bytes, as type and shape say", t.name);
    }
    t.type = *type;
    t.begin = data + (*offsets)[0];
    t.end = data + (*offsets)[1];
    out.tensors.push_back(std::move(t));
  }
  const auto by_name = [](const stored_tensor& a, const stored_tensor& b) { return a.name < b.name; };
  std::sort(out.tensors.begin(), out.tensors.end(), by_name);
  for (std::size_t i = 1; i < out.tensors.size(); ++i) {
    if (out.tensors[i].name == out.tensors[i - 1].name) walk.refuse("two tensors of one name", out.tensors[i].name);
  }
  if (!sharding.empty()) {
    detail::json_walk rows(sharding, 8, object);
    first = true;
    while (std::optional<std::string> name = rows.member(first)) {
      stored_tensor key;
      key.name = std::move(*name);
      const auto t = std::lower_bound(out.tensors.begin(), out.tensors.end(), key, by_name);
      const bool known = t != out.tensors.end() && t->name == key.name;
      bool within = true;
      while (std::optional<std::string> member = rows.member(within)) {
        if (*member != "saved_offsets" && *member != "shape") {
          rows.skip();
          continue;
        }
        const std::vector<std::uint64_t> all = rows.numbers();
        if (!known || all.size() != t->dims.rank()) rows.refuse("a place of no tensor", key.name);
        for (std::size_t i = 0; i < all.size(); ++i) {
          const bool same = all[i] == (*member == "shape" ? static_cast<std::uint64_t>(t->dims[i]) : 0);
          if (i > 0 && !same) rows.refuse("the tensor is cut along another dimension than its first", key.name);
          if (i == 0 && all[0] > INT64_MAX) rows.refuse("a row beyond all", key.name);
        }
        if (!all.empty()) (*member == "shape" ? t->rows : t->first_row) = all[0];
      }
    }
  }
  std::sort(out.tensors.begin(), out.tensors.end(), [](const stored_tensor& a, const stored_tensor& b) {
    return std::make_pair(a.begin, a.end) < std::make_pair(b.begin, b.end);
  });
  std::uint64_t at = data;
  for (const stored_tensor& t : out.tensors) {
    if (t.begin != at) {
      throw archive_error(
          t.begin < at ? "safetensors: the tensor overlaps the one before it" : "safetensors: a hole before the tensor",
          where{object, t.begin, t.name});
    }
    at = t.end;
  }
  if (at != file_bytes) {
    throw archive_error(
        "safetensors: the data ends at byte " + std::to_string(at) + " of a file of " + std::to_string(file_bytes),
        where{object, std::min(at, file_bytes), {}});
  }
  return out;
}

MILLRACE_INLINE tensor_files::tensor_files(std::shared_ptr<const storage> from, std::vector<file> all,
                                           std::string state, bool by_index)
    : store_(std::move(from)), files_(std::move(all)), state_(std::move(state)), by_index_(by_index) {
  for (std::size_t f = 0; f < files_.size(); ++f) {
    for (std::size_t t = 0; t < files_[f].header.tensors.size(); ++t) {
      parts_.emplace_back();
      parts_.back().file = f;
      parts_.back().tensor = t;
    }
  }
  std::sort(parts_.begin(), parts_.end(), [this](const part& a, const part& b) {
    const int names = stored(a).name.compare(stored(b).name);
    return names != 0 ? names < 0 : stored(a).first_row < stored(b).first_row;
  });
  for (std::size_t i = 0; i < parts_.size();) {
    const stored_tensor& front = stored(parts_[i]);
    stored_tensor whole = front;
    std::uint64_t rows = 0;
    std::uint64_t total = front.rows;
    const auto refuse = [&](const part& p, const char* reason) {
      throw archive_error(std::string("safetensors: ") + reason,
                          where{files_[p.file].object.shown(), stored(p).begin, stored(p).name});
    };
    for (bool first = true; i < parts_.size() && stored(parts_[i]).name == whole.name; ++i, first = false) {
      const stored_tensor& t = stored(parts_[i]);
      shape like = t.dims.rank() == 0 ? shape() : shape().with_outer(front.dims[0]);
      for (std::size_t d = 1; d < t.dims.rank(); ++d) like.push_back(t.dims[d]);
      if (t.type != front.type || t.rows != total || t.dims.rank() != front.dims.rank() || !(like == front.dims)) {
        refuse(parts_[i], "rows of another type or shape than those in another file");
      }
      if (t.first_row != rows || (!first && t.dims.rank() == 0)) {
        refuse(parts_[i], t.first_row > rows ? "rows of the tensor are in no file" : "the tensor is in two files");
      }
      rows += t.dims.rank() == 0 ? 0 : static_cast<std::uint64_t>(t.dims[0]);
    }
    if (total != 0 && rows != total) refuse(parts_[i - 1], "the last rows of the tensor are in no file");
    if (whole.dims.rank() > 0) {
      shape dims = shape().with_outer(static_cast<std::int64_t>(rows));
      for (std::size_t d = 1; d < front.dims.rank(); ++d) dims.push_back(front.dims[d]);
      whole.dims = dims;
    }
    whole.begin = whole.end = whole.rows = 0;
    tensors_.push_back(std::move(whole));
  }
}

MILLRACE_INLINE const stored_tensor* tensor_files::find(std::string_view name) const noexcept {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const stored_tensor& t, std::string_view n) { return t.name < n; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

MILLRACE_COROUTINE_BODY task<void> tensor_files::load(std::vector<tensor_slice> into) const {
  return load_to(std::move(into), nullptr);
}

MILLRACE_COROUTINE_BODY task<void> tensor_files::load_to(std::vector<tensor_slice> into,
                                                         std::shared_ptr<detail::slot_device> on) const {
  detail::tensor_loading all;
  for (const file& f : files_) all.objects.push_back(f.object);
  for (const tensor_slice& want : into) {
    const stored_tensor* const t = find(want.name);
    if (t == nullptr) throw configuration_error("safetensors: there is no tensor \"" + want.name + '"');
    const shape& dims = want.memory.dims();
    const std::uint64_t rows = dims.rank() == 0 ? 1 : static_cast<std::uint64_t>(dims[0]);
    const std::uint64_t there = t->dims.rank() == 0 ? 1 : static_cast<std::uint64_t>(t->dims[0]);
    bool same = dims.rank() == t->dims.rank() && want.memory.type() == t->type;
    for (std::size_t d = 1; same && d < dims.rank(); ++d) same = dims[d] == t->dims[d];
    if (!same || want.first_row > there || rows > there - want.first_row) {
      throw configuration_error("safetensors: \"" + want.name + "\" is stored as " + name_of(t->type) + ' ' +
                                t->dims.text() + ", and rows from " + std::to_string(want.first_row) + " on were " +
                                "wanted as " + name_of(want.memory.type()) + ' ' + dims.text());
    }
    if (want.memory.bytes() == 0) continue;
    const std::uint64_t row = want.memory.bytes() / rows;
    auto p = std::lower_bound(parts_.begin(), parts_.end(), want.name,
                              [this](const part& each, const std::string& name) { return stored(each).name < name; });
    for (; p != parts_.end() && stored(*p).name == want.name; ++p) {
      const stored_tensor& s = stored(*p);
      const std::uint64_t own = (s.end - s.begin) / row;
      const std::uint64_t begin = std::max(s.first_row, want.first_row);
      const std::uint64_t end = std::min(s.first_row + own, want.first_row + rows);
      if (begin >= end) continue;
      char* const to = static_cast<char*>(want.memory.data()) + (begin - want.first_row) * row;
      all.pieces.push_back(detail::wanted_bytes{p->file, s.begin + (begin - s.first_row) * row,
                                                static_cast<std::size_t>((end - begin) * row), to});
    }
  }
  all.plan();
  if (on) {
    std::size_t longest = 0;
    for (const detail::wanted_request& r : all.requests) longest = std::max(longest, r.length);
    if (longest != 0) all.staging.emplace(longest, on);
    all.device = std::move(on);
  }
  detail::range_reader reader(store_);
  bool unconfirmed = by_index_;
  bool looks = unconfirmed && std::any_of(all.pieces.begin(), all.pieces.end(), [&all](const detail::wanted_bytes& p) {
                 return all.objects[p.file].etag.empty();
               });
  do {
    if (looks) {
      co_await all.confirm(store_, *this);
      unconfirmed = false;
    }
    all.failure = nullptr;
    all.next = 0;
    std::vector<task<void>> workers;
    while (workers.size() < std::min<std::size_t>(16, all.requests.size())) {
      workers.push_back(detail::load_in_turn(reader, all));
    }
    co_await all_of(std::move(workers));
    looks = unconfirmed && all.failure != nullptr && all.changed;
  } while (looks);
  if (all.failure != nullptr) std::rethrow_exception(all.failure);
}

}  // namespace millrace::inline MILLRACE_ABI
