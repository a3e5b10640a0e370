// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <millrace/base/compiler.hpp>
#include <millrace/coro/root_scope.hpp>
#include <millrace/s3/ops/detail/upload_requests.hpp>
#include <millrace/sync/event.hpp>

namespace millrace::s3::detail {

/// A multipart upload that is aborted unless it was completed: the destructor hands the request to the loop's root
/// scope. It is created there too: a request that is dropped may have been carried out, and its upload could not be
/// found again.
template <class = void>  // its destructor names a coroutine: see MILLRACE_COROUTINE
class open_upload {
 public:
  open_upload(executor& ex, std::shared_ptr<const session> s, std::string bucket, std::string key, put_plan plan)
      : scope_(root_scope::of(ex)),
        session_(std::move(s)),
        bucket_(std::move(bucket)),
        key_(std::move(key)),
        state_(std::make_shared<state>()) {
    scope_.adopt(create(state_, session_, bucket_, key_, std::move(plan)));
  }
  open_upload(const open_upload&) = delete;
  open_upload& operator=(const open_upload&) = delete;
  ~open_upload() {
    state_->abandoned = true;  // create() aborts if it is still under way
    if (state_->id.empty() || completed_) return;
    try {
      scope_.adopt(abort_upload(session_, bucket_, key_, state_->id));
    } catch (...) {  // no memory: the upload stays
    }
  }

  /// The id, once the store has given it; throws what creating it has thrown. The upload must outlive the task.
  task<std::string> id() const {
    co_await state_->created.wait();
    if (state_->error) std::rethrow_exception(state_->error);
    co_return state_->id;
  }
  /// From now on there is nothing to abort.
  void completed() noexcept { completed_ = true; }

 private:
  struct state {
    event created;
    std::string id;
    std::exception_ptr error;
    bool abandoned = false;
  };

  static task<void> create(std::shared_ptr<state> st, std::shared_ptr<const session> s, std::string bucket,
                           std::string key, put_plan plan) {
    std::string id;
    try {
      id = co_await create_upload(s, bucket, key, plan);
    } catch (...) {
      st->error = std::current_exception();
    }
    if (!st->abandoned) {
      st->id = std::move(id);
      st->created.set();
    } else if (!id.empty()) {
      co_await abort_upload(s, std::move(bucket), std::move(key), std::move(id));
    }
  }

  root_scope& scope_;
  const std::shared_ptr<const session> session_;
  const std::string bucket_;
  const std::string key_;
  const std::shared_ptr<state> state_;
  bool completed_ = false;
};

}  // namespace millrace::s3::detail
