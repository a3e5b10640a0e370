// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <mpi.h>

#include <millrace/base/error.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/train/rank_group.hpp>

/// \file
/// Joins a training under mpirun to the library (component millrace::mpi). Including it, and nothing else of the
/// library, needs MPI.

namespace millrace::inline MILLRACE_ABI {

/// The group of a communicator's processes, by MPI_Allgather:
///
///     const mill::rank_group mine = mill::mpi_ranks();
///     auto run = rt.run(mill::epochs(train, {.seed = 7, .batch = 256, .ranks = mine}) | mill::batch());
///
/// Collective, and so is all that the group does: every process of the communicator calls it equally often. It waits
/// for the others, on the thread that calls epochs(), gather_now() or equal_run::next(), which is the one that trains:
/// MPI_THREAD_FUNNELED is enough, and the communicator may be that of the training. It must outlive the group.
/// usage_error where MPI is not initialized or has ended, io_error where a call fails and the communicator's handler
/// returns errors.
rank_group mpi_ranks(MPI_Comm all = MPI_COMM_WORLD);

/// This process among those of a communicator; local_index among those that share its memory, which is the number of
/// its GPU. Collective. Errors as of mpi_ranks().
rank mpi_rank(MPI_Comm all = MPI_COMM_WORLD);

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

inline void require_mpi() {
  int begun = 0;
  int ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun == 0 || ended != 0) throw usage_error("MPI is used before MPI_Init() or after MPI_Finalize()");
}

inline void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw io_error(std::string(what) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

}  // namespace detail

inline rank mpi_rank(MPI_Comm all) {
  detail::require_mpi();
  const auto numbers = [](MPI_Comm of, std::uint32_t& index, std::uint32_t& size) {
    int i = 0;
    int n = 0;
    detail::check_mpi(MPI_Comm_rank(of, &i), "MPI_Comm_rank");
    detail::check_mpi(MPI_Comm_size(of, &n), "MPI_Comm_size");
    index = static_cast<std::uint32_t>(i);
    size = static_cast<std::uint32_t>(n);
  };
  rank mine;
  numbers(all, mine.index, mine.world_size);
  MPI_Comm here = MPI_COMM_NULL;
  detail::check_mpi(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here), "MPI_Comm_split_type");
  numbers(here, mine.local_index, mine.local_world_size);
  MPI_Comm_free(&here);
  mine.source = "MPI";
  return mine;
}

inline rank_group mpi_ranks(MPI_Comm all) {
  const rank mine = mpi_rank(all);
  return rank_group(mine, [all](std::span<const std::uint64_t> words, std::span<std::uint64_t> of_all) {
    detail::require_mpi();
    if (words.size() > INT32_MAX) throw usage_error("mpi_ranks: too many words");
    const int count = static_cast<int>(words.size());
    detail::check_mpi(MPI_Allgather(words.data(), count, MPI_UINT64_T, of_all.data(), count, MPI_UINT64_T, all),
                      "MPI_Allgather");
  });
}

}  // namespace millrace
