// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What a training with epochs includes: millrace.hpp, datasets, the formats of tars, lines, TFRecord, RecordIO and
/// objects, epochs(), equal batches and the comparison of ranks.
/// Apart from millrace.hpp because it takes the compiler half as long again, unless the bodies are compiled once
/// (millrace::compiled).

#include <millrace/formats/line_shards.hpp>
#include <millrace/formats/object_samples.hpp>
#include <millrace/formats/recordio_shards.hpp>
#include <millrace/formats/tar_shards.hpp>
#include <millrace/formats/tfrecord_shards.hpp>
#include <millrace/millrace.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/equal_batches.hpp>
#include <millrace/train/rank_group.hpp>
