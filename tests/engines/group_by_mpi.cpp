// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engines/training.hpp"

#include <millrace/mpi.hpp>

int test::with_group(int count, char** arguments, const std::function<int(const millrace::rank_group&)>& train) {
  MPI_Init(&count, &arguments);
  const int status = train(millrace::mpi_ranks());
  MPI_Finalize();
  return status;
}
