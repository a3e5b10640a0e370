// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The header of a training with epochs: millrace.hpp, datasets, epochs(), equal batches and the comparison of ranks.
/// Apart from millrace.hpp because it takes the compiler half as long again, unless the bodies are compiled once
/// (millrace::compiled).

#include <millrace/millrace.hpp>
#include <millrace/train/dataset.hpp>
#include <millrace/train/equal_batches.hpp>
#include <millrace/train/rank_group.hpp>
