// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pmix.h>

#include <millrace/base/error.hpp>
#include <millrace/data/rank.hpp>
#include <millrace/train/rank_group.hpp>

/// \file
/// Joins a training that a launcher with PMIx has started to the library, without MPI (component millrace::pmix):
/// srun --mpi=pmix, prterun, mpirun of Open MPI. Including it, and nothing else of the library, needs PMIx.

namespace millrace::inline MILLRACE_ABI {

/// The group of the processes that the launcher has started, by a fence of PMIx that collects their words:
///
///     const mill::rank_group mine = mill::pmix_ranks();
///     auto run = rt.run(mill::epochs(train, {.seed = 7, .batch = 256, .ranks = mine}) | mill::batch());
///
/// Collective, and so is all that the group does: every process calls it equally often, on the thread that calls
/// epochs(), gather_now() or equal_run::next(). It initializes PMIx, which counts such calls, and ends its use with the
/// group's last copy. Where MPI is up, take mpi_ranks(): its libraries may not find what is put beside them.
/// io_error where a call of PMIx fails, and where no launcher with PMIx has started the process.
rank_group pmix_ranks();

/// This process among those. Errors as of pmix_ranks().
rank pmix_rank();

// ---------------------------------------------------------------------------------------------------------------------
// Implementation

namespace detail {

inline void check_pmix_call(pmix_status_t status, const char* what) {
  if (status != PMIX_SUCCESS) throw io_error(std::string(what) + ": " + PMIx_Error_string(status));
}

/// From PMIx_Init() to PMIx_Finalize().
class pmix_session {
 public:
  pmix_session() {
    check_pmix_call(PMIx_Init(&self_, nullptr, 0), "PMIx_Init");
    mine_.index = self_.rank;
    mine_.world_size = number_of(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    mine_.local_index = number_of(self_.rank, PMIX_LOCAL_RANK);
    mine_.local_world_size = number_of(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE);
    mine_.source = "PMIx";
  }
  pmix_session(const pmix_session&) = delete;
  pmix_session& operator=(const pmix_session&) = delete;
  ~pmix_session() { PMIx_Finalize(nullptr, 0); }

  const rank& mine() const noexcept { return mine_; }

  void gather(std::span<const std::uint64_t> words, std::span<std::uint64_t> all) {
    // A fence collects all that was ever put, so keys are used again: two in turn, since a process that puts a third
    // time has passed the fence before which all had read the first. Values of another size have others: PMIx 4.2 does
    // not find one that has replaced a shorter one.
    const std::string name = "millrace." + std::to_string(round_++ % 2) + '.' + std::to_string(words.size());
    const char* const key = name.c_str();
    std::vector<std::uint64_t> sent(words.begin(), words.end());
    pmix_value_t value;
    PMIX_VALUE_CONSTRUCT(&value);
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = reinterpret_cast<char*>(sent.data());
    value.data.bo.size = words.size_bytes();
    check_pmix_call(PMIx_Put(PMIX_GLOBAL, key, &value), "PMIx_Put");
    check_pmix_call(PMIx_Commit(), "PMIx_Commit");
    const bool yes = true;
    pmix_info_t collect;
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    check_pmix_call(PMIx_Fence(nullptr, 0, &collect, 1), "PMIx_Fence");
    for (std::uint32_t r = 0; r < mine_.world_size; ++r) {
      const owned_value got(*this, r, key);
      const pmix_byte_object_t& bytes = got.value->data.bo;
      if (got.value->type != PMIX_BYTE_OBJECT || bytes.size != words.size_bytes()) {
        throw usage_error("pmix_ranks: rank " + std::to_string(r) + " gathers another number of words");
      }
      if (bytes.size != 0) std::memcpy(all.data() + r * words.size(), bytes.bytes, bytes.size);
    }
  }

 private:
  class owned_value {
   public:
    owned_value(const pmix_session& s, pmix_rank_t of, const char* key) {
      pmix_proc_t process;
      PMIX_LOAD_PROCID(&process, s.self_.nspace, of);
      check_pmix_call(PMIx_Get(&process, key, nullptr, 0, &value), key);
    }
    owned_value(const owned_value&) = delete;
    owned_value& operator=(const owned_value&) = delete;
    ~owned_value() { PMIX_VALUE_RELEASE(value); }
    pmix_value_t* value = nullptr;
  };

  std::uint32_t number_of(pmix_rank_t of, const char* key) const {
    const owned_value got(*this, of, key);
    if (got.value->type == PMIX_UINT32) return got.value->data.uint32;
    if (got.value->type == PMIX_UINT16) return got.value->data.uint16;
    throw io_error(std::string("PMIx: ") + key + " is no number");
  }

  pmix_proc_t self_;
  rank mine_;
  std::uint64_t round_ = 0;
};

}  // namespace detail

inline rank pmix_rank() { return detail::pmix_session().mine(); }

inline rank_group pmix_ranks() {
  auto session = std::make_shared<detail::pmix_session>();
  return rank_group(session->mine(), [session](std::span<const std::uint64_t> words, std::span<std::uint64_t> all) {
    session->gather(words, all);
  });
}

}  // namespace millrace::inline MILLRACE_ABI
