// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What a training loop includes: sources, stages, batches, run(). Needs the components s3 and tar. Not in it, each
/// with a header of its own: images of any format and size (decode/decode_images.hpp), one JPEG at a time
/// (decode/jpeg_decoder.hpp, decode/labelled_image.hpp), labels (decode/parse_label.hpp, decode/json.hpp), recordings
/// (decode/decode_audio.hpp), arrays (decode/decode_arrays.hpp), batches of about one length
/// (flow/bucket_by_length.hpp), CUDA (millrace_cuda.hpp), web servers (shards/http_storage.hpp), reads that are asked
/// for twice (shards/hedged_storage.hpp), data that stay in memory (shards/resident_storage.hpp), where S3's settings
/// came from (s3/auth/explain.hpp), epochs (feed/epochs.hpp) and all else of feed/, plain tars without libarchive
/// (shards/untar_plain.hpp), writing tars (tar/writer.hpp), generators for tests and examples (flow/iota.hpp,
/// flow/generate.hpp, flow/collect.hpp). Programs that need less include the parts themselves.

#include <millrace/base/compiler.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/device/host_device.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/concat.hpp>
#include <millrace/flow/filter.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/from_range.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/merge.hpp>
#include <millrace/flow/mix.hpp>
#include <millrace/flow/named.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/stream.hpp>
#include <millrace/flow/take.hpp>
#include <millrace/flow/zip.hpp>
#include <millrace/io/cpu_pool.hpp>
#include <millrace/io/sleep.hpp>
#include <millrace/loader/rank_from_environment.hpp>
#include <millrace/loader/run.hpp>
#include <millrace/loader/runtime.hpp>
#include <millrace/loop/make_event_loop.hpp>
#include <millrace/records/lines.hpp>
#include <millrace/s3/client.hpp>
#include <millrace/shards/fetch.hpp>
#include <millrace/shards/file_storage.hpp>
#include <millrace/shards/group_samples.hpp>
#include <millrace/shards/s3_storage.hpp>
#include <millrace/shards/shards.hpp>
#include <millrace/shards/shuffle_shards.hpp>
#include <millrace/shards/storage_set.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/version.hpp>
