// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Every body that is no template, compiled once: the CMake target millrace::compiled builds this file, and so does a
// program without CMake (docs/guide/compiling.md). Beside the bodies of the core it has those of each component whose
// MILLRACE_WITH_<COMPONENT> is defined: by the component's CMake target, and by its pkg-config file. Everything else of
// the program is compiled with the same ones and with MILLRACE_SEPARATE_COMPILATION.

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#define MILLRACE_SEPARATE_COMPILATION
#endif

#include <millrace/base/compiler.hpp>

MILLRACE_QUIET_FRAMES

#include <millrace/base/environment.ipp>
#include <millrace/base/error.ipp>
#include <millrace/base/log.ipp>
#include <millrace/base/running_crc.ipp>
#include <millrace/cache/cache_folder.ipp>
#include <millrace/cache/disk_slots.ipp>
#include <millrace/coro/async_generator.ipp>
#include <millrace/coro/detail/log.ipp>
#include <millrace/coro/executor.ipp>
#include <millrace/coro/root_scope.ipp>
#include <millrace/coro/run_context.ipp>
#include <millrace/coro/stage_record.ipp>
#include <millrace/decode/array.ipp>
#include <millrace/decode/augment.ipp>
#include <millrace/decode/detail/image_source.ipp>
#include <millrace/decode/detail/sound_parts.ipp>
#include <millrace/decode/image_decoder.ipp>
#include <millrace/decode/write_image.ipp>
#include <millrace/device/batch.ipp>
#include <millrace/device/batch_pool.ipp>
#include <millrace/device/batch_rows.ipp>
#include <millrace/device/collate.ipp>
#include <millrace/device/detail/slots.ipp>
#include <millrace/device/fill_batches.ipp>
#include <millrace/device/normalise_images.ipp>
#include <millrace/device/slot_store.ipp>
#include <millrace/device/to_device.ipp>
#include <millrace/flow/bucket_by_length.ipp>
#include <millrace/flow/detail/compactor.ipp>
#include <millrace/flow/failure_policy.ipp>
#include <millrace/flow/stream.ipp>
#include <millrace/formats/array_shards.ipp>
#include <millrace/formats/detail/matroska_file.ipp>
#include <millrace/formats/detail/mp4_file.ipp>
#include <millrace/formats/detail/record_scanner.ipp>
#include <millrace/formats/detail/video_clips.ipp>
#include <millrace/formats/index_shard.ipp>
#include <millrace/formats/line_shards.ipp>
#include <millrace/formats/mds.ipp>
#include <millrace/formats/object_samples.ipp>
#include <millrace/formats/recordio_shards.ipp>
#include <millrace/formats/safetensors.ipp>
#include <millrace/formats/shard_format.ipp>
#include <millrace/formats/tar_shards.ipp>
#include <millrace/formats/tfrecord_shards.ipp>
#include <millrace/formats/video_shards.ipp>
#include <millrace/http/detail/addresses.ipp>
#include <millrace/index/detail/index_parts.ipp>
#include <millrace/index/detail/indexed_object.ipp>
#include <millrace/index/detail/listing_file.ipp>
#include <millrace/index/detail/sample_choice.ipp>
#include <millrace/index/detail/text_frames.ipp>
#include <millrace/index/sample_index_builder.ipp>
#include <millrace/index/shard_index.ipp>
#include <millrace/io/cpu_pool.ipp>
#include <millrace/io/detail/cpu_limits.ipp>
#include <millrace/io/detail/numa.ipp>
#include <millrace/io/file.ipp>
#include <millrace/io/loop_thread.ipp>
#include <millrace/io/process.ipp>
#include <millrace/io/run_on.ipp>
#include <millrace/loader/detail/run_state.ipp>
#include <millrace/loader/detail/run_trace.ipp>
#include <millrace/loader/detail/runtime_core.ipp>
#include <millrace/loader/detail/stop_causes.ipp>
#include <millrace/loader/detail/whole_file.ipp>
#include <millrace/loader/export.ipp>
#include <millrace/loader/pipeline_run.ipp>
#include <millrace/loader/rank_from_environment.ipp>
#include <millrace/loader/run_stats.ipp>
#include <millrace/loop/detail/descriptors.ipp>
#include <millrace/loop/detail/thread.ipp>
#include <millrace/loop/epoll_loop.ipp>
#include <millrace/loop/make_event_loop.ipp>
#include <millrace/loop/ring_loop.ipp>
#include <millrace/memory/bytes.ipp>
#include <millrace/memory/detail/block_sums.ipp>
#include <millrace/memory/pixel_pool.ipp>
#include <millrace/memory/slab_pool.ipp>
#include <millrace/order/detail/words.ipp>
#include <millrace/order/epoch_fingerprint.ipp>
#include <millrace/order/epoch_state.ipp>
#include <millrace/order/rank_share.ipp>
#include <millrace/order/sample_mix.ipp>
#include <millrace/order/sample_order.ipp>
#include <millrace/order/sample_selection.ipp>
#include <millrace/order/shard_counts.ipp>
#include <millrace/order/shard_deal.ipp>
#include <millrace/order/shuffle_quality.ipp>
#include <millrace/s3/error.ipp>
#include <millrace/shards/detail/hedged_reader.ipp>
#include <millrace/shards/disk_cache.ipp>
#include <millrace/shards/fetch.ipp>
#include <millrace/shards/file_storage.ipp>
#include <millrace/shards/group_samples.ipp>
#include <millrace/shards/range_reader.ipp>
#include <millrace/shards/range_scheduler.ipp>
#include <millrace/shards/sample.ipp>
#include <millrace/shards/shards.ipp>
#include <millrace/shards/storage.ipp>
#include <millrace/shards/storage_set.ipp>
#include <millrace/shards/untar_plain.ipp>
#include <millrace/sync/remote_waiters.ipp>
#include <millrace/tar/detail/other_kinds.ipp>
#include <millrace/tar/format.ipp>
#include <millrace/tar/reader.ipp>
#include <millrace/testing/census.ipp>
#include <millrace/text/dates.ipp>
#include <millrace/text/entity_tag.ipp>
#include <millrace/text/json_leaves.ipp>
#include <millrace/text/json_scan.ipp>
#include <millrace/text/text.ipp>
#include <millrace/train/checkpoint.ipp>
#include <millrace/train/dataset.ipp>
#include <millrace/train/detail/agreement.ipp>
#include <millrace/train/detail/epoch_losses.ipp>
#include <millrace/train/detail/epochs_position.ipp>
#include <millrace/train/detail/held_samples.ipp>
#include <millrace/train/detail/host_copy.ipp>
#include <millrace/train/detail/listed_index.ipp>
#include <millrace/train/detail/mix_text.ipp>
#include <millrace/train/detail/reading_estimate.ipp>
#include <millrace/train/detail/slice_reader.ipp>
#include <millrace/train/detail/training_plan.ipp>
#include <millrace/train/detail/window_order.ipp>
#include <millrace/train/detail/window_position.ipp>
#include <millrace/train/epoch_plan.ipp>
#include <millrace/train/equal_batches.ipp>
#include <millrace/train/rank_group.ipp>
#include <millrace/train/shard_epochs.ipp>
#include <millrace/train/tracks_advice.ipp>

// fetch() of any store, files too, chooses its reads by these.
#include <millrace/records/detail/text_format.ipp>
#include <millrace/retry/detail/read_controller.ipp>
#include <millrace/retry/detail/store_host.ipp>
#include <millrace/retry/host_stats.ipp>

#if defined(MILLRACE_WITH_HTTP)
#include <millrace/http/authorities.ipp>
#include <millrace/http/engine.ipp>
#include <millrace/http/exchange.ipp>
#include <millrace/http/message.ipp>
#include <millrace/http/proxy.ipp>
#include <millrace/http/redirect.ipp>
#include <millrace/retry/request_rate.ipp>
#include <millrace/retry/retry.ipp>
#include <millrace/shards/http_storage.ipp>
#include <millrace/shards/hub_storage.ipp>
#include <millrace/testing/store_model.ipp>
#endif

#if defined(MILLRACE_WITH_S3)
#include <millrace/formats/write_shards.ipp>
#include <millrace/s3/auth/default_credentials.ipp>
#include <millrace/s3/auth/explain.ipp>
#include <millrace/s3/auth/spot_notice.ipp>
#include <millrace/s3/client.ipp>
#include <millrace/s3/config/config.ipp>
#include <millrace/s3/config/endpoint.ipp>
#include <millrace/s3/config/profile_file.ipp>
#include <millrace/s3/config/settings.ipp>
#include <millrace/s3/ops/bucket_session.ipp>
#include <millrace/s3/ops/get_object.ipp>
#include <millrace/s3/ops/list_objects.ipp>
#include <millrace/s3/ops/object_checksum.ipp>
#include <millrace/s3/ops/put_object.ipp>
#include <millrace/s3/ops/read_object.ipp>
#include <millrace/s3/ops/send.ipp>
#include <millrace/s3/presign.ipp>
#include <millrace/s3/session.ipp>
#include <millrace/s3/sign/credentials.ipp>
#include <millrace/s3/sign/signer.ipp>
#include <millrace/s3/url.ipp>
#include <millrace/s3/wire/detail/body_checksum.ipp>
#include <millrace/s3/wire/detail/xml.ipp>
#include <millrace/s3/wire/documents.ipp>
#include <millrace/shards/resident_storage.ipp>
#include <millrace/shards/s3_storage.ipp>
#endif

#if defined(MILLRACE_WITH_TAR)
#include <millrace/decode/decode_arrays.ipp>
#include <millrace/decode/npz.ipp>
#include <millrace/records/lines.ipp>
#include <millrace/records/mx_record.ipp>
#include <millrace/records/pack.ipp>
#include <millrace/records/tf_example.ipp>
#include <millrace/records/tokens.ipp>
#include <millrace/shards/detail/unpack_ahead.ipp>
#include <millrace/shards/untar.ipp>
#include <millrace/tar/archive_reader.ipp>
#include <millrace/tar/detail/fiber.ipp>
#include <millrace/tar/detail/unpacker.ipp>
#include <millrace/tar/detail/window.ipp>
#endif

#if defined(MILLRACE_WITH_JPEG) || defined(MILLRACE_WITH_PNG) || defined(MILLRACE_WITH_WEBP)
#include <millrace/decode/decode_images.ipp>
#endif

#if defined(MILLRACE_WITH_JPEG)
#include <millrace/decode/detail/jpeg_source.ipp>
#endif

#if defined(MILLRACE_WITH_PNG)
#include <millrace/decode/detail/png_source.ipp>
#endif

#if defined(MILLRACE_WITH_WEBP)
#include <millrace/decode/detail/webp_source.ipp>
#endif

#if defined(MILLRACE_WITH_AUDIO)
#include <millrace/decode/audio_decoder.ipp>
#include <millrace/decode/decode_audio.ipp>
#endif

#if defined(MILLRACE_WITH_DLPACK)
#include <millrace/device/dlpack.ipp>
#endif

#if defined(MILLRACE_WITH_S3_SERVER)
#include <millrace/testing/s3_server/detail/body_check.ipp>
#include <millrace/testing/s3_server/detail/connection.ipp>
#include <millrace/testing/s3_server/detail/requests.ipp>
#include <millrace/testing/s3_server/detail/text.ipp>
#include <millrace/testing/s3_server/fault.ipp>
#include <millrace/testing/s3_server/message.ipp>
#include <millrace/testing/s3_server/server.ipp>
#include <millrace/testing/s3_server/signature_check.ipp>
#include <millrace/testing/s3_server/store.ipp>
#include <millrace/testing/s3_server/stream_socket.ipp>
#endif
