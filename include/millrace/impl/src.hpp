// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Every body that is no template, for the one source that compiles them: src/millrace.cpp, which the CMake target
/// millrace::compiled builds. Without CMake: compile that file with MILLRACE_WITHOUT_<COMPONENT> for each component
/// whose library is not there (HTTP, S3, TAR, S3_SERVER) and MILLRACE_WITH_<COMPONENT> for each other one that is
/// (JPEG, PNG, WEBP, AUDIO, DLPACK), and everything else with MILLRACE_SEPARATE_COMPILATION.

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#error bodies are compiled once where MILLRACE_SEPARATE_COMPILATION is defined; header-only programs need no source
#endif

#include <millrace/base/compiler.hpp>

MILLRACE_QUIET_FRAMES

#include <millrace/base/detail/impl/error_notes.ipp>
#include <millrace/base/detail/impl/first_time.ipp>
#include <millrace/base/detail/impl/shown_url.ipp>
#include <millrace/base/impl/clock.ipp>
#include <millrace/base/impl/environment.ipp>
#include <millrace/base/impl/error.ipp>
#include <millrace/base/impl/rng.ipp>
#include <millrace/base/impl/running_crc.ipp>
#include <millrace/base/impl/type_id.ipp>
#include <millrace/base/impl/units.ipp>
#include <millrace/base/impl/wait_list.ipp>
#include <millrace/coro/detail/impl/generator_promise.ipp>
#include <millrace/coro/impl/executor.ipp>
#include <millrace/coro/impl/root_scope.ipp>
#include <millrace/coro/impl/runtime_parts.ipp>
#include <millrace/coro/impl/stage_record.ipp>
#include <millrace/coro/impl/timer_queue.ipp>
#include <millrace/data/impl/origin.ipp>
#include <millrace/data/impl/rank.ipp>
#include <millrace/decode/detail/impl/audio_head.ipp>
#include <millrace/decode/detail/impl/exif.ipp>
#include <millrace/decode/detail/impl/linked_formats.ipp>
#include <millrace/decode/impl/array.ipp>
#include <millrace/decode/impl/labelled_image.ipp>
#include <millrace/decode/impl/npy.ipp>
#include <millrace/decode/impl/parse_label.ipp>
#include <millrace/decode/impl/write_image.ipp>
#include <millrace/feed/impl/check_ranks.ipp>
#include <millrace/flow/detail/impl/compactor.ipp>
#include <millrace/flow/detail/impl/failures.ipp>
#include <millrace/flow/detail/impl/item_place.ipp>
#include <millrace/flow/impl/bucket_by_length.ipp>
#include <millrace/flow/impl/shuffle.ipp>
#include <millrace/flow/impl/stream.ipp>
#include <millrace/feed/detail/impl/epoch_losses.ipp>
#include <millrace/feed/detail/impl/epochs_position.ipp>
#include <millrace/feed/detail/impl/epochs_source.ipp>
#include <millrace/feed/detail/impl/held_samples.ipp>
#include <millrace/feed/detail/impl/indexed_object.ipp>
#include <millrace/feed/detail/impl/late_position.ipp>
#include <millrace/feed/detail/impl/mix_text.ipp>
#include <millrace/feed/detail/impl/index_parts.ipp>
#include <millrace/feed/detail/impl/listed_index.ipp>
#include <millrace/feed/detail/impl/window_order.ipp>
#include <millrace/feed/detail/impl/window_position.ipp>
#include <millrace/feed/detail/impl/window_state.ipp>
#include <millrace/feed/detail/impl/words.ipp>
#include <millrace/feed/impl/epoch_plan.ipp>
#include <millrace/feed/impl/equal_batches.ipp>
#include <millrace/feed/impl/listed_epochs.ipp>
#include <millrace/feed/detail/impl/reading_estimate.ipp>
#include <millrace/feed/impl/tracks_advice.ipp>
#include <millrace/feed/impl/shard_epochs.ipp>
#include <millrace/device/detail/impl/collated_fields.ipp>
#include <millrace/device/detail/impl/decode_in_slot.ipp>
#include <millrace/device/detail/impl/release_bell.ipp>
#include <millrace/device/detail/impl/slot_patience.ipp>
#include <millrace/device/impl/batch_builder.ipp>
#include <millrace/device/impl/batch_layout.ipp>
#include <millrace/device/impl/batch_pool.ipp>
#include <millrace/device/impl/batch_rows.ipp>
#include <millrace/device/impl/collate.ipp>
#include <millrace/device/impl/device_batch.ipp>
#include <millrace/device/impl/fill_batches.ipp>
#include <millrace/device/impl/host_batch.ipp>
#include <millrace/device/impl/normalise_images.ipp>
#include <millrace/device/impl/slot_store.ipp>
#include <millrace/io/detail/impl/file_job.ipp>
#include <millrace/io/detail/impl/file_part.ipp>
#include <millrace/io/detail/impl/pool_state.ipp>
#include <millrace/io/detail/impl/remote_task.ipp>
#include <millrace/io/detail/impl/shell_process.ipp>
#include <millrace/io/impl/cpu_pool.ipp>
#include <millrace/io/impl/file.ipp>
#include <millrace/io/impl/loop_thread.ipp>
#include <millrace/io/impl/process.ipp>
#include <millrace/io/impl/stream_socket.ipp>
#include <millrace/loader/detail/impl/forgotten_launcher.ipp>
#include <millrace/loader/detail/impl/progress_line.ipp>
#include <millrace/loader/detail/impl/run_account.ipp>
#include <millrace/loader/detail/impl/runtime_core.ipp>
#include <millrace/loader/impl/budget.ipp>
#include <millrace/loader/impl/rank_from_environment.ipp>
#include <millrace/loader/impl/run_stats.ipp>
#include <millrace/loader/impl/runtime.ipp>
#include <millrace/loop/detail/impl/epoll_set.ipp>
#include <millrace/loop/detail/impl/file_queue.ipp>
#include <millrace/loop/detail/impl/file_worker.ipp>
#include <millrace/loop/detail/impl/ring.ipp>
#include <millrace/loop/detail/impl/ring_prepare.ipp>
#include <millrace/loop/detail/impl/thread.ipp>
#include <millrace/loop/detail/impl/wake_event.ipp>
#include <millrace/loop/detail/impl/watch_table.ipp>
#include <millrace/loop/impl/epoll_loop.ipp>
#include <millrace/loop/impl/event_loop.ipp>
#include <millrace/loop/impl/make_event_loop.ipp>
#include <millrace/loop/impl/ring_loop.ipp>
#include <millrace/memory/detail/impl/block.ipp>
#include <millrace/memory/impl/bytes.ipp>
#include <millrace/memory/impl/pixel_buffer.ipp>
#include <millrace/memory/impl/pixel_pool.ipp>
#include <millrace/memory/impl/slab_pool.ipp>
#include <millrace/memory/impl/writable_bytes.ipp>
#include <millrace/shards/detail/impl/archive_warnings.ipp>
#include <millrace/shards/detail/impl/handed_on.ipp>
#include <millrace/shards/detail/impl/part_times.ipp>
#include <millrace/shards/detail/impl/read_window.ipp>
#include <millrace/shards/detail/impl/untar_chunks.ipp>
#include <millrace/shards/impl/fetch.ipp>
#include <millrace/shards/impl/file_storage.ipp>
#include <millrace/shards/impl/group_samples.ipp>
#include <millrace/shards/impl/hedged_storage.ipp>
#include <millrace/shards/impl/sample.ipp>
#include <millrace/shards/impl/sample_name.ipp>
#include <millrace/shards/impl/shards.ipp>
#include <millrace/shards/impl/shuffle_shards.ipp>
#include <millrace/shards/impl/storage_set.ipp>
#include <millrace/shards/impl/untar_plain.ipp>
#include <millrace/sync/impl/remote_waiters.ipp>
#include <millrace/sync/impl/scope.ipp>
#include <millrace/sync/impl/semaphore.ipp>
#include <millrace/tar/detail/impl/extended.ipp>
#include <millrace/tar/detail/impl/header.ipp>
#include <millrace/tar/detail/impl/input.ipp>
#include <millrace/tar/detail/impl/pax.ipp>
#include <millrace/tar/impl/format.ipp>
#include <millrace/tar/impl/reader.ipp>
#include <millrace/testing/impl/census.ipp>
#include <millrace/testing/impl/jumping_loop.ipp>
#include <millrace/testing/impl/lifetime.ipp>
#include <millrace/testing/impl/virtual_loop.ipp>
#include <millrace/text/impl/ascii.ipp>
#include <millrace/text/impl/dates.ipp>
#include <millrace/text/impl/hex.ipp>
#include <millrace/text/impl/json_leaves.ipp>
#include <millrace/text/impl/percent.ipp>
#include <millrace/text/impl/utf8.ipp>

#if !defined(MILLRACE_WITHOUT_HTTP)
#include <millrace/http/detail/impl/copy_past_caches.ipp>
#include <millrace/http/detail/impl/head_parser.ipp>
#include <millrace/http/detail/impl/header_lines.ipp>
#include <millrace/http/detail/impl/transfer.ipp>
#include <millrace/http/impl/engine.ipp>
#include <millrace/http/impl/error.ipp>
#include <millrace/http/impl/exchange.ipp>
#include <millrace/http/impl/headers.ipp>
#include <millrace/http/impl/proxy.ipp>
#include <millrace/http/impl/response.ipp>
#include <millrace/http/impl/response_head.ipp>
#include <millrace/retry/detail/impl/cubic_rate.ipp>
#include <millrace/retry/impl/aimd_limit.ipp>
#include <millrace/retry/impl/rate_limiter.ipp>
#include <millrace/retry/impl/retry_class.ipp>
#include <millrace/retry/impl/retry_policy.ipp>
#include <millrace/retry/impl/retry_quota.ipp>
#include <millrace/shards/impl/http_storage.ipp>
#endif

#if !defined(MILLRACE_WITHOUT_S3)
#include <millrace/s3/auth/detail/impl/surroundings.ipp>
#include <millrace/s3/auth/impl/explain.ipp>
#include <millrace/s3/config/detail/impl/choices.ipp>
#include <millrace/s3/config/detail/impl/endpoint_url.ipp>
#include <millrace/s3/config/detail/impl/environment_copy.ipp>
#include <millrace/s3/config/detail/impl/host_name.ipp>
#include <millrace/s3/config/detail/impl/partition.ipp>
#include <millrace/s3/config/detail/impl/profile_parser.ipp>
#include <millrace/s3/config/detail/impl/read_small_file.ipp>
#include <millrace/s3/config/detail/impl/service_endpoint.ipp>
#include <millrace/s3/config/impl/config.ipp>
#include <millrace/s3/config/impl/endpoint.ipp>
#include <millrace/s3/config/impl/profile.ipp>
#include <millrace/s3/config/impl/profile_file.ipp>
#include <millrace/s3/config/impl/settings.ipp>
#include <millrace/s3/impl/arn.ipp>
#include <millrace/s3/impl/client.ipp>
#include <millrace/s3/impl/error.ipp>
#include <millrace/s3/impl/presign.ipp>
#include <millrace/s3/impl/session.ipp>
#include <millrace/s3/impl/url.ipp>
#include <millrace/s3/ops/detail/impl/cut_parts.ipp>
#include <millrace/s3/ops/detail/impl/part_download.ipp>
#include <millrace/s3/ops/detail/impl/prefix_gate.ipp>
#include <millrace/s3/ops/detail/impl/prefix_gates.ipp>
#include <millrace/s3/ops/detail/impl/put_plan.ipp>
#include <millrace/s3/ops/detail/impl/upload_parts.ipp>
#include <millrace/s3/ops/detail/impl/upload_requests.ipp>
#include <millrace/s3/ops/impl/get_object.ipp>
#include <millrace/s3/ops/impl/list_objects.ipp>
#include <millrace/s3/ops/impl/object_checksum.ipp>
#include <millrace/s3/ops/impl/put_object.ipp>
#include <millrace/s3/ops/impl/read_object.ipp>
#include <millrace/s3/ops/impl/send.ipp>
#include <millrace/s3/ops/impl/with_retries.ipp>
#include <millrace/s3/sign/detail/impl/canonical_headers.ipp>
#include <millrace/s3/sign/detail/impl/canonical_path.ipp>
#include <millrace/s3/sign/detail/impl/canonical_query.ipp>
#include <millrace/s3/sign/detail/impl/hashing.ipp>
#include <millrace/s3/sign/detail/impl/signing_key_cache.ipp>
#include <millrace/s3/sign/impl/amz_date.ipp>
#include <millrace/s3/sign/impl/credentials.ipp>
#include <millrace/s3/sign/impl/signed_headers.ipp>
#include <millrace/s3/sign/impl/signer.ipp>
#include <millrace/s3/wire/detail/impl/body_checksum.ipp>
#include <millrace/s3/wire/detail/impl/upload_documents.ipp>
#include <millrace/s3/wire/detail/impl/xml_legal.ipp>
#include <millrace/s3/wire/detail/impl/xml_reader.ipp>
#include <millrace/s3/wire/impl/error_document.ipp>
#include <millrace/s3/wire/impl/list_page.ipp>
#include <millrace/shards/impl/resident_storage.ipp>
#include <millrace/shards/impl/s3_storage.ipp>
#endif

#if !defined(MILLRACE_WITHOUT_TAR)
#include <millrace/decode/impl/decode_arrays.ipp>
#include <millrace/decode/impl/npz.ipp>
#include <millrace/records/impl/lines.ipp>
#include <millrace/records/impl/pack.ipp>
#include <millrace/records/impl/tokens.ipp>
#include <millrace/shards/detail/impl/unpack_ahead.ipp>
#include <millrace/shards/detail/impl/unpack_job.ipp>
#include <millrace/shards/detail/impl/unpack_objects.ipp>
#include <millrace/shards/impl/untar.ipp>
#include <millrace/tar/detail/impl/fiber.ipp>
#include <millrace/tar/detail/impl/libarchive.ipp>
#include <millrace/tar/detail/impl/packed_input.ipp>
#include <millrace/tar/detail/impl/stream_decoder.ipp>
#include <millrace/tar/detail/impl/unpacker.ipp>
#include <millrace/tar/detail/impl/zip_directory.ipp>
#include <millrace/tar/impl/archive_reader.ipp>
#endif

#if defined(MILLRACE_WITH_JPEG) || defined(MILLRACE_WITH_PNG) || defined(MILLRACE_WITH_WEBP)
#include <millrace/decode/detail/impl/pixel_writer.ipp>
#include <millrace/decode/detail/impl/resizer.ipp>
#include <millrace/decode/impl/decode_images.ipp>
#include <millrace/decode/impl/image_decoder.ipp>
#endif

#if defined(MILLRACE_WITH_JPEG)
#include <millrace/decode/detail/impl/jpeg_source.ipp>
#include <millrace/decode/impl/jpeg_decoder.ipp>
#endif

#if defined(MILLRACE_WITH_PNG)
#include <millrace/decode/detail/impl/png_source.ipp>
#endif

#if defined(MILLRACE_WITH_WEBP)
#include <millrace/decode/detail/impl/webp_source.ipp>
#endif

#if defined(MILLRACE_WITH_AUDIO)
#include <millrace/decode/impl/audio_decoder.ipp>
#include <millrace/decode/impl/decode_audio.ipp>
#endif

#if defined(MILLRACE_WITH_DLPACK)
#include <millrace/device/impl/dlpack.ipp>
#endif

#if !defined(MILLRACE_WITHOUT_S3_SERVER)
#include <millrace/testing/s3_server/detail/impl/alter_reply.ipp>
#include <millrace/testing/s3_server/detail/impl/body_check.ipp>
#include <millrace/testing/s3_server/detail/impl/bucket_requests.ipp>
#include <millrace/testing/s3_server/detail/impl/canonical_request.ipp>
#include <millrace/testing/s3_server/detail/impl/conditions.ipp>
#include <millrace/testing/s3_server/detail/impl/connection.ipp>
#include <millrace/testing/s3_server/detail/impl/date.ipp>
#include <millrace/testing/s3_server/detail/impl/digest.ipp>
#include <millrace/testing/s3_server/detail/impl/input.ipp>
#include <millrace/testing/s3_server/detail/impl/listing.ipp>
#include <millrace/testing/s3_server/detail/impl/object_requests.ipp>
#include <millrace/testing/s3_server/detail/impl/parse_head.ipp>
#include <millrace/testing/s3_server/detail/impl/percent.ipp>
#include <millrace/testing/s3_server/detail/impl/route.ipp>
#include <millrace/testing/s3_server/detail/impl/stream.ipp>
#include <millrace/testing/s3_server/detail/impl/text.ipp>
#include <millrace/testing/s3_server/detail/impl/tls_context.ipp>
#include <millrace/testing/s3_server/detail/impl/tls_session.ipp>
#include <millrace/testing/s3_server/detail/impl/upload_requests.ipp>
#include <millrace/testing/s3_server/detail/impl/wire_script.ipp>
#include <millrace/testing/s3_server/detail/impl/xml.ipp>
#include <millrace/testing/s3_server/impl/fault.ipp>
#include <millrace/testing/s3_server/impl/fault_plan.ipp>
#include <millrace/testing/s3_server/impl/object.ipp>
#include <millrace/testing/s3_server/impl/refusal.ipp>
#include <millrace/testing/s3_server/impl/reply.ipp>
#include <millrace/testing/s3_server/impl/request.ipp>
#include <millrace/testing/s3_server/impl/request_log.ipp>
#include <millrace/testing/s3_server/impl/server.ipp>
#include <millrace/testing/s3_server/impl/service.ipp>
#include <millrace/testing/s3_server/impl/signature_check.ipp>
#include <millrace/testing/s3_server/impl/statistics.ipp>
#include <millrace/testing/s3_server/impl/store.ipp>
#include <millrace/testing/s3_server/impl/upload.ipp>
#endif
