# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

# An overlay port: vcpkg install millrace --overlay-ports=packaging/vcpkg, of the sources that it stands in. The headers
# are the same for all features, which only bring the libraries that components need.

set(VCPKG_BUILD_TYPE release)  # headers and sources alone
cmake_path(ABSOLUTE_PATH CURRENT_PORT_DIR NORMALIZE OUTPUT_VARIABLE port)
cmake_path(SET SOURCE_PATH NORMALIZE "${port}/../../..")

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DMILLRACE_TOOLS=OFF -DMILLRACE_TESTS=OFF -DMILLRACE_EXAMPLES=OFF -DMILLRACE_BENCH=OFF
          -DMILLRACE_PACKAGE_DIR=share/millrace)
vcpkg_cmake_install()
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CURRENT_PORT_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/millrace")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
