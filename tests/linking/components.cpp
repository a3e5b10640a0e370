// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Compiled once with the components s3 and tar and once without, by check_linking.py; PART names its function.
#include <millrace/formats/mds.hpp>
#include <millrace/index/detail/text_frames.hpp>

#include <cstdio>

/// 1 if hashes are compared, and 2 more if frames of gzip are unpacked.
int PART() {
  int found = millrace::detail::make_mds_hash("sha1") != nullptr ? 1 : 0;
  try {
    millrace::detail::make_frame_unpacker(millrace::tar::format::gzip, millrace::shard("a.gz"));
    found += 2;
  } catch (const millrace::configuration_error&) {
  }
  return found;
}

#if defined(OTHER)
int OTHER();
int main() { std::printf("%d %d\n", PART(), OTHER()); }
#elif defined(ALONE)
int main() { std::printf("%d\n", PART()); }
#endif
