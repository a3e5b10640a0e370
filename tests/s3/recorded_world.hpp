// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <millrace/http/exchange.hpp>
#include <millrace/io/process.hpp>
#include <millrace/s3/auth/default_credentials.hpp>

#include "tests/s3/vectors.hpp"

namespace millrace::test {

/// One recorded request and what came back; status 0: nothing did.
class recorded_exchange {
 public:
  std::string method;
  std::string url;
  std::map<std::string, std::string> fields;
  std::string body;
  int status = 0;
  std::string answer;
  std::string date;  ///< of the answer; empty: none
};

/// The parts of a URL that may come in any order, put in one.
inline std::string comparable(std::string url) {
  const std::size_t mark = url.find('?');
  std::vector<std::string> parameters;
  if (mark != std::string::npos) {
    std::string rest = url.substr(mark + 1);
    url.resize(mark);
    while (!rest.empty()) {
      const std::size_t end = rest.find('&');
      parameters.push_back(rest.substr(0, end));
      rest = end == std::string::npos ? std::string() : rest.substr(end + 1);
    }
  }
  if (url.find('/', url.find("://") + 3) == std::string::npos) url += '/';
  std::sort(parameters.begin(), parameters.end());
  for (const std::string& p : parameters) url += "&" + p;
  return url;
}

/// Surroundings of the credential sources made of a recording: files of a folder or a table, answers in their order
/// (the last one is given again when they are used up). What is asked otherwise than recorded is complained about.
class recorded_world {
 public:
  s3::detail::file_text read_file(const std::string& path) const {
    const auto found = files.find(path);
    if (found != files.end()) return s3::detail::file_text(found->second);
    if (root.empty()) return s3::detail::file_text(ENOENT);
    return s3::detail::read_small_file(root + path);
  }

  int replace_file(const std::string& path, std::string_view text) {
    if (replacing_fails == 0) files[path] = text;
    return replacing_fails;
  }

  int new_file_refused(const std::string&) const { return refuses_files; }

  task<http::response> send(http::request r, s3::detail::request_limits limits) {
    requests.push_back(r);
    limits_of_requests.push_back(limits);
    const where at{r.url, std::nullopt, std::string()};
    if (exchanges.empty()) throw http::error(http::failure::connect, "nothing was recorded", at);
    const recorded_exchange& e = exchanges[std::min(answered, exchanges.size() - 1)];
    ++answered;
    if (r.method != e.method || comparable(r.url) != comparable(e.url)) {
      complaints.push_back("asked " + r.method + " " + r.url + " instead of " + e.method + " " + e.url);
    }
    for (const char* name : {"x-amz-sso_bearer_token", "x-aws-ec2-metadata-token", "x-amz-security-token",
                             "x-aws-ec2-metadata-token-ttl-seconds", "accept", "content-type", "authorization"}) {
      const std::string* sent = r.fields.find(name);
      const auto recorded = e.fields.find(name);
      if ((sent != nullptr) != (recorded != e.fields.end())) {
        // The recordings of containers leave the authorization out.
        if (std::string(name) != "authorization" || e.method == "POST")
          complaints.push_back(std::string("header ") + name);
      } else if (sent != nullptr && *sent != recorded->second && std::string(name) != "authorization" &&
                 std::string(name) != "x-amz-security-token") {
        complaints.push_back(std::string("value of header ") + name);
      }
    }
    if (e.status == 0) throw http::error(http::failure::connect, "recorded as unreachable", at);
    http::response out;
    out.head.status = e.status;
    if (!e.date.empty()) out.head.fields.add("date", e.date);
    out.body = e.answer;
    co_return out;
  }

  task<millrace::process_result> run(std::string command, duration, std::size_t) {
    millrace::process_result out;
    FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("popen");
    char buffer[512];
    for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.output.append(buffer, n);
    const int status = ::pclose(pipe);
    out.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    co_return std::move(out);
  }

  std::int64_t now() const noexcept { return time; }
  double random() const noexcept { return 0.5; }

  /// Reads the recording of smithy-rs (events of connections, one request each).
  void load_traffic(const json& traffic) {
    std::map<int, recorded_exchange> by_connection;
    for (const json& event : traffic.at("events")) {
      recorded_exchange& e = by_connection[event.at("connection_id").get<int>()];
      const json& action = event.at("action");
      if (action.contains("Request")) {
        const json& request = action.at("Request").at("request");
        e.method = request.at("method").get<std::string>();
        e.url = request.at("uri").get<std::string>();
        for (const auto& [name, values] : request.at("headers").items()) e.fields[name] = values.at(0);
      } else if (action.contains("Response")) {
        const json& response = action.at("Response").at("response");
        if (response.contains("Ok")) e.status = response.at("Ok").at("status").get<int>();
      } else if (action.contains("Data")) {
        const json& data = action.at("Data");
        std::string& to = data.at("direction") == "Request" ? e.body : e.answer;
        if (data.at("data").contains("Utf8")) to += data.at("data").at("Utf8").get<std::string>();
      }
    }
    for (auto& [id, e] : by_connection) exchanges.push_back(std::move(e));
  }

  std::string root;
  std::map<std::string, std::string> files;
  int replacing_fails = 0;  // errno
  int refuses_files = 0;    // errno
  std::vector<recorded_exchange> exchanges;
  std::int64_t time = 1'234'000'000;

  std::size_t answered = 0;
  std::vector<http::request> requests;
  std::vector<s3::detail::request_limits> limits_of_requests;
  std::vector<std::string> complaints;
};

}  // namespace millrace::test
