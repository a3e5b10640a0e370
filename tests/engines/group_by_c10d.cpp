// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/engines/training.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <millrace/c10d.hpp>
#include <millrace/loader/rank_from_environment.hpp>

int test::with_group(int, char**, const std::function<int(const millrace::rank_group&)>& train) {
  const char* const address = std::getenv("MASTER_ADDR");
  const char* const port = std::getenv("MASTER_PORT");
  const char* const of_agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (address == nullptr || port == nullptr) throw millrace::usage_error("MASTER_ADDR and MASTER_PORT are not set");
  const millrace::rank mine = millrace::rank_from_environment();
  c10d::TCPStoreOptions how;
  how.port = static_cast<std::uint16_t>(std::atoi(port));
  // torchrun's agent has one, and so has Ray Train's first worker; some versions of torchrun leave it to rank 0.
  how.isServer = mine.index == 0 && of_agent != nullptr && std::string(of_agent) != "True";
  how.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>(address, how);
  const int status = train(millrace::c10d_ranks(mine, store, millrace::c10d_attempt()));
  store->set("ended/" + std::to_string(mine.index), std::vector<std::uint8_t>{1});
  if (how.isServer) {  // it goes when all others have said that they need it no more
    std::vector<std::string> all;
    for (unsigned i = 0; i < mine.world_size; ++i) all.push_back("ended/" + std::to_string(i));
    store->wait(all);
  }
  return status;
}
