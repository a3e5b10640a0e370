#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""The library as its users get it: check_package.py CASE --cmake ... (see CMakeLists.txt for the options).

install          what is installed: every header, the package files, the tools, documents and examples, nothing else
find_package     a program against the installed package, every component found here
compiled         the same program with millrace::compiled, the installed library where there is one; and of the core alone,
                 made of the installed sources and as a subfolder
pkg_config       the same program with pkg-config alone, with that library, too; and an installed example
pc_files         the file of each component alone: what it names compiles and links a program that uses its libraries
version          another minor version is refused
missing          a required component whose dependency is missing: the message names the Debian package
half_found       the same where a find module leaves targets and finds nothing, or the other way round, where files are
                 gone that a build folder remembers, and where there is no MPI (whose target exists all the same)
private          where a library's file for pkg-config names others as private, the same libraries are linked
newer            packages whose own files refuse every other major version are found, and refused where they are too old
optional         the same component, optional: the rest works and its target does not exist
add_subdirectory a program with the library as a subfolder, which adds no tests, options, downloads or install rules; its
                 headers are precompiled
required         MILLRACE_REQUIRE_<COMPONENT> fails with the same message
tarballs         what cpack packs: what is installed, and the sources
debian           the Debian package of these sources: it is built, lintian finds nothing, and its autopkgtest passes with it
vcpkg            the overlay port, by CMake's script mode with functions in the place of vcpkg's: installed and consumed
conan            the recipe for Conan 2: created of these sources, and its test package is built and run
recipes          the shell commands of the README's "Use it" and of docs/guide/compiling.md, typed as they stand there
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile


# What a program of a component includes and calls of the libraries that the component names.
USES = {
    "core": (["liburing.h", "pthread.h"], "io_uring_queue_exit(nullptr); pthread_exit(nullptr)"),
    "http": (["curl/curl.h", "liburing.h"], "curl_global_cleanup(); io_uring_queue_exit(nullptr)"),
    "s3": (["curl/curl.h", "expat.h", "openssl/evp.h"], "curl_global_cleanup(); EVP_sha256(); XML_ExpatVersion()"),
    "tar": (["archive.h", "zlib.h", "zstd.h"], "archive_version_number(); zlibVersion(); ZSTD_versionNumber()"),
    "jpeg": (["cstdio", "jpeglib.h"], "jpeg_std_error(nullptr)"),
    "png": (["spng.h"], "spng_version_string()"),
    "webp": (["webp/decode.h", "webp/demux.h"], "WebPGetDecoderVersion(); WebPGetDemuxVersion()"),
    "audio": (["sndfile.h", "soxr.h"], "sf_version_string(); soxr_version()"),
    "json": (["simdjson.h"], "simdjson::get_active_implementation()"),
    "dlpack": (["dlpack/dlpack.h"], "DLDataType()"),
    "s3_server": (["openssl/evp.h", "openssl/ssl.h"], "EVP_sha256(); TLS_server_method()"),
    "video": (["millrace/decode/decode_video.hpp"],
              "millrace::video_decoder({.frames = 1, .height = 1, .width = 1})"),
    "parquet": (["arrow/config.h", "curl/curl.h", "archive.h"], "arrow::GetBuildInfo(); curl_global_cleanup()"),
    "mpi": (["mpi.h"], "int is = 0; MPI_Initialized(&is)"),
    "pmix": (["pmix.h"], "PMIx_Get_version()"),
    "cuda": (["cuda_runtime_api.h"], "int count = 0; cudaGetDeviceCount(&count)"),
    "nvjpeg": (["nvjpeg.h"], "nvjpegHandle_t handle; nvjpegCreateSimple(&handle)"),
}
NOTHING_BUILT = [f"-DMILLRACE_{part}=OFF" for part in ("TOOLS", "TESTS", "EXAMPLES", "BENCH")]
WITHOUT_BODIES = ("core", "json", "video", "parquet", "mpi", "pmix", "cuda", "nvjpeg")


class failure(Exception):
    pass


class skipped(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise failure(message)


class package:
    def __init__(self, options):
        self.o = options
        self.prefix = pathlib.Path(options.work, "prefix")
        self.components = options.components.split(",")

    def run(self, *command, environment=None, succeeds=True):
        result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
        output = result.stdout + result.stderr
        if succeeds is not None and (result.returncode == 0) != succeeds:
            raise failure(f"{' '.join(command)} {'failed' if succeeds else 'succeeded'}:\n{output}")
        return output

    def configure(self, name, *definitions, environment=None, succeeds=True):
        """Configures the consumer in a fresh folder; returns the folder and the output on one line."""
        folder = pathlib.Path(self.o.work, name)
        shutil.rmtree(folder, ignore_errors=True)
        output = self.run(
            self.o.cmake, "-S", f"{self.o.source}/tests/package/consumer", "-B", str(folder), "-G", self.o.generator,
            f"-DCMAKE_CXX_COMPILER={self.o.compiler}", f"-DCMAKE_CXX_COMPILER_LAUNCHER={self.o.launcher}",
            f"-DCMAKE_PREFIX_PATH={self.prefix};{self.o.nvjpeg}", f"-DEVERYTHING={self.o.everything}", *definitions,
            environment=environment, succeeds=succeeds)
        return folder, re.sub(r"\s+", " ", output)

    def build_and_run(self, folder):
        self.run(self.o.cmake, "--build", str(folder))
        self.expect_consumer(folder)

    def expect_consumer(self, folder):
        said = self.run(str(folder / "consumer"))
        expect(said == f"millrace {self.o.version}: slice 1\n", f"the consumer said {said!r}")

    # A machine without libjpeg-turbo or MPI: pkg-config sees liburing and libzstd alone.
    def without_jpeg(self):
        folder = pathlib.Path(self.o.work, "pkgconfig_" + self.o.case)  # cases run side by side
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for other in ("liburing", "libzstd"):
            where = self.run("pkg-config", "--variable=pcfiledir", other).strip()
            shutil.copy(pathlib.Path(where, other + ".pc"), folder)
        return {"PKG_CONFIG_LIBDIR": str(folder), "PKG_CONFIG_PATH": ""}

    def case_install(self):
        shutil.rmtree(self.o.work, ignore_errors=True)
        self.run(self.o.cmake, "--install", self.o.build, "--prefix", str(self.prefix))
        files = {p.relative_to(self.prefix).as_posix() for p in self.prefix.rglob("*") if p.is_file()}
        source = pathlib.Path(self.o.source, "include")
        headers = {"include/" + p.relative_to(source).as_posix() for p in source.rglob("*.[hi]pp")}
        expect(headers <= files, f"not installed: {sorted(headers - files)}")
        parts = ("config", "config-version", "dependencies", "compiled", "core", "http", "s3", "tar", "jpeg", "png", "webp",
                 "audio", "json", "dlpack", "s3_server", "video", "parquet", "mpi", "pmix", "cuda", "nvjpeg")
        others = {f"share/cmake/millrace/millrace-{part}.cmake" for part in parts}
        others |= {f"share/pkgconfig/{name}.pc" for name in ("millrace", *(f"millrace-{part}" for part in parts[4:]))}
        others |= {"share/cmake/millrace/millrace-python.cmake"}
        others |= {"share/millrace/millrace.cpp", "share/millrace/millrace_parquet.cpp",
                   "share/millrace/millrace_video.cpp"}
        libraries = {self.o.library} if self.o.library else set()
        others |= {"share/pkgconfig/millrace-compiled.pc"} if libraries else set()
        root = pathlib.Path(self.o.source)
        documents = {root / "LICENSE", root / "README.md"}
        documents |= {p for p in root.glob("docs/**/*") if p.is_file() and root / "docs/tools" not in p.parents}
        documents |= {p for p in root.glob("examples/**/*") if p.suffix in (".cpp", ".hpp", ".cu") or p.name == "train.py"}
        others |= {"share/doc/millrace/" + p.relative_to(root).as_posix() for p in documents}
        tools = [name for name in self.o.tools.split(",") if name]
        programs = {"bin/" + name for name in tools}
        rest = files - headers - programs - libraries
        expect(programs | libraries <= files, f"not installed: {sorted((programs | libraries) - files)}")
        expect(rest == others, f"beside headers and tools: {sorted(rest ^ others)}")
        for name in tools:
            said = self.run(str(self.prefix / "bin" / name), "--version")
            expect(said == f"{name} {self.o.version}\n", f"{name} --version said {said!r}")
        for name in others:
            text = pathlib.Path(self.prefix, name).read_text()
            expect(self.o.source not in text and self.o.build not in text, f"{name} holds a path of this machine")

    def case_find_package(self):
        folder, _ = self.configure("find_package", f"-DCOMPONENTS={';'.join(self.components)}", "-DTWICE=ON")
        self.build_and_run(folder)

    # A folder with an everything.hpp that is a part of the core.
    def little(self):
        folder = pathlib.Path(self.o.work, "little_" + self.o.case)
        folder.mkdir(parents=True, exist_ok=True)
        included = ("base/rng.hpp", "memory/bytes.hpp", "version.hpp")
        (folder / "everything.hpp").write_text("".join(f"#include <millrace/{name}>\n" for name in included))
        return folder

    def case_compiled(self):
        folder, _ = self.configure("compiled", f"-DCOMPONENTS={';'.join(self.components)}", "-DCOMPILED=ON")
        self.build_and_run(folder)
        made = [p for p in folder.rglob("*.o") if "millrace_compiled" in p.as_posix()]
        expect(bool(made) != bool(self.o.library), f"the installed library is {self.o.library}, and made was {made}")
        # What was not asked for is neither compiled nor linked.
        core = self.little()
        without = [f"-DMILLRACE_USE_{c.upper()}_IF_AVAILABLE=OFF" for c in self.components if c != "core"]
        folder, _ = self.configure("compiled_subdirectory", f"-DSUBDIRECTORY={self.o.source}", "-DCOMPILED=ON",
                                   f"-DEVERYTHING={core}", *without)
        self.build_and_run(folder)
        folder, _ = self.configure("compiled_core", "-DCOMPONENTS=core", "-DCOMPILED=ON", f"-DEVERYTHING={core}",
                                   "-DMILLRACE_COMPILE_BODIES=ON")
        self.build_and_run(folder)
        linked = self.run("readelf", "--dynamic", str(folder / "consumer"))
        expect(not re.search(r"libcurl|libcrypto|libarchive|libexpat|libturbojpeg", linked), linked)

    def case_pkg_config(self):
        modules = [f"millrace-{c}" for c in self.components if c not in ("video", "parquet", "mpi", "pmix", "cuda", "nvjpeg")]
        if {"s3", "tar", "jpeg"} <= set(self.components):
            modules.append("millrace")
        found = {"PKG_CONFIG_PATH": str(self.prefix / "share/pkgconfig")}
        version = self.run("pkg-config", "--modversion", modules[-1], environment=found)
        expect(version == self.o.version + "\n", version)
        flags = self.run("pkg-config", "--cflags", *modules, environment=found).split()
        libraries = self.run("pkg-config", "--libs", *modules, environment=found).split()
        folder = pathlib.Path(self.o.work, "pkg_config")
        folder.mkdir(parents=True, exist_ok=True)
        consumer = pathlib.Path(self.o.source, "tests/package/consumer")
        self.run(self.o.compiler, "-std=c++20", *flags, f"-I{self.o.everything}", str(consumer / "main.cpp"),
                 str(consumer / "second.cpp"), *libraries, "-o", str(folder / "consumer"))
        self.expect_consumer(folder)
        if self.o.library:
            compiled = self.run("pkg-config", "--cflags", "--libs", "millrace-compiled", environment=found).split()
            self.run(self.o.compiler, "-std=c++20", "-DEXPECT_SEPARATE_COMPILATION", f"-I{self.little()}",
                     str(consumer / "main.cpp"), str(consumer / "second.cpp"), *compiled, "-o", str(folder / "consumer"))
            self.expect_consumer(folder)
        if {"millrace", "millrace-s3_server"} <= set(modules):
            documents = self.prefix / "share/doc/millrace"
            self.run(self.o.compiler, "-std=c++20", *flags, f"-I{documents}", "-fsyntax-only",
                     str(documents / "examples/quickstart.cpp"))

    def case_pc_files(self):
        ours = self.prefix / "share/pkgconfig"
        folder = pathlib.Path(self.o.work, "pc_files")
        folder.mkdir(parents=True, exist_ok=True)
        absent = []
        for component in self.components:
            file, includes, calls = f"millrace-{component}", *USES[component]
            # The library of the toolkit, or the wheel, of which nothing but the folder is known; and pyarrow's wheel,
            # which has no files for pkg-config.
            cuda = f"--define-variable=cuda={self.cuda_of(component)}"
            found = {"PKG_CONFIG_PATH": f"{ours}:{os.environ.get('PKG_CONFIG_PATH', '')}"}
            if component in ("parquet", "mpi"):
                others = " ".join(re.findall("^Requires: (.*)$", (ours / f"{file}.pc").read_text(), re.MULTILINE))
                if subprocess.run(["pkg-config", "--exists", others], env={**os.environ, **found}).returncode:
                    absent.append(component)
                    continue
            flags = self.run("pkg-config", "--cflags", "--libs", cuda, file, environment=found).split()
            defined = f"MILLRACE_WITH_{component.upper()}"
            expect(component in WITHOUT_BODIES or f"-D{defined}" in flags, f"{file} does not define {defined}: {flags}")
            source = folder / f"{component}.cpp"
            source.write_text("".join(f"#include <{name}>\n" for name in ["millrace/version.hpp", *includes]) +
                              f"int main(int count, char**) {{ if (count > 9) {{ {calls}; }} return 0; }}\n")
            self.run(self.o.compiler, "-std=c++20", str(source), *flags, "-o", str(folder / component))
        if absent:
            print(f"package.pc_files: pkg-config knows none of what these need: {', '.join(absent)}")

    # The folder with include and lib64 that a user names: the toolkit's, and that of the wheel of nvJPEG beside it.
    def cuda_of(self, component):
        folder = pathlib.Path(self.o.work, "pc_cuda")
        for kind, names in (("include", ["include"]), ("lib64", ["lib64", "lib"])):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            for root in ([self.o.cuda] if self.o.cuda else []) + ([self.o.nvjpeg] if component == "nvjpeg" else []):
                for file in (f for name in names for f in pathlib.Path(root, name).glob("*")):
                    # A wheel's libraries have no name without a version.
                    link = folder / kind / re.sub(r"(libnvjpeg[.]so)[.].*", r"\1", file.name)
                    if not link.exists():
                        link.symlink_to(file.resolve())
        return folder

    def case_version(self):
        major, minor, patch = map(int, self.o.version.split("."))
        self.configure("version", f"-DVERSION={major}.{minor}")
        refused = [f"{major}.{minor + 1}", f"{major + 1}.{minor}", f"{major}.{minor}.{patch + 1}"]
        if minor > 0:
            refused.append(f"{major}.{minor - 1}")  # before 1.0 a minor version may change the interface
        for wanted in refused:
            _, output = self.configure("version", f"-DVERSION={wanted}", succeeds=False)
            expect(f'compatible with requested version "{wanted}"' in output, output)

    def case_missing(self):
        jpeg = r"millrace::jpeg needs libjpeg-turbo 2\.1 \(Debian: libjpeg-dev\)"
        png = r"millrace::png needs libspng 0\.7 \(Debian: libspng-dev\)"
        webp = r"millrace::webp needs libwebp 1\.0 \(Debian: libwebp-dev\)"
        tar = r"millrace::tar needs libarchive 3\.6 \(Debian: libarchive-dev\)"
        curl = r"libcurl 7\.88 \(Debian: libcurl4-openssl-dev\)"
        no_tar, no_curl = "-DCMAKE_DISABLE_FIND_PACKAGE_LibArchive=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON"
        no_openssl = "-DCMAKE_DISABLE_FIND_PACKAGE_OpenSSL=ON"
        cases = [
            (["-DCOMPONENTS=jpeg"], self.without_jpeg(), jpeg),
            (["-DCOMPONENTS=png;webp"], self.without_jpeg(), png + "; " + webp),
            (["-DCOMPONENTS=audio"], self.without_jpeg(),
             r"millrace::audio needs libsndfile 1\.1 \(Debian: libsndfile1-dev\) and libsoxr 0\.1\.3 \(Debian: libsoxr-dev\)"),
            (["-DCOMPONENTS=core;tar", no_tar], {}, tar),
            (["-DCOMPONENTS=tar;jpeg", no_tar], self.without_jpeg(), tar + "; " + jpeg),
            (["-DCOMPONENTS=http", no_curl], {}, "millrace::http needs " + curl),
            (["-DCOMPONENTS=s3", no_curl], {}, "millrace::s3 needs " + curl),
            (["-DCOMPONENTS=s3", no_curl, no_openssl], {},
             "millrace::s3 needs " + curl + r" and OpenSSL 3\.0 \(Debian: libssl-dev\)"),
            (["-DCOMPONENTS=dlpack", "-DCMAKE_DISABLE_FIND_PACKAGE_dlpack=ON"], {},
             r"millrace::dlpack needs the header of DLPack \(Debian: libdlpack-dev\)"),
            (["-DCOMPONENTS=cuda", "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON"], {},
             r"millrace::cuda needs the CUDA Toolkit 12\.0 \(Debian: "),
            (["-DCOMPONENTS=nvjpeg", "-Dmillrace_nvjpeg_LIBRARY=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON"],
             {}, r"millrace::nvjpeg needs the CUDA Toolkit 12\.0 \(Debian: [^)]*\) and nvJPEG \(Debian: "),
            (["-DCOMPONENTS=parquet", "-DMILLRACE_PYARROW=/nowhere"], {},
             r"millrace::parquet needs Arrow 24 and its Parquet library in /nowhere \(Debian: pip install pyarrow\)"),
            (["-DCOMPONENTS=mpi", "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"], {},
             r"millrace::mpi needs MPI \(Debian: libopenmpi-dev\)"),
            (["-DCOMPONENTS=hdf5"], {},
             "millrace::hdf5 needs to be one of core, http, s3, tar, jpeg, png, webp, audio, json, dlpack, s3_server, video, parquet, mpi, pmix, cuda, nvjpeg"),
            (["-DCOMPONENTS=core", "-DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON"], {},
             r"millrace::core needs pkg-config \(Debian: pkg-config\)"),
        ]
        for definitions, environment, pattern in cases:
            _, output = self.configure("missing", *definitions, environment=environment, succeeds=False)
            expect(re.search(pattern, output), f"{definitions}: no '{pattern}' in: {output}")

    def case_half_found(self):
        # What each package's find module gives, and which component says what when that is not all there.
        packages = [
            ("Threads", "Threads_FOUND", ["Threads::Threads"], "core", "POSIX threads"),
            ("CURL", "CURL_FOUND", ["CURL::libcurl"], "http", r"libcurl 7\.88"),
            ("OpenSSL", "OPENSSL_FOUND", ["OpenSSL::Crypto", "OpenSSL::SSL"], "s3_server", r"OpenSSL 3\.0"),
            ("EXPAT", "EXPAT_FOUND", ["EXPAT::EXPAT"], "s3", r".*expat"),
            ("LibArchive", "LibArchive_FOUND", ["LibArchive::LibArchive"], "tar", r"libarchive 3\.6"),
            ("ZLIB", "ZLIB_FOUND", ["ZLIB::ZLIB"], "tar", r".*zlib 1\.2\.11"),
            ("dlpack", "dlpack_FOUND", ["dlpack::dlpack"], "dlpack", "the header of DLPack"),
            ("MPI", "MPI_CXX_FOUND", ["MPI::MPI_CXX"], "mpi", "MPI"),
            ("CUDAToolkit", "CUDAToolkit_FOUND", ["CUDA::cudart"], "cuda", r"the CUDA Toolkit 12\.0"),
        ]
        wanted = f"-DCOMPONENTS={';'.join(dict.fromkeys(component for *_, component, _ in packages))}"
        modules = pathlib.Path(self.o.work, "half_found_modules")
        shutil.rmtree(modules, ignore_errors=True)
        modules.mkdir(parents=True)
        # As FindMPI where there is no MPI; as a module that is older than targets; as with a cache of what was removed.
        for found, made, inside, why in (("FALSE", True, "", ""), ("TRUE", False, "", ""),
                                         ("TRUE", True, "INTERFACE_INCLUDE_DIRECTORIES /gone/include", "/gone/include"),
                                         ("TRUE", True, "IMPORTED_LOCATION /gone/libx.so", "/gone/libx.so"),
                                         ("TRUE", True, 'INTERFACE_LINK_LIBRARIES "m;/gone/liby.so"', "/gone/liby.so")):
            for module, variable, targets, *_ in packages:
                text = f"set({variable} {found})\n"
                for target in targets if made else []:
                    text += f"if(NOT TARGET {target})\n  add_library({target} UNKNOWN IMPORTED)\nendif()\n"
                    if inside:
                        text += f'set_target_properties({target} PROPERTIES {inside})\n'
                (modules / f"Find{module}.cmake").write_text(text)
            _, output = self.configure("half_found", wanted, f"-DCMAKE_MODULE_PATH={modules}", succeeds=False)
            for *_, component, what in packages:
                pattern = rf"millrace::{component} needs {what} \(Debian: [^)]*{re.escape(why)}[^)]*\)"
                expect(re.search(pattern, output), f"found {found}, {inside}: no '{pattern}' in: {output}")
        # MPI's own module, where nothing is installed.
        no_mpi = "-DMPI_EXECUTABLE_SUFFIX=.absent"
        needs_mpi = r"millrace::mpi needs MPI \(Debian: libopenmpi-dev\)"
        _, output = self.configure("half_found", "-DCOMPONENTS=mpi", no_mpi, environment=self.without_jpeg(), succeeds=False)
        expect(re.search(needs_mpi, output), output)
        _, output = self.configure("half_found", f"-DSUBDIRECTORY={self.o.source}", "-DMILLRACE_REQUIRE_MPI=ON", no_mpi,
                                   environment=self.without_jpeg(), succeeds=False)
        expect(re.search(needs_mpi, output), output)
        self.forgotten_library()

    # A library of pkg-config's that is removed, and comes back, between two runs in one build folder.
    def forgotten_library(self):
        modules = self.without_jpeg()
        prefix = pathlib.Path(self.o.work, "forgotten")
        shutil.rmtree(prefix, ignore_errors=True)
        (prefix / "lib").mkdir(parents=True)
        library = prefix / "lib/libsimdjson.so"
        pathlib.Path(modules["PKG_CONFIG_LIBDIR"], "simdjson.pc").write_text(
            f"Name: simdjson\nDescription: none\nVersion: 3.1\nLibs: -L{prefix}/lib -lsimdjson\n")
        library.write_text("")
        folder, _ = self.configure("forgotten_build", "-DCOMPONENTS=json", environment=modules)
        library.unlink()
        again = (self.o.cmake, "-S", f"{self.o.source}/tests/package/consumer", "-B", str(folder))
        output = re.sub(r"\s+", " ", self.run(*again, environment=modules, succeeds=False))
        pattern = rf"millrace::json needs simdjson 3\.0 \(Debian: libsimdjson-dev, of which {library} is gone\)"
        expect(re.search(pattern, output), f"no '{pattern}' in: {output}")
        library.write_text("")
        self.run(*again, environment=modules)

    def linked_libraries(self, modules, environment):
        """What pkg-config links, and what the find_package() of all components does."""
        said = self.run("pkg-config", "--libs", *modules, environment=environment)
        folder, _ = self.configure("private_build", f"-DCOMPONENTS={';'.join(self.components)}", environment=environment)
        graph = self.run(self.o.cmake, "--graphviz=" + str(folder / "graph.dot"), str(folder), environment=environment)
        expect("Generating done" in graph, graph)
        return {w for w in said.split() if w.startswith("-l")}, set(re.findall(r'lib(\w+)\.so', (folder / "graph.dot").read_text()))

    # Newer versions make private what older ones named: libwebpdemux did with libwebp.
    def case_private(self):
        modules = [f"millrace-{c}" for c in self.components if c not in ("video", "parquet", "mpi", "pmix", "cuda", "nvjpeg")]
        ours = self.prefix / "share/pkgconfig"
        folder = pathlib.Path(self.o.work, "pkgconfig_private")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        paths = {path for path in os.environ.get("PKG_CONFIG_PATH", "").split(":") if path}
        paths |= set(self.run("pkg-config", "--variable=pc_path", "pkg-config").strip().split(":"))
        for path in paths:
            for file in pathlib.Path(path).glob("*.pc"):
                if not file.name.startswith("millrace"):
                    text = file.read_text()
                    (folder / file.name).write_text(re.sub(r"^Requires:", "Requires.private:", text, flags=re.MULTILINE))
        plain = self.linked_libraries(modules, {"PKG_CONFIG_PATH": f"{ours}:{os.environ.get('PKG_CONFIG_PATH', '')}"})
        hidden = self.linked_libraries(modules, {"PKG_CONFIG_PATH": str(ours), "PKG_CONFIG_LIBDIR": str(folder)})
        for what, a, b in zip(("pkg-config", "CMake"), plain, hidden):
            expect(a and a == b, f"{what} links {sorted(a)}, and {sorted(b)} where libraries name others as private")

    # Arrow's own files refuse every other major version, as write_basic_package_version_file(SameMajorVersion) has it.
    def case_newer(self):
        folder = pathlib.Path(self.o.work, "newer_packages")
        for version, taken in (("25.0.0", True), ("23.0.1", False)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for name in ("Arrow", "Parquet"):
                target = f"{name}::{name.lower()}_shared"
                (folder / f"{name}Config.cmake").write_text(
                    f"if(NOT TARGET {target})\n  add_library({target} INTERFACE IMPORTED)\nendif()\n")
                (folder / f"{name}ConfigVersion.cmake").write_text(
                    f'set(PACKAGE_VERSION {version})\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n'
                    f'if(PACKAGE_FIND_VERSION AND NOT PACKAGE_FIND_VERSION_MAJOR EQUAL {version.split(".")[0]})\n'
                    f'  set(PACKAGE_VERSION_COMPATIBLE FALSE)\nendif()\n')
            _, output = self.configure("newer", "-DCOMPONENTS=parquet", f"-DArrow_DIR={folder}", f"-DParquet_DIR={folder}",
                                       "-DMILLRACE_PYTHON3=OFF", environment={"MILLRACE_PYARROW": ""}, succeeds=taken)
            expect(taken != ("needs Arrow 24 and its Parquet library" in output), f"Arrow {version}: {output}")
            # A wheel has it so.
            major = version.split(".")[0]
            wheel = folder / "pyarrow"
            files = {"include/arrow/util/config.h": f"#define ARROW_VERSION_MAJOR {major}\n",
                     "include/parquet/arrow/reader.h": "", f"libarrow.so.{major}00": "", f"libparquet.so.{major}00": ""}
            for name, text in files.items():
                (wheel / name).parent.mkdir(parents=True, exist_ok=True)
                (wheel / name).write_text(text)
            _, output = self.configure("newer", "-DCOMPONENTS=parquet", f"-DMILLRACE_PYARROW={wheel}", succeeds=taken)
            lacks = f"needs Arrow 24 and its Parquet library in {wheel}"
            expect(taken != (lacks in output), f"Arrow {version} of a wheel: {output}")

    def case_optional(self):
        folder, _ = self.configure("optional", "-DCOMPONENTS=core", "-DOPTIONAL_COMPONENTS=jpeg",
                                   environment=self.without_jpeg())
        text = (folder / "build.ninja" if self.o.generator == "Ninja" else folder / "CMakeCache.txt").read_text()
        expect("libjpeg" not in text, "an optional component that is missing is linked all the same")

    def case_add_subdirectory(self):
        folder, output = self.configure("add_subdirectory", f"-DSUBDIRECTORY={self.o.source}", "-DPRECOMPILED=ON")
        expect("Catch2" not in output and "is not built" not in output, f"the configure output speaks of tests: {output}")
        cache = (folder / "CMakeCache.txt").read_text()
        for word in ("MILLRACE_WERROR", "MILLRACE_SANITIZE", "Catch2_DIR", "FETCHCONTENT"):
            expect(word not in cache, f"the consumer's cache holds {word}")
        targets = self.run(self.o.cmake, "--build", str(folder), "--target", "help")
        expect(not re.search(r"\b(test_|example_|bench_|millrace_headers|millrace-(cache|cat|index|ls|plan|reshard|verify))", targets), f"targets of ours: {targets}")
        tests = self.run(str(pathlib.Path(self.o.cmake).with_name("ctest")), "--test-dir", str(folder), "-N", succeeds=None)
        expect(not re.search(r"Total Tests: [1-9]", tests), f"tests of ours: {tests}")
        self.build_and_run(folder)
        into = pathlib.Path(self.o.work, "consumer_prefix")
        self.run(self.o.cmake, "--install", str(folder), "--prefix", str(into))
        expect(not any(into.rglob("*.hpp")), "installing the consumer installs the library")

    def case_required(self):
        _, output = self.configure("required", f"-DSUBDIRECTORY={self.o.source}", "-DMILLRACE_REQUIRE_TAR=ON",
                                   "-DCMAKE_DISABLE_FIND_PACKAGE_LibArchive=ON", succeeds=False)
        expect(re.search(r"millrace::tar needs libarchive 3\.6 \(Debian: libarchive-dev\)", output), output)
        _, output = self.configure("required", f"-DSUBDIRECTORY={self.o.source}", "-DMILLRACE_USE_TAR_IF_AVAILABLE=OFF")
        expect("millrace::tar is switched off" in output, output)

    # What a machine has on which a reader types recipes: the compiler as c++, which does not optimise here (that takes
    # minutes, and is tried by optimised_user), sudo, and a root that gets /usr/local.
    def machine_of_a_reader(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "bin").mkdir(parents=True)
        root = pathlib.Path(folder, "root")
        for name, does in (("c++", f'{self.o.launcher.replace(";", " ")} {self.o.compiler} "$@" -O0'),
                           ("cmake", f'{self.o.cmake} "$@"'), ("sudo", '"$@"'),
                           ("apt-get", f'printf "%s\\n" "$@" > {folder}/apt-get.txt')):
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
            (folder / "bin" / name).chmod(0o755)
        paths = [str(root / "usr/local/share/pkgconfig"), os.environ.get("PKG_CONFIG_PATH", "")]
        return {"PATH": f"{folder}/bin:{os.environ['PATH']}", "DESTDIR": str(root), "CXX": self.o.compiler,
                "CMAKE_GENERATOR": self.o.generator, "PKG_CONFIG_PATH": ":".join(filter(None, paths))}

    # The shell recipes of a page, by the heading that each stands under.
    def recipes_of(self, page):
        found, heading = {}, ""
        text = pathlib.Path(self.o.source, page).read_text()
        for title, recipe in re.findall(r"^##+ ([^\n]+)$|^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            heading = title or heading
            if recipe:
                found.setdefault(heading, []).append(recipe)
        return found

    def case_recipes(self):
        absent = {"s3", "tar", "jpeg", "png", "webp", "audio"} - set(self.components)
        if absent:
            raise skipped(f"the recipes name components that are not here: {', '.join(sorted(absent))}")
        folder = pathlib.Path(self.o.work, "recipes")
        reader = self.machine_of_a_reader(folder)
        source = pathlib.Path(self.o.source)
        for name in ("CMakeLists.txt", "LICENSE", "README.md", "cmake", "docs", "examples", "include", "src"):
            copy = shutil.copytree if (source / name).is_dir() else shutil.copy
            copy(source / name, folder / name)
        for program in (source / "tests/package/recipes").glob("*.cpp"):
            shutil.copy(program, folder)

        def type_in(recipe, said=None):
            script = f"cd {folder}\n{recipe}"
            self.run("bash", "-euo", "pipefail", "-c", script, environment=reader)
            if said is not None:
                heard = self.run(str(folder / "train"))
                expect(heard == said, f"the program of\n{recipe}said {heard!r} and not {said!r}")
                (folder / "train").unlink()

        readme = self.recipes_of("README.md")
        # Those of the other headings build the whole project; "Use it" is what a user of the library types.
        expect(set(readme) == {"Try it", "Use it"}, f"recipes under {sorted(readme)}")
        debian, installed, linked = readme["Use it"]
        type_in(debian)
        packages = (folder / "apt-get.txt").read_text().split()
        needed = re.findall(r'_millrace_lacks\(".*" "(\S+)"\)|_millrace_pkg_config\(.* "(\S+)"\)',
                            (source / "cmake/millrace-dependencies.cmake").read_text())
        lacking = {a or b for a, b in needed} - set(packages) - {"${package}", "libc6-dev", "libopenmpi-dev", "libpmix-dev"}
        expect(not lacking, f"the README does not install {sorted(lacking)}")
        type_in(installed)
        type_in(linked, "jpeg: broken; png: absent; webp: absent; alone\n")

        guide = self.recipes_of("docs/guide/compiling.md")
        expect([(heading, len(found)) for heading, found in guide.items()]
               == [("Compiled", 1), ("Precompiled", 1), ("Header-only", 1)], f"recipes of the guide: {guide}")
        type_in(guide["Header-only"][0], "jpeg: broken; png: absent; webp: absent; alone\n")
        type_in(guide["Compiled"][0], "jpeg: broken; png: broken; webp: broken; audio: broken; evaluated\n")
        type_in(guide["Precompiled"][0])
        expect((folder / "train.o").is_file() and (folder / "all.hpp.gch").is_file(), "nothing was precompiled")

    def case_tarballs(self):
        folder = pathlib.Path(self.o.work, "tarballs")
        shutil.rmtree(folder, ignore_errors=True)
        self.run(self.o.cmake, "-S", self.o.source, "-B", str(folder), "-G", self.o.generator,
                 f"-DCMAKE_CXX_COMPILER={self.o.compiler}", *NOTHING_BUILT)
        cpack = str(pathlib.Path(self.o.cmake).with_name("cpack"))
        self.run(cpack, "-G", "TGZ", "--config", str(folder / "CPackConfig.cmake"), "-B", str(folder / "installed"))
        self.run(cpack, "-G", "TGZ", "--config", str(folder / "CPackSourceConfig.cmake"), "-B", str(folder))
        packed = self.files_of(next((folder / "installed").glob("millrace-*.tar.gz")))
        here = {p.relative_to(self.prefix).as_posix() for p in self.prefix.rglob("*") if p.is_file()}
        here = {name for name in here if not name.startswith("bin/") and name != self.o.library
                and "millrace-compiled.pc" not in name}
        expect(here and packed == here, f"not both packed and installed: {sorted(packed ^ here)}")
        sources = self.files_of(folder / f"millrace-{self.o.version}.tar.gz")
        expect({"LICENSE", "CMakeLists.txt", ".ci/run", "include/millrace/millrace.hpp"} <= sources, sorted(sources)[:20])
        if not shutil.which("git"):
            raise skipped("what the sources' tarball has is compared with git's list, and there is no git")
        listed = subprocess.run(["git", "-C", self.o.source, "ls-files", "--cached", "--others", "--exclude-standard"],
                                capture_output=True, text=True)
        if listed.returncode == 0:
            names = {name for name in listed.stdout.splitlines() if pathlib.Path(self.o.source, name).is_file()}
            expect(sources == names, f"not both sources and packed: {sorted(sources ^ names)}")

    @staticmethod
    def files_of(tarball):
        """The names of the files of a tarball below its one folder."""
        with tarfile.open(tarball) as tar:
            return {m.name.split("/", 1)[1] for m in tar if m.isfile()}

    def case_debian(self):
        debian = pathlib.Path(self.o.source, "packaging/debian")
        control = (debian / "control").read_text()
        changelog = (debian / "changelog").read_text()
        expect(changelog.startswith(f"millrace ({self.o.version}-1) "), f"another version: {changelog.splitlines()[0]}")
        found = pathlib.Path(self.o.source, "cmake/millrace-dependencies.cmake").read_text()
        needed = {a or b for a, b in re.findall(r'_needs\(.* "([a-z0-9-]+)" |_pkg_config\(.* "([a-z0-9-]+)"\)', found)}
        expect("libcurl4-openssl-dev" in needed and "libspng-dev" in needed, sorted(needed))
        lacking = {name for name in needed - {"libc6-dev"} if not re.search(rf"\b{re.escape(name)}\b", control)}
        expect(not lacking, f"packaging/debian/control does not name {sorted(lacking)}")
        absent = [tool for tool in ("dpkg-buildpackage", "dh", "lintian") if not shutil.which(tool)]
        if absent:
            raise skipped(f"there is no {', '.join(absent)} (Debian: dpkg-dev, debhelper, lintian)")
        folder = pathlib.Path(self.o.work, "debian")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        original = folder / f"millrace_{self.o.version}.orig.tar.gz"
        shutil.copy(pathlib.Path(self.o.work, "tarballs", f"millrace-{self.o.version}.tar.gz"), original)
        self.run("tar", "--extract", "--file", str(original), "--directory", str(folder))
        tree = folder / f"millrace-{self.o.version}"
        shutil.copytree(tree / "packaging/debian", tree / "debian")
        self.run("env", "-C", str(tree), "dpkg-buildpackage", "--unsigned-source", "--unsigned-changes", "--build=source,all",
                 environment={"DESTDIR": ""})
        changes, = folder.glob("*.changes")
        self.run("lintian", "--fail-on", "error,warning", "--allow-root", str(changes))
        package, = folder.glob("libmillrace-dev_*.deb")
        root = folder / "root"
        self.run("dpkg-deb", "--extract", str(package), str(root))
        files = {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}
        wanted = {p.relative_to(self.prefix).as_posix() for p in (self.prefix / "include").rglob("*") if p.is_file()}
        expect(wanted and {"usr/" + name for name in wanted} <= files, "headers are not in the package")
        pairs = f"{root}/usr/share/pkgconfig:{os.environ.get('PKG_CONFIG_PATH', '')}"
        (folder / "test").mkdir()
        output = self.run("env", "-C", str(tree), "debian/tests/readme", environment={
            "PKG_CONFIG_PATH": pairs, "CMAKE_PREFIX_PATH": f"{root}/usr", "AUTOPKGTEST_TMP": str(folder / "test"),
            "CXX": f"{self.o.launcher} {self.o.compiler}".replace(";", " ").strip()})
        expect("the README's program runs" in output, output)

    def case_vcpkg(self):
        port = pathlib.Path(self.o.source, "packaging/vcpkg/millrace")
        described = json.loads((port / "vcpkg.json").read_text())
        expect(described["version"] == self.o.version, f"the port is of {described['version']}")
        folder = pathlib.Path(self.o.work, "vcpkg")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        installed = folder / "installed"
        if shutil.which("vcpkg"):  # with no default features, which vcpkg would build
            self.run("vcpkg", "install", "millrace[core]", f"--overlay-ports={port.parent}", f"--x-install-root={installed}")
            prefix = next(installed.glob("*/share/millrace/copyright")).parents[2]
        else:
            prefix = installed
            (folder / "vcpkg.cmake").write_text(f"""set(CURRENT_PORT_DIR "{port}")
set(CURRENT_PACKAGES_DIR "{prefix}")
function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 a "" SOURCE_PATH OPTIONS)
  execute_process(COMMAND "{self.o.cmake}" -S ${{a_SOURCE_PATH}} -B "{folder}/build" -G "{self.o.generator}"
    "-DCMAKE_INSTALL_PREFIX={prefix}" "-DCMAKE_CXX_COMPILER={self.o.compiler}" ${{a_OPTIONS}} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
function(vcpkg_cmake_install)
  execute_process(COMMAND "{self.o.cmake}" --install "{folder}/build" COMMAND_ERROR_IS_FATAL ANY)
endfunction()
function(vcpkg_fixup_pkgconfig)
endfunction()
function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 a "" "" FILE_LIST)
  file(INSTALL ${{a_FILE_LIST}} DESTINATION "{prefix}/share/millrace" RENAME copyright)
endfunction()
include("{port}/portfile.cmake")
""")
            self.run(self.o.cmake, "-P", str(folder / "vcpkg.cmake"))
            print("package.vcpkg: there is no vcpkg; its functions were stood in for")
        # As vcpkg looks over what a port has installed.
        stray = [p for p in prefix.rglob("*.cmake") if p.parent != prefix / "share/millrace"]
        expect(not stray, f"files of CMake outside of share/millrace: {stray}")
        expect((prefix / "share/millrace/copyright").is_file() and not (prefix / "share/doc").exists(), "share/")
        self.prefix = prefix
        consumer, _ = self.configure("vcpkg_consumer", "-DCOMPONENTS=core", f"-DEVERYTHING={self.little()}")
        self.build_and_run(consumer)
        without = set(described["features"]) ^ {c.replace("_", "-") for c in USES}
        expect(without == {"core", "pmix", "nvjpeg"}, f"features and components differ in {sorted(without)}")

    def case_conan(self):
        conan = os.environ.get("MILLRACE_CONAN", "")
        program = f"{conan}/bin/conan" if conan else shutil.which("conan")
        if not program:
            raise skipped("there is no conan (PyPI: conan; MILLRACE_CONAN names the folder that it is in)")
        home = pathlib.Path(self.o.work, "conan")
        shutil.rmtree(home, ignore_errors=True)
        environment = {"CONAN_HOME": str(home), "CXX": self.o.compiler, "DESTDIR": ""}
        if conan:
            environment["PYTHONPATH"] = conan
        recipe = pathlib.Path(self.o.source, "packaging/conan")
        self.run(program, "profile", "detect", environment=environment)
        # The libraries of the distribution: no registry is asked.
        output = self.run(program, "create", str(recipe), "-o", "&:system=True", "-s", "compiler.cppstd=20", "--no-remote",
                          "-tf", "", environment=environment)
        expect(f"millrace/{self.o.version}" in output, output)
        consumer = home / "test_package"
        shutil.copytree(recipe / "test_package", consumer)
        output = self.run(program, "test", str(consumer), f"millrace/{self.o.version}", "-o", "millrace/*:system=True",
                          "-s", "compiler.cppstd=20", "--no-remote", environment=environment)
        expect(f"millrace {self.o.version}: slice" in output, output)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case")
    for name in ("cmake", "generator", "compiler", "launcher", "source", "build", "work", "everything", "version",
                 "components"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--tools", default="", help="the programs that are built")
    parser.add_argument("--library", default="", help="the library of the bodies below the prefix, where it is installed")
    parser.add_argument("--cuda", default="", help="the folder of the CUDA Toolkit, where it was found")
    parser.add_argument("--nvjpeg", default="", help="the folder with include/ and lib/ of nvJPEG, where it was found")
    options = parser.parse_args()
    try:
        getattr(package(options), "case_" + options.case)()
    except failure as error:
        print(f"package.{options.case}: {error}")
        return 1
    except skipped as error:
        print(f"package.{options.case}: skipped: {error}")
        return 77
    print(f"package.{options.case}: as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
