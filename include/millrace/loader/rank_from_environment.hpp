// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <millrace/base/environment.hpp>
#include <millrace/data/rank.hpp>

namespace millrace {

/// This process's rank from the launcher's variables, in this order: MILLRACE_RANK and MILLRACE_WORLD_SIZE, torchrun,
/// Open MPI, Hydra (MPICH, Intel MPI), MVAPICH, Slurm; a process that was launched by none is rank 0 of 1.
///
/// torchrun is believed only when RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and GROUP_RANK are all there: some
/// platforms set RANK and WORLD_SIZE per machine. RANK and WORLD_SIZE alone are refused rather than guessed about, and
/// so is half of what a launcher sets (an index without a number of processes). Launchers that contradict each other
/// about index or size are refused with both values, except that an explicit MILLRACE_RANK wins. Slurm counts only
/// inside a step (SLURM_STEP_ID): a batch script without srun is one process. Launchers that count the agents of
/// another one, one a machine, do not contradict it: `srun torchrun`, `mpirun torchrun`, mpirun in an allocation of
/// Slurm.
rank rank_from_environment(const environment& variables = process_environment());

}  // namespace millrace

#if !defined(MILLRACE_SEPARATE_COMPILATION)
#include <millrace/loader/impl/rank_from_environment.ipp>
#endif
