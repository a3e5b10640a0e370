// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The header of a training loop: sources, stages, batches, run(). Needs the components s3 and tar. Not in it, each
/// with a header of its own: images (decode/decode_images.hpp; decode/image_decoder.hpp for one at a time), labels
/// (decode/parse_label.hpp), recordings (decode/decode_audio.hpp), videos (decode/decode_video.hpp), arrays
/// (decode/decode_arrays.hpp), batches of about one length (flow/bucket_by_length.hpp), CUDA (millrace_cuda.hpp), web
/// servers (shards/http_storage.hpp), the Hugging Face Hub (shards/hub_storage.hpp), data that stay in memory
/// (shards/resident_storage.hpp), where S3's settings came from (s3/auth/explain.hpp), epochs (train.hpp) and all else
/// of train/, plain tars without libarchive (shards/untar_plain.hpp), writing tars (tar/writer.hpp). Programs that need
/// less include the parts themselves.

#include <millrace/base/compiler.hpp>
#include <millrace/base/rng.hpp>
#include <millrace/base/units.hpp>
#include <millrace/coro/async_generator.hpp>
#include <millrace/coro/block_on.hpp>
#include <millrace/coro/task.hpp>
#include <millrace/device/device.hpp>
#include <millrace/device/fill_batches.hpp>
#include <millrace/device/to_device.hpp>
#include <millrace/flow/batch.hpp>
#include <millrace/flow/buffer.hpp>
#include <millrace/flow/combine.hpp>
#include <millrace/flow/flat_map.hpp>
#include <millrace/flow/interleave.hpp>
#include <millrace/flow/map.hpp>
#include <millrace/flow/map_concurrent.hpp>
#include <millrace/flow/pipe.hpp>
#include <millrace/flow/shuffle.hpp>
#include <millrace/flow/sources.hpp>
#include <millrace/flow/stream.hpp>
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
#include <millrace/shards/storage_set.hpp>
#include <millrace/shards/untar.hpp>
#include <millrace/version.hpp>
