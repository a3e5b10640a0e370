#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Starts an S3 server of another project and tests the library with it: Ceph's gateway, which
judges every signature by itself, or moto, which spells many an answer in its own way.

  conformance     keys, listings, ranges, conditions, refusals, uploads: test_real_server_conformance
  role            a part of it once more with temporary credentials from the server's STS; those shards read with
                  credentials that the library asks STS for, as a profile says
  shards          shards made by other tools, uploaded by another client, read by test_real_server_reader with parts of
                  several sizes and compared with what Python reads, byte for byte
  parts           a shard that boto3 has uploaded in parts, with each kind of checksum, the same way
  quickstart      examples/quickstart.cpp, unchanged

Ends with 77 where the server cannot be had.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import shards_by_other_tools
import upload

HERE = pathlib.Path(__file__).resolve().parent
KiB = 1024
MiB = 1024 * KiB
TIME_LIMIT = 270  # seconds

# Part, window and objects at once. The smallest parts cut bodies, parts that are no multiple of 512 cut inside of
# headers.
PARTS = [(None, None, None), (64 * KiB, 128 * KiB, 3), (64 * KiB + 1, MiB, 1), (100001, 500000, 8)]


# What each server is asked to show. moto looks at no signature, answers for buckets in the path alone, and routes no
# keys with line feeds (MILLRACE_TEST_NO_LINE_FEEDS).
CHECKS = {"radosgw": [],  # all
          "moto": ["hostile_keys", "listing_rules", "long_listing", "ranges", "changed_objects", "missing_things",
                   "streams", "broken_streams", "new_objects_only"]}


class Failure(Exception):
    pass


def server(name, what, folder, packages):
    environment = {**os.environ, "MILLRACE_TEST_PYTHON": sys.executable, "MILLRACE_TEST_PACKAGES": packages}
    return subprocess.run(["bash", str(HERE / f"{name}.sh"), what, str(folder)], stdin=subprocess.DEVNULL,
                          env=environment, capture_output=True, text=True)


def clean_environment(server_folder):
    """The environment of clients: this server and no proxy, configuration file or key of the user's."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith("AWS_") and not k.lower().endswith("_proxy")}
    for line in (server_folder / "environment").read_text().splitlines():
        name, value = line.split("=", 1)
        kept[name] = value
    return kept


def check_conformance(program, environment, store, checks):
    store.create_bucket("presigned")
    store.put("presigned", "by another tool/a+b c%.txt", b"made by another tool")
    url = store.presign("presigned", "by another tool/a+b c%.txt")
    done = subprocess.run([program, "conformance", *checks], env={**environment, "MILLRACE_TEST_PRESIGNED_URL": url},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150)
    print(done.stdout + done.stderr, end="")
    if done.returncode != 0:
        raise Failure("the conformance checks failed")


def with_role(environment, store):
    """The environment with temporary credentials in the place of the keys."""
    key, secret, token = store.assume_role(environment["MILLRACE_TEST_ROLE"])
    return {**environment, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": token}


def check_role(program, environment, store):
    if not environment["MILLRACE_TEST_ROLE"]:
        print("skipped: temporary credentials: the server has no role to take on")
        return
    temporary = with_role(environment, store)
    run = lambda e, *checks: subprocess.run([program, "by-role", *checks], env=e, stdin=subprocess.DEVNULL,
                                            capture_output=True, text=True, timeout=150)
    done = run(temporary, "listing_rules", "ranges", "clock_skew", "presigned", "virtual_hosts", "streams")
    print(done.stdout + done.stderr, end="")
    if done.returncode != 0:
        raise Failure("the checks with temporary credentials failed")
    token = temporary["AWS_SESSION_TOKEN"]
    for what, changed in (("without its token", ""), ("with a wrong token", token[:-8] + token[-8:].swapcase())):
        done = run({**temporary, "AWS_SESSION_TOKEN": changed}, "listing_rules")
        if done.returncode == 0 or "403" not in done.stderr:
            raise Failure(f"a temporary key {what} was not refused: {done.stdout}{done.stderr}")


def profile_environment(environment, work):
    """The environment without keys, with a profile that takes on the role instead."""
    (work / "config").write_text(
        f"[profile by-role]\nrole_arn = {environment['MILLRACE_TEST_ROLE']}\nsource_profile = base\n"
        f"[profile base]\naws_access_key_id = {environment['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {environment['AWS_SECRET_ACCESS_KEY']}\n")
    kept = {k: v for k, v in environment.items() if k not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    return {**kept, "AWS_CONFIG_FILE": str(work / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(work / "none"),
            "AWS_PROFILE": "by-role", "AWS_ENDPOINT_URL_STS": environment["AWS_ENDPOINT_URL_S3"],
            "AWS_EC2_METADATA_DISABLED": "true"}


def read(program, environment, url, part, window, shards):
    sizes = [] if part is None else [str(part), str(window), str(shards)]
    done = subprocess.run([program, url] + sizes, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=150)
    if done.returncode != 0:
        raise Failure(f"reading {url} with parts of {part}: {done.stderr.strip()}")
    by_shard = collections.defaultdict(list)
    for line in done.stdout.splitlines():
        sample = json.loads(line)
        by_shard[bytes.fromhex(sample.pop("url")).decode()].append(sample)
    return by_shard


def compare(prefix, names, manifest, found, how):
    expected = [f"{prefix}{name}" for name in sorted(names)]
    if list(found) != expected:
        raise Failure(f"{how}: the shards are {list(found)}, not {expected}")
    for name in names:
        have = found[prefix + name]
        for n, (theirs, ours) in enumerate(zip(manifest[name], have)):
            if theirs != ours:
                raise Failure(f"{how}: sample {n} of {name} is\n  {ours}\nand not\n  {theirs}")
        if len(have) != len(manifest[name]):
            raise Failure(f"{how}: {name} has {len(have)} samples and not {len(manifest[name])}")


def check_shards(program, environment, store, work):
    paths, manifest, notes = shards_by_other_tools.make_shards(work)
    for note in notes:
        print(note)
    with open(work / "manifest.jsonl", "w") as out:
        for name, samples in manifest.items():
            for sample in samples:
                print(json.dumps({"shard": name, **sample}), file=out)
    store.create_bucket("shards")
    prefix = "s3://shards/made by other tools/"
    for name, path in paths.items():
        store.put("shards", f"made by other tools/{name}", path.read_bytes())
    for sizes in PARTS:
        compare(prefix, paths, manifest, read(program, environment, prefix, *sizes), f"parts, window, shards: {sizes}")
    if environment["MILLRACE_TEST_ROLE"]:
        found = read(program, profile_environment(environment, work), prefix, *PARTS[0])
        compare(prefix, paths, manifest, found, "with a role")
    samples = sum(len(s) for s in manifest.values())
    print(f"{len(paths)} shards with {samples} samples, uploaded by {store.name}, read {len(PARTS)} "
          "times: all equal")


def check_parts(program, environment, store, work):
    """Three parts of 5 MiB, of which the last is shorter: each checksum that boto3 can compute here."""
    if not hasattr(store, "put_in_parts"):
        print("skipped: uploads in parts by boto3, which is not installed")
        return
    path = work / "large.tar"
    shards_by_other_tools.with_python(path, shards_by_other_tools.tarfile.PAX_FORMAT,
                                      [(f"{n:03}.bin", bytes([n]) * (4 * MiB + n)) for n in range(3)], "w")
    store.create_bucket("parts")
    names = []
    for algorithm in (None, "CRC32", "SHA1", "SHA256", "CRC32C", "CRC64NVME"):
        name = f"{algorithm}.tar"
        why_not = store.put_in_parts("parts", f"large/{name}", path, algorithm)
        if why_not:
            print(f"skipped: an upload in parts with {algorithm}: {why_not}")
        else:
            names.append(name)
    manifest = dict.fromkeys(names, shards_by_other_tools.manifest_of(path))
    for sizes in (PARTS[0], (MiB, 4 * MiB, 3), (16 * MiB, 64 * MiB, 2)):
        found = read(program, environment, "s3://parts/large/", *sizes)
        compare("s3://parts/large/", names, manifest, found, f"uploaded in parts; parts, window, shards: {sizes}")
    print(f"uploaded in parts, read in three ways: {', '.join(names)}")


def check_quickstart(program, environment):
    done = subprocess.run([program, "quickstart"], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=150)
    print("\n".join(done.stdout.splitlines()[-1:]))
    if done.returncode != 0 or "S3 server inside this program" in done.stdout:
        raise Failure(f"the quickstart example failed: {done.stdout[-2000:]}{done.stderr}")


def run(arguments, work):
    began = time.monotonic()
    packages = arguments.packages or str(work / "packages")
    try:
        started = server(arguments.server, "start", work / "server", packages)
        if started.returncode == 77:
            print(f"skipped: real_server: {started.stderr.strip()}")
            return 77
        if started.returncode != 0:
            print(f"the server did not start: {started.stderr}")
            return 1
        print(f"{arguments.server} at {started.stdout.strip()} after {time.monotonic() - began:.0f} s", flush=True)
        environment = clean_environment(work / "server")
        if os.path.isdir(packages):
            sys.path.insert(0, packages)  # boto3 has come with moto
        store = upload.open_store(environment)
        parts = [lambda: check_conformance(arguments.conformance, environment, store, CHECKS[arguments.server]),
                 lambda: check_role(arguments.conformance, environment, store),
                 lambda: check_shards(arguments.reader, environment, store, work),
                 lambda: check_parts(arguments.reader, environment, store, work)]
        if arguments.quickstart:
            parts.append(lambda: check_quickstart(arguments.quickstart, environment))
        else:
            print("skipped: the quickstart example is not built")
        status = 0
        for part in parts:
            begin = time.monotonic()
            try:
                part()
            except (Failure, subprocess.SubprocessError) as fault:
                print(f"FAILED: {fault}")
                status = 1
            print(f"-- {time.monotonic() - begin:.0f} s", flush=True)
        return status
    finally:
        server(arguments.server, "stop", work / "server", packages)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=CHECKS, default="radosgw")
    parser.add_argument("--packages", default="", help="where pip may leave what the server needs")
    parser.add_argument("--conformance", required=True)
    parser.add_argument("--reader", required=True)
    parser.add_argument("--quickstart", default="")
    arguments = parser.parse_args()
    # No server may outlive this script: CTest's time-out, which kills without asking, is forestalled.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"not done within {TIME_LIMIT} s"))
    signal.alarm(TIME_LIMIT)
    # A short path: the names of sockets may have 107 bytes.
    work = pathlib.Path(tempfile.mkdtemp(prefix="millrace-s3-", dir="/tmp" if os.access("/tmp", os.W_OK) else None))
    try:
        return run(arguments, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
