// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

// Runs examples/distributed under mpirun against an S3 server in this process: run_distributed MPIRUN PROGRAM.
//
// Two and three ranks must have the same losses; a training that is stopped, or of which a rank is killed, goes on, on
// another number of ranks, with the losses that it would have had. Ranks that find each other by the store have them,
// too.

#include <signal.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fail.hpp"
#include "tests/support/s3_server.hpp"

namespace mill = millrace;

namespace {

using test::fail;

/// What one start said: losses by step, those of the validation, and the ranks' processes.
class said {
 public:
  std::map<int, double> losses;
  std::vector<double> validations;
  std::map<int, long> processes;
  double samples = 0;
  bool well = false;
};

/// Runs it to its end; `seen` is called with the number of each step.
said run(const std::string& command, const std::function<void(const said&, int)>& seen = {}) {
  said out;
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) fail("mpirun cannot be started");
  char line[1024];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    int number = 0;
    int world = 0;
    long process = 0;
    double loss = 0;
    double samples = 0;
    if (std::sscanf(line, "step %d: loss %lf over %lf", &number, &loss, &samples) == 3) {
      out.losses[number] = loss;
      out.samples += samples;
      if (seen) seen(out, number);
    } else if (std::sscanf(line, "validation: loss %lf over %lf", &loss, &samples) == 2) {
      if (samples != 50) fail("a validation of " + std::to_string(samples) + " samples");
      out.validations.push_back(loss);
    } else if (std::sscanf(line, "rank %d of %d is process %ld", &number, &world, &process) == 3) {
      out.processes[number] = process;
    } else {
      std::fputs(line, stdout);
    }
  }
  const int status = ::pclose(pipe);
  out.well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return out;
}

void require_same(const std::map<int, double>& got, const std::map<int, double>& wanted, const char* what) {
  if (got.size() != wanted.size()) fail(std::string(what) + ": " + std::to_string(got.size()) + " steps");
  for (const auto& [step, loss] : wanted) {
    const auto found = got.find(step);
    // Ranks add up in another order.
    if (found == got.end() || std::fabs(found->second - loss) > 1e-8) {
      fail(std::string(what) + ": another loss in step " + std::to_string(step));
    }
  }
  std::printf("%s: the same %zu losses\n", what, got.size());
}

int run_distributed(const std::string& mpirun, const std::string& program) {
  mill::s3_server::background server;
  for (const char* name : {"AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_SESSION_TOKEN"}) {
    ::unsetenv(name);
  }
  ::setenv("AWS_ACCESS_KEY_ID", "test-key", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "test-secret", 1);
  ::setenv("AWS_REGION", "us-east-1", 1);
  const auto on = [&](int ranks, const std::string& arguments) {
    return mpirun + " --allow-run-as-root --oversubscribe -n " + std::to_string(ranks) + " " + program + arguments;
  };

  // As it is started by hand: with a server of its own.
  ::unsetenv("AWS_ENDPOINT_URL_S3");
  const said three = run(on(3, ""));
  if (!three.well || three.losses.size() != 3 * 19 || three.validations.size() != 3) fail("three ranks");
  if (three.samples != 3 * 224) fail("not every sample once an epoch");
  if (three.losses.rbegin()->second > three.losses.begin()->second / 10) fail("a loss that does not fall");

  ::setenv("AWS_ENDPOINT_URL_S3", server.endpoint().c_str(), 1);
  const said two = run(on(2, " two"));
  if (!two.well) fail("two ranks");
  require_same(two.losses, three.losses, "two ranks");

  // Without MPI: an epoch of 19 steps, of processes that only know their numbers.
  server.put("by-store", "empty", std::string());
  std::string all;
  for (const char* rank : {"0", "1", "2"}) {
    all += std::string("MILLRACE_WORLD_SIZE=3 MILLRACE_RANK=") + rank + " " + program + " --store by-store 19 & ";
  }
  std::map<int, double> epoch = three.losses;
  epoch.erase(epoch.upper_bound(19), epoch.end());
  require_same(run("( " + all + "wait )").losses, epoch, "three ranks by the store");

  // Stopped after step 7 and 22: what was not saved is done again.
  std::map<int, double> parts;
  std::vector<double> validations;
  for (const auto& [ranks, steps] : std::vector<std::pair<int, int>>{{2, 7}, {3, 17}, {1, 0}}) {
    const said part = run(on(ranks, " stopped " + std::to_string(steps)));
    if (!part.well) fail("a training that was stopped");
    for (const auto& [step, loss] : part.losses) parts[step] = loss;
    validations.insert(validations.end(), part.validations.begin(), part.validations.end());
  }
  require_same(parts, three.losses, "stopped, and on two, three and one ranks");

  // A rank is killed, in a step whose checkpoint the store keeps waiting: what was not saved is done again on two.
  server.faults().add({.method = "PUT", .bucket = "killed", .key = "checkpoint", .nth = 5},
                      mill::s3_server::fault::stall_head());
  bool killed = false;
  const said before = run(on(3, " killed"), [&](const said& now, int step) {
    if (step != 25 || killed) return;
    killed = true;
    if (now.processes.size() != 3 || ::kill(static_cast<::pid_t>(now.processes.at(1)), SIGKILL) != 0) fail("no rank 1");
  });
  if (before.well || !killed) fail("a training without one of its ranks");
  server.faults().clear();
  const said after = run(on(2, " killed"));
  if (!after.well) fail("two ranks after a kill");
  if (after.losses.begin()->first == 1 || after.losses.begin()->first % 5 != 1) fail("it begins after no checkpoint");
  std::map<int, double> both = before.losses;
  for (const auto& [step, loss] : after.losses) both[step] = loss;
  require_same(both, three.losses, "a rank killed, and on two");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    return run_distributed(arguments[1], arguments[2]);
  } catch (const std::exception& e) {
    fail(e.what());
  }
}
