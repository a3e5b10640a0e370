#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tar shards with the tools that people make them with: GNU tar, Python's tarfile and the webdataset package.

make_shards() also gives the manifest of the shards: every sample in order, as Python's tarfile and WebDataset's rule of
grouping read them. Where webdataset itself is there, it must agree.
"""

import hashlib
import io
import os
import pathlib
import random
import re
import subprocess
import sys
import tarfile

LARGE = 9 * 1024 * 1024 + 123  # more than a part of fetch()


def raw(name):
    """The bytes of a name that tarfile or os has decoded."""
    return name.encode("utf-8", "surrogateescape")


def members(seed):
    """(name, body) of a data set with everything that names and sizes do to a tar header."""
    rng = random.Random(seed)
    deep = "/".join(f"folder{n:02d}" for n in range(9))  # 80 bytes
    result = []
    for n in range(20):
        result.append((f"{n:06d}.jpg", rng.randbytes(rng.randrange(1, 70000))))
        result.append((f"{n:06d}.cls", str(n % 10).encode()))
        result.append((f"{n:06d}.seg.PNG", rng.randbytes(512 * (n % 4))))  # also empty, also whole blocks
    result.append(("a/b/c/nested.txt", b"nested"))
    result.append(("a/b.d/c/dot in folder.txt", b"dots"))
    result.append((f"{deep}/name.json", b"{}"))
    result.append(("no extension", b"passed over"))
    result.append(("__meta__/info.json", b"passed over"))
    result.append(("large.bin", rng.randbytes(LARGE)))
    result.append(("large.empty", b""))
    result.append(("quote\"d and spaced.txt", b"quoted"))
    return result


def long_members():
    """Names that only the formats since 1988 can hold."""
    folder = "/".join("f" * 40 for _ in range(3))
    return [(f"{folder}/{'n' * 60}.txt", b"more than 100 bytes"), ("x" * 96 + ".bin", b"exactly 100 bytes")]


def longest_members():
    """Names beyond the 255 bytes of ustar, and names that are not ASCII."""
    folder = "/".join("g" * 100 for _ in range(4))
    return [
        (f"{folder}/long.jpg", b"more than 255 bytes"),
        (f"{folder}/long.cls", b"7"),
        ("k" * 240 + ".txt", b"a long base name"),
        ("\u00e4\u00f6\u00fc/\u65e5\u672c\u8a9e.txt", b"unicode"),
        ("\u00e4\u00f6\u00fc/\u65e5\u672c\u8a9e.\u62e1\u5f35", b"unicode extension"),
        ("\U0001f40e" * 60 + ".jpg", b"240 bytes of four-byte characters"),
    ]


def tiny_members(count):
    result = []
    for n in range(count):
        result.append((f"t/{n:05d}.cls", str(n).encode()))
        result.append((f"t/{n:05d}.txt", b"" if n % 3 == 0 else b"text %d" % n))
    return result


def with_gnu_tar(folder, path, tar_format, what, compress):
    """GNU tar packs files, folders and a symbolic link."""
    tree = folder / (path.name + ".tree")
    for name, body in what:
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(body)
    (tree / "link.txt").symlink_to("a")
    command = ["tar", f"--format={tar_format}", "--sort=name", "-C", str(tree), "-cf", str(path)]
    subprocess.run(command + (["-z"] if compress else []) + ["."], check=True, env={**os.environ, "LC_ALL": "C"})


def with_python(path, tar_format, what, mode):
    with tarfile.open(path, mode, format=tar_format) as tar:
        folder = tarfile.TarInfo("a folder.d")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for n, (name, body) in enumerate(what):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            # A pax header before every member: a time with a fraction.
            info.mtime = 1700000000.125 + n if tar_format == tarfile.PAX_FORMAT else 1700000000 + n
            tar.addfile(info, io.BytesIO(body))


def with_webdataset(path, what):
    import webdataset
    samples = {}
    for name, body in what:
        key, extension = split(name)
        if key is not None and not re.match(r"__[^/]*__($|/)", name):
            samples.setdefault(key, {"__key__": key})[extension] = body
    with webdataset.TarWriter(str(path), encoder=False) as writer:
        for sample in samples.values():
            writer.write(sample)


def split(name):
    """webdataset's base_plus_ext."""
    match = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", name)
    return match.groups() if match else (None, None)


def regular_files(path):
    with tarfile.open(path, "r|*") as tar:
        for info in tar:
            if info.isreg():
                yield info.name, tar.extractfile(info).read()


def samples_of(path):
    """[(key, [(extension, body)])]: WebDataset's rule, written once more."""
    samples = []
    for name, body in regular_files(path):
        key, extension = split(name)
        if key is None or re.match(r"__[^/]*__($|/)", name):
            continue
        if not samples or samples[-1][0] != key:
            samples.append((key, []))
        samples[-1][1].append((extension.lower(), body))
    return samples


def samples_by_webdataset(path):
    from webdataset.tariterators import group_by_keys, tar_file_iterator
    with open(path, "rb") as stream:
        files = [dict(f, __url__=str(path)) for f in tar_file_iterator(stream)]
    return [(s["__key__"], [(k, v) for k, v in s.items() if not k.startswith("__")]) for s in group_by_keys(files)]


def install_webdataset(folder):
    """Makes webdataset importable; the reason when it cannot be."""
    try:
        import webdataset  # noqa: F401
        return None
    except ImportError:
        pass
    try:
        done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries",
                               "0", "--target", str(folder), "webdataset"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=90)
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        sys.path.insert(0, str(folder))
        import webdataset  # noqa: F401
        return None
    except (subprocess.TimeoutExpired, ImportError) as fault:
        return str(fault)


def write_shards(folder, webdataset_there):
    """The shards, as {name: path}."""
    ustar = members(1) + long_members()
    every = ustar + longest_members()
    paths = {}

    def add(name):
        paths[name] = folder / name
        return folder / name

    with_gnu_tar(folder, add("gnu-v7.tar"), "v7", members(2), False)
    with_gnu_tar(folder, add("gnu-ustar.tar"), "ustar", ustar, False)
    with_gnu_tar(folder, add("gnu-gnu.tar"), "gnu", every, False)
    with_gnu_tar(folder, add("gnu-pax.tar"), "pax", every, False)
    with_gnu_tar(folder, add("gnu-gnu.tar.gz"), "gnu", every, True)
    with_gnu_tar(folder, add("gnu-tiny.tar"), "gnu", tiny_members(500), False)
    with_python(add("python-pax.tar"), tarfile.PAX_FORMAT, every, "w")
    with_python(add("python-ustar.tar"), tarfile.USTAR_FORMAT, ustar, "w")
    with_python(add("python-gnu.tar"), tarfile.GNU_FORMAT, every, "w")
    with_python(add("python-pax.tgz"), tarfile.PAX_FORMAT, every, "w:gz")
    with_python(add("python-tiny.tar"), tarfile.PAX_FORMAT, tiny_members(3000), "w")
    with_python(add("python-tiny.tar.bz2"), tarfile.PAX_FORMAT, tiny_members(300), "w:bz2")
    with_python(add("python-tiny.tar.xz"), tarfile.PAX_FORMAT, tiny_members(300), "w:xz")
    if webdataset_there:
        with_webdataset(add("webdataset.tar"), ustar)
        with_webdataset(add("webdataset.tar.gz"), ustar)
        with_webdataset(add("webdataset-tiny.tar"), tiny_members(3000))
    return paths


def make_shards(folder):
    """Writes the shards and gives (paths by name, manifest by name, notes)."""
    folder = pathlib.Path(folder)
    why_not = install_webdataset(folder / "packages")
    notes = [f"skipped: shards and reading by webdataset: {why_not}"] if why_not else []
    paths = write_shards(folder, why_not is None)
    manifest = {}
    for name, path in paths.items():
        samples = samples_of(path)
        if why_not is None and samples_by_webdataset(path) != samples:
            raise AssertionError(f"webdataset reads {name} otherwise than this program")
        manifest[name] = manifest_of(path)
    return paths, manifest, notes


def manifest_of(path):
    """The samples of a shard as the reader's program shows them."""
    return [{"ordinal": n, "key": raw(key).hex(),
             "fields": [[raw(e).hex(), len(body), hashlib.sha256(body).hexdigest()] for e, body in fields]}
            for n, (key, fields) in enumerate(samples_of(path))]
