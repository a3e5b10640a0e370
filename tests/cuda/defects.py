#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Defects of order and of lifetime that the tests of cuda/ must find.

  defects.py plant INCLUDE TO            writes copies of the library's headers that have all defects in them, each
                                         asleep until the environment's MILLRACE_DEFECT names it
  defects.py check GROUP WAYS PROGRAM    runs the tests that were built with these headers, once as they are and once
                                         with each defect of GROUP (copies, images); leaves with 1 unless they pass,
                                         and then find each defect in all WAYS (kernels, races; with a comma between)
  defects.py count GROUP PROGRAM...      the same for a figure, with arguments of the program's: how many are found, in
                                         any way; leaves with 1 if the tests fail without a defect
"""

import os
import pathlib
import subprocess
import sys

BATCH = "millrace/device/batch.ipp"
SLOTS = "millrace/device/detail/slots.ipp"
STORE = "millrace/device/slot_store.ipp"
DEVICE = "millrace/cuda/stream_device.hpp"
NVJPEG = "millrace/cuda/nvjpeg.hpp"
RESIDENT = "millrace/cuda/resident_images.hpp"

# Name, then the places: header, what stands there (once), what it becomes. PLANTED is whether it is awake.
COPIES = [
    ("slot_reused_early", [
        (SLOTS, "if (!failed) draining_.push_back(i);",
         "if (!failed) (PLANTED ? free_ : draining_).push_back(i);")]),
    ("use_not_asked_for", [
        (BATCH, "if (u.active && !on_->query(u.done)) return false;",
         "if (!PLANTED && u.active && !on_->query(u.done)) return false;")]),
    ("release_marks_nothing", [
        (BATCH, "on_->record(u.done, u.stream);", "if (!PLANTED) on_->record(u.done, u.stream);"),
        (BATCH, "    on_->record(u.done, stream);", "    if (!PLANTED) on_->record(u.done, stream);")]),
    ("not_ready_taken_as_done", [
        ("millrace/cuda/device.hpp", "forget(code);\n    return false;", "forget(code);\n    return PLANTED;")]),
    ("retire_waits_for_nothing", [
        (BATCH, "if (done()) return;", "if (PLANTED || done()) return;")]),
    ("copy_not_asked_for", [
        (BATCH, "  return copied();\n", "  return PLANTED || copied();\n")]),
    ("copy_marked_on_another_stream", [
        (DEVICE, "e.record(copies_.get());", "e.record(PLANTED ? nullptr : copies_.get());")]),
    ("use_marked_on_another_stream", [
        (DEVICE, "e.record(usable(s));", "e.record(PLANTED ? copies_.get() : usable(s));")]),
    ("wait_forgotten", [
        (DEVICE, 'detail::check(cudaStreamWaitEvent(usable(s), e.get(), 0), "cudaStreamWaitEvent");',
         'if (!PLANTED) detail::check(cudaStreamWaitEvent(usable(s), e.get(), 0), "cudaStreamWaitEvent");')]),
    ("memory_let_go_before_the_copy", [
        (BATCH, "bool device_slot::fence() noexcept {\n",
         "bool device_slot::fence() noexcept {\n  if (PLANTED) host_ = host_batch();\n")]),
    ("kept_slot_cleared_early", [
        (STORE, "  slot->use_device(on_);\n",
         "  slot->use_device(on_);\n  if (PLANTED) slot->clear();\n")]),
    ("kept_slot_not_marked_again", [
        (SLOTS, "if (s->fence()) {", "if (PLANTED || s->fence()) {")]),
    ("kept_slot_taken_as_done", [
        (SLOTS, "    if (slots_[i]->done()) {", "    if (PLANTED || slots_[i]->done()) {")]),
    ("kept_slot_provided_early", [
        (STORE, "if (only_done && !done) continue;", "if (!PLANTED && only_done && !done) continue;")]),
]

IMAGES = [
    ("decoded_on_another_stream", [
        (NVJPEG, "to, copies().get())) return;", "to, PLANTED ? nullptr : copies().get())) return;")]),
    ("one_state_for_all_slots", [
        (NVJPEG, "    if (!with) with = decoding(library_);\n    if (with.decode(",
         "    decoding& state = PLANTED ? *one_ : with;\n"
         "    if (!state) state = decoding(library_);\n    if (state.decode("),
        (NVJPEG, "  std::shared_ptr<const detail::nvjpeg_library> library_;\n};\n\nstatic_assert",
         "  std::shared_ptr<const detail::nvjpeg_library> library_;\n"
         "  std::shared_ptr<decoding> one_ = std::make_shared<decoding>();\n};\n\nstatic_assert")]),
    ("state_let_go_early", [
        (BATCH, "void device_slot::retire() noexcept {\n",
         "void device_slot::retire() noexcept {\n  if (PLANTED) decoding_.reset();\n")]),
    ("decoding_not_marked", [
        (BATCH, "    throw;\n  }\n  record_copy();\n", "    throw;\n  }\n  if (!PLANTED) record_copy();\n")]),
    ("pixels_let_go_before_the_copy", [
        (BATCH, "      pixels_.push_back(std::move(pixels));", "      if (!PLANTED) pixels_.push_back(std::move(pixels));")]),
    ("kept_before_the_host_decodes", [
        (BATCH, "    for (const image_to_decode& i : found) {\n",
         "    if (PLANTED) on_->keep(found, decoding_);\n"
         "    for (const image_to_decode& i : found) {\n")]),
    ("keeping_not_marked", [
        (BATCH, "    on_->keep(found, decoding_);\n  } catch",
         "    if (PLANTED) record_copy();\n"
         "    on_->keep(found, decoding_);\n"
         "    if (PLANTED) return;\n  } catch")]),
    ("kept_on_another_stream", [
        (RESIDENT, "check(cudaMemcpyAsync(to, from, n, direction, on_.copies().get())",
         "if (PLANTED && across == cudaMemcpyDeviceToHost) {\n"
         "      check(cudaMemcpyAsync(to, from, n, direction, nullptr), \"cudaMemcpyAsync\");\n"
         "      return;\n    }\n"
         "    check(cudaMemcpyAsync(to, from, n, direction, on_.copies().get())")]),
    ("given_on_another_stream", [
        (RESIDENT, "check(cudaMemcpyAsync(to, from, n, direction, on_.copies().get())",
         "if (PLANTED && across == cudaMemcpyHostToDevice) {\n"
         "      check(cudaMemcpyAsync(to, from, n, direction, nullptr), \"cudaMemcpyAsync\");\n"
         "      return;\n    }\n"
         "    check(cudaMemcpyAsync(to, from, n, direction, on_.copies().get())")]),
    ("forget_waits_for_nothing", [
        (RESIDENT, "attempt_twice([this] { on_.copies().synchronize(); })",
         "attempt_twice([this] { if (!PLANTED) on_.copies().synchronize(); })")]),
]

GROUPS = {"copies": COPIES, "images": IMAGES}

# Found by kernels alone: a wrong order on one stream is no race, and a single write of the host beside a copy is one
# that ThreadSanitizer reports with some seeds only.
WITHOUT_RACES = {"kept_before_the_host_decodes", "kept_slot_not_marked_again"}


def plant(include, to):
    texts = {}
    for name, places in COPIES + IMAGES:
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


def outcome(command, defect, limit=300):
    """The exit status, how the defect was found, and what was printed."""
    environment = dict(os.environ)
    environment.pop("MILLRACE_DEFECT", None)
    if defect is not None:
        environment["MILLRACE_DEFECT"] = defect
    try:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, errors="replace")
    except subprocess.TimeoutExpired:
        return 1, ["hangs"], ""
    text = run.stdout + run.stderr
    how = []
    if "numbers were wrong at first" in text:
        how.append("kernels")  # a kernel's look: so it would be on a GPU
    if "wrong == std::vector" in text:
        how.append("model")  # the model says what was wrong
    if "WARNING: ThreadSanitizer: data race" in text:
        how.append("races")
    return run.returncode, how, text


def without_any(command):
    code, how, text = outcome(command, None)
    if code != 0 or how:
        print(text)
        sys.exit("defects.py: the tests fail without any defect")


def count(group, command):
    without_any(command)
    seen = 0
    for tried, (name, _) in enumerate(GROUPS[group], 1):
        code, how, _ = outcome(command, name, 60)
        seen += code != 0
        found = (", ".join(how) or f"status {code}") if code != 0 else "NOT SEEN"
        print(f"  {name:32} {found:20} {seen} seen / {tried} planted in {group}", flush=True)


def check(group, ways, command):
    without_any(command)
    missed = []
    for name, _ in GROUPS[group]:
        code, how, text = outcome(command, name)
        print(f"{name:32} {', '.join(how)}", flush=True)
        needed = set(ways) - ({"races"} if name in WITHOUT_RACES else set())
        if code == 0 or not needed <= set(how):
            missed.append(name)
            print(text[-3000:])
    if missed:
        sys.exit(f"defects.py: not found: {', '.join(missed)}")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "plant":
        plant(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    elif len(sys.argv) == 5 and sys.argv[1] == "check" and sys.argv[2] in GROUPS:
        check(sys.argv[2], sys.argv[3].split(","), [sys.argv[4]])
    elif len(sys.argv) > 3 and sys.argv[1] == "count" and sys.argv[2] in GROUPS:
        count(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(__doc__)
