# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""What examples/python/millrace_python.hpp promises, by the module waits: check_door.py FOLDER_OF_MODULES."""

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])
try:
    import numpy
except ImportError:
    print(f"skipped: NumPy is not installed for {sys.executable} (PyPI: numpy)")
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None
    print(f"torch is not installed for {sys.executable} (PyPI: torch): without its tensors")

import waits


def refused(error, words, call):
    try:
        call()
    except error as e:
        assert words in str(e), e
        return e
    raise AssertionError("not refused: " + words)


def numbers_of(loader):
    return [n for batch in loader for n in numpy.from_dlpack(batch["number"]).tolist()]


def every_item_once():
    loader = waits.run(9)
    assert iter(loader) is loader
    assert numbers_of(loader) == list(range(9))
    refused(StopIteration, "", lambda: next(loader))
    assert not loader.stopped and loader.batches is None


def views_outlive_their_batch():
    loader = waits.run(1000)
    kept = [numpy.from_dlpack(batch["number"]) for batch in loader]
    loader.close()
    del loader
    gc.collect()
    assert numpy.concatenate(kept).tolist() == list(range(1000))


def views_are_no_copies():
    batch = next(waits.run(2))
    views = [numpy.from_dlpack(batch["number"]), numpy.asarray(batch["number"])]
    if torch is not None:
        views += [torch.from_dlpack(batch["number"]).numpy()]
        torch.from_dlpack(batch["number"])[1] = 5
        assert views[0][1] == 5
    assert len({v.ctypes.data for v in views}) == 1 and views[0].dtype == numpy.int64
    weights = numpy.from_dlpack(batch.weights)
    assert weights.tolist() == [1, 1] and weights.dtype == numpy.float32
    assert len(batch) == 2 and batch.keys == ["0", "\udcff"] and batch.epoch == 0 and not batch.last
    refused(waits.ConfigurationError, "number", lambda: batch["gone"])


def errors_are_classes():
    loader = waits.run(20, fails=True)
    seen = []
    e = refused(waits.DecodeError, "a.tar at byte 512, k\\xff: no number", lambda: seen.extend(loader))
    assert isinstance(e, waits.Error) and isinstance(e, RuntimeError) and len(seen) == 3
    refused(waits.ConfigurationError, "it cannot be", waits.refused)
    refused(waits.UsageError, "begin", loader.state)
    loader.close()
    loader.close()
    refused(waits.UsageError, "closed", lambda: next(loader))
    refused(waits.UsageError, "add_classes()", waits.of_no_class)


def pickling_is_refused():
    loader = waits.run(2)
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        refused(TypeError, "cannot pickle", lambda: act(loader))
    batch = next(loader)
    refused(TypeError, "cannot pickle", lambda: pickle.dumps(batch))


def figures():
    loader = waits.run(9)
    list(loader)
    stats = loader.stats()
    assert isinstance(stats, dict) and "fill_batches" in str(stats), stats


def stopped_from_a_thread():
    loader = waits.run(2, then_wait=True)
    next(loader)
    stop = threading.Timer(0.2, loader.stop)
    stop.start()
    ticks = []
    ticking = threading.Thread(target=lambda: [(ticks.append(0), time.sleep(0.01)) for _ in range(10)])
    ticking.start()  # the lock of Python is free while the main thread waits
    assert list(loader) == [] and loader.stopped and len(ticks) > 3
    ticking.join()


def one_thread_at_a_time():
    loader = waits.run(0, then_wait=True)
    taking = threading.Thread(target=lambda: list(loader))
    taking.start()
    while True:  # until it is in next()
        try:
            loader.batches
        except waits.UsageError as e:
            assert "another thread" in str(e)
            break
    refused(waits.UsageError, "another thread", lambda: next(loader))
    loader.close()  # waits for it
    taking.join(10)
    assert not taking.is_alive()


def interrupted():
    loader = waits.run(2, then_wait=True)
    next(loader)
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    refused(KeyboardInterrupt, "", lambda: next(loader))
    assert time.monotonic() - began < 5
    loader.stop()
    assert list(loader) == []


def refused_after_a_fork():
    loader = waits.run(100)
    next(loader)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            refused(waits.UsageError, "fork()", lambda: next(loader))
            refused(waits.UsageError, "fork()", lambda: waits.run(1))
            loader.close()
        except BaseException as e:
            print(e)
            os._exit(1)
        sys.exit(0)  # with the handlers of an exit, and the destructors
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(loader)) == 49


PROGRAMS = {
    "in the middle": "loader = waits.run(10**9); next(loader)",
    "with a view": "view = waits.run(10)\nfor b in view: view = b['number']; break",
    "in a cycle": "class A: pass\na = A(); a.a = a; a.loader = waits.run(10**9); next(a.loader)",
    "out of sight": "import builtins; builtins.kept = [waits.run(10**9), next(waits.run(10**9))]",
    "in an exception": "loader = waits.run(20, fails=True)\ntry: list(loader)\nexcept waits.DecodeError as e: kept = e",
    "with a waiting daemon": "import threading, time\nloader = waits.run(0, then_wait=True)\n"
                             "threading.Thread(target=lambda: list(loader), daemon=True).start(); time.sleep(0.2)",
}


def exits_are_clean():
    for how, program in PROGRAMS.items():
        began = time.monotonic()
        program = f"import sys; sys.path.insert(0, {sys.argv[1]!r}); import waits\n{program}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stderr == "" and time.monotonic() - began < 10, (how, done)


def main():
    checks = [every_item_once, views_outlive_their_batch, views_are_no_copies, errors_are_classes, pickling_is_refused,
              figures, stopped_from_a_thread, one_thread_at_a_time, interrupted, refused_after_a_fork, exits_are_clean]
    for check in checks:
        check()
        print(check.__name__, flush=True)


main()
