// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0

#include <millrace/origin/server.hpp>

template class millrace::origin_server::basic_server<>;
