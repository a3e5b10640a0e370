# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""millrace for Conan 2: conan create packaging/conan, of the sources that it stands in.

Each option is a component, and brings the libraries that it needs. With `system` the libraries are those of the
distribution, and nothing is required. The library's own files for CMake are used: find_package(millrace).
"""

import pathlib
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy

SOURCES = ("CMakeLists.txt", "LICENSE", "README.md", "cmake/*", "docs/*", "examples/*", "include/*", "src/*")
REQUIRES = {
    "http": ["libcurl/[>=7.88 <9]"],
    "s3": ["libcurl/[>=7.88 <9]", "openssl/[>=3.0 <4]", "expat/[>=2.5 <3]"],
    "tar": ["libarchive/[>=3.6 <4]", "zlib/[>=1.2.11 <2]", "zstd/[>=1.4 <2]"],
    "jpeg": ["libjpeg-turbo/[>=2.1 <4]"],
    "png": ["libspng/[>=0.7 <1]"],
    "webp": ["libwebp/[>=1.0 <2]"],
    "audio": ["libsndfile/[>=1.1 <2]", "soxr/[>=0.1.3 <1]"],
    "json": ["simdjson/[>=3.0 <5]"],
    "dlpack": ["dlpack/[>=0.8 <2]"],
    "s3_server": ["openssl/[>=3.0 <4]"],
    "video": ["ffmpeg/[>=5.1 <8]"],
}


class millrace(ConanFile):
    name = "millrace"
    description = "Streams sharded training data from object stores into a C++ training loop"
    license = "Apache-2.0"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"system": [True, False], **{component: [True, False] for component in REQUIRES}}
    generators = "PkgConfigDeps"
    default_options = {"system": False,
                       **{component: component in ("http", "s3", "tar", "jpeg") for component in REQUIRES}}

    def root(self):
        return pathlib.Path(self.recipe_folder).parents[1]

    def set_version(self):
        text = (self.root() / "include/millrace/version.hpp").read_text(encoding="utf-8")
        self.version = ".".join(re.findall(r"define MILLRACE_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text))

    def export_sources(self):
        for pattern in SOURCES:
            copy(self, pattern, src=str(self.root()), dst=self.export_sources_folder)

    def requirements(self):
        if self.options.system:
            return
        self.requires("liburing/[>=2.3 <3]", transitive_headers=True, transitive_libs=True)
        for name in dict.fromkeys(name for c in REQUIRES if self.options.get_safe(c) for name in REQUIRES[c]):
            self.requires(name, transitive_headers=True, transitive_libs=True)

    def package_id(self):
        self.info.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for name in ("TOOLS", "TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables[f"MILLRACE_{name}"] = False
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["share/cmake/millrace"]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
