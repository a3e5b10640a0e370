// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// A shared object in the place of a profiler: NVTX loads what NVTX_INJECTION64_PATH names and asks it for the functions
// to call. Counts the ranges of the domain "millrace", by name.

#include <nvtx3/nvToolsExt.h>

#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace {

std::mutex mutex;
std::map<std::string, int> pushed;
int others = 0;
// Open ranges. Not thread_local: where such a variable of a loaded object begins 16 bytes into a page, the leak check
// of LLVM 16 and GCC 13 or older takes what is before it for its place and size, and crashes ("Tracer caught signal
// 11").
std::map<std::thread::id, int> depths;
char own, another;  // their addresses are the domains' handles

nvtxDomainHandle_t domain_of(const char* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(std::string(name) == "millrace" ? &own : &another);
}
bool ours(nvtxDomainHandle_t domain) { return reinterpret_cast<char*>(domain) == &own; }

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  const std::lock_guard lock(mutex);
  if (!ours(domain) || range->messageType != NVTX_MESSAGE_TYPE_ASCII) {
    ++others;
  } else {
    ++pushed[range->message.ascii];
  }
  return depths[std::this_thread::get_id()]++;
}
int pop(nvtxDomainHandle_t domain) {
  const std::lock_guard lock(mutex);
  int& depth = depths[std::this_thread::get_id()];
  if (!ours(domain) || depth == 0) ++others;
  return --depth;
}

template <class F>
void set(NvtxFunctionTable table, unsigned size, unsigned id, F f) {
  if (id < size) *table[id] = reinterpret_cast<NvtxFunctionPointer>(f);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  set(table, size, NVTX_CBID_CORE2_DomainCreateA, &domain_of);
  set(table, size, NVTX_CBID_CORE2_DomainRangePushEx, &push);
  set(table, size, NVTX_CBID_CORE2_DomainRangePop, &pop);
  return 1;
}

/// How many ranges of that name have begun; of null: what should not have come.
__attribute__((visibility("default"))) int nvtx_ranges_seen(const char* name) {
  const std::lock_guard lock(mutex);
  if (name == nullptr) return others;
  const auto at = pushed.find(name);
  return at == pushed.end() ? 0 : at->second;
}

}  // extern "C"
