// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include <archive.h>
#include <archive_entry.h>

namespace millrace::test {

struct packed_file {
  std::string name;
  std::string body;
  unsigned type = AE_IFREG;
};

/// Compresses with libarchive's own filter: "gzip", "bzip2", "xz", "zstd", "lz4".
inline std::string compress(const std::string& filter, const std::string& text, const char* options = nullptr) {
  std::vector<char> memory(text.size() * 2 + 1000000);
  std::size_t used = 0;
  archive* a = archive_write_new();
  archive_write_set_format_raw(a);
  archive_write_set_bytes_per_block(a, 0);
  const bool known = archive_write_add_filter_by_name(a, filter.c_str()) == ARCHIVE_OK &&
                     (options == nullptr || archive_write_set_options(a, options) == ARCHIVE_OK);
  archive_entry* e = archive_entry_new();
  archive_entry_set_filetype(e, AE_IFREG);
  const bool written = known && archive_write_open_memory(a, memory.data(), memory.size(), &used) == ARCHIVE_OK &&
                       archive_write_header(a, e) == ARCHIVE_OK &&
                       archive_write_data(a, text.data(), text.size()) == static_cast<la_ssize_t>(text.size()) &&
                       archive_write_close(a) == ARCHIVE_OK;
  archive_entry_free(e);
  archive_write_free(a);
  if (!written) throw std::runtime_error("cannot compress by " + filter);
  return std::string(memory.data(), used);
}

/// Packs by libarchive's own writer: "zip", or "newc", "odc" and "bin" (all cpio).
inline std::string pack(const std::string& format, const std::vector<packed_file>& files,
                        const char* options = nullptr) {
  std::size_t most = 100000;
  for (const packed_file& f : files) most += 2 * f.body.size();
  std::vector<char> memory(most);
  std::size_t used = 0;
  archive* a = archive_write_new();
  archive_write_set_bytes_per_block(a, 0);
  bool good = archive_write_set_format_by_name(a, format.c_str()) == ARCHIVE_OK &&
              (options == nullptr || archive_write_set_options(a, options) == ARCHIVE_OK) &&
              archive_write_open_memory(a, memory.data(), memory.size(), &used) == ARCHIVE_OK;
  for (const packed_file& f : files) {
    archive_entry* e = archive_entry_new();
    archive_entry_set_pathname(e, f.name.c_str());
    archive_entry_set_filetype(e, f.type);
    archive_entry_set_perm(e, 0644);
    archive_entry_set_mtime(e, 1700000000, 0);
    if (f.type == AE_IFLNK) {
      archive_entry_set_symlink(e, f.body.c_str());
      archive_entry_set_size(e, 0);
    } else {
      archive_entry_set_size(e, static_cast<la_int64_t>(f.body.size()));
    }
    good = good && archive_write_header(a, e) == ARCHIVE_OK;
    if (f.type == AE_IFREG && !f.body.empty()) {
      good = good && archive_write_data(a, f.body.data(), f.body.size()) == static_cast<la_ssize_t>(f.body.size());
    }
    archive_entry_free(e);
  }
  good = good && archive_write_close(a) == ARCHIVE_OK;
  archive_write_free(a);
  if (!good) throw std::runtime_error("cannot pack as " + format);
  return std::string(memory.data(), used);
}

}  // namespace millrace::test
