#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Defects of order that the tests of cuda/ must find.

  defects.py plant INCLUDE TO            writes copies of the library's headers that have all defects in them, each
                                         asleep until the environment's MILLRACE_DEFECT names it
  defects.py check WAYS PROGRAM          runs the tests that were built with these headers, once as they are and once
                                         with each defect; leaves with 1 unless they pass, and then find each defect in
                                         all WAYS (kernels, races; with a comma between)
"""

import os
import pathlib
import subprocess
import sys

SLOTS = "millrace/device/detail/slots.hpp"
SLOTS_BODIES = "millrace/device/detail/slots.ipp"
DEVICE = "millrace/cuda/stream_device.hpp"

# Name, then the places: header, what stands there (once), what it becomes. PLANTED is whether it is awake.
DEFECTS = [
    ("slot_reused_early", [
        (SLOTS_BODIES, "} else if (!stage_gone) {\n      draining_.push_back(i);",
         "} else if (!stage_gone) {\n      (PLANTED ? free_ : draining_).push_back(i);")]),
    ("use_not_asked_for", [
        (SLOTS, "if (u.active && !on_->query(u.done)) return false;",
         "if (!PLANTED && u.active && !on_->query(u.done)) return false;")]),
    ("release_marks_nothing", [
        (SLOTS, "on_->record(u.done, u.stream);", "if (!PLANTED) on_->record(u.done, u.stream);"),
        (SLOTS, "on_->record(find_or_add(stream).done, stream);",
         "if (!PLANTED) on_->record(find_or_add(stream).done, stream);")]),
    ("not_ready_taken_as_done", [
        ("millrace/cuda/device.hpp", "forget(code);\n    return false;", "forget(code);\n    return PLANTED;")]),
    ("retire_waits_for_nothing", [
        (SLOTS, "if (done()) return;", "if (PLANTED || done()) return;")]),
    ("copy_not_asked_for", [
        (SLOTS, "return !copied_ || on_->query(*copied_);",
         "return PLANTED || !copied_ || on_->query(*copied_);")]),
    ("copy_marked_on_another_stream", [
        (DEVICE, "e.record(copies_.get());", "e.record(PLANTED ? nullptr : copies_.get());")]),
    ("use_marked_on_another_stream", [
        (DEVICE, "e.record(usable(s));", "e.record(PLANTED ? copies_.get() : usable(s));")]),
    ("wait_forgotten", [
        (DEVICE, 'detail::check(cudaStreamWaitEvent(usable(s), e.get(), 0), "cudaStreamWaitEvent");',
         'if (!PLANTED) detail::check(cudaStreamWaitEvent(usable(s), e.get(), 0), "cudaStreamWaitEvent");')]),
    ("memory_let_go_before_the_copy", [
        (SLOTS, "  bool fence() noexcept override {", "  bool fence() noexcept override {\n    if (PLANTED) host_ = host_batch();")]),
]


def plant(include, to):
    texts = {}
    for name, places in DEFECTS:
        for header, before, after in places:
            if header not in texts:
                texts[header] = (include / header).read_text(encoding="utf-8")
            if texts[header].count(before) != 1:
                sys.exit(f"defects.py: {header} has no longer, or more than once, what {name} changes:\n{before}")
            texts[header] = texts[header].replace(before, after.replace("PLANTED", f'::millrace_planted("{name}")'))
    for header, text in texts.items():
        path = to / header
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def outcome(command, defect):
    """The exit status, how the defect was found, and what was printed."""
    environment = dict(os.environ)
    environment.pop("MILLRACE_DEFECT", None)
    if defect is not None:
        environment["MILLRACE_DEFECT"] = defect
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, errors="replace")
    text = run.stdout + run.stderr
    how = []
    if "numbers were wrong at first" in text:
        how.append("kernels")  # a kernel's look: so it would be on a GPU
    if "wrong == std::vector" in text:
        how.append("model")  # the model says what was wrong
    if "WARNING: ThreadSanitizer: data race" in text:
        how.append("races")
    return run.returncode, how, text


def check(ways, command):
    code, how, text = outcome(command, None)
    if code != 0 or how:
        print(text)
        sys.exit("defects.py: the tests fail without any defect")
    missed = []
    for name, _ in DEFECTS:
        code, how, text = outcome(command, name)
        print(f"{name:32} {', '.join(how)}", flush=True)
        if code == 0 or not set(ways) <= set(how):
            missed.append(name)
            print(text[-3000:])
    if missed:
        sys.exit(f"defects.py: not found: {', '.join(missed)}")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "plant":
        plant(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    elif len(sys.argv) == 4 and sys.argv[1] == "check":
        check(sys.argv[2].split(","), [sys.argv[3]])
    else:
        sys.exit(__doc__)
