# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

"""Runs one example as the README says and checks what it prints: run_example.py NAME PROGRAM [GPU_PROBE].

With a program that leaves with 0 where there is a GPU (77: there is none; else it does not work), and with
MILLRACE_REQUIRE_GPU=1, the quickstart must train there.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile


def run(command):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    if done.returncode != 0:
        sys.exit(f"{command[0]} left with {done.returncode}")
    return done.stdout


def require(condition, what):
    if not condition:
        sys.exit("unexpected: " + what)


def own_stage(program):
    require(run([program]) == "too hot: 85\ntoo hot: 99\n", "the warnings")


def training_loop(program):
    require("stopped after 500 items" in run([program]), "the early end")


def train_libtorch(program):
    require(len(re.findall(r"of 8192 points", run([program]))) == 5, "five epochs")


def quickstart(program, gpu_probe=None):
    text = run([program])
    probed = 77 if gpu_probe is None else subprocess.run([gpu_probe], capture_output=True).returncode
    require(probed in (0, 77), "a GPU that does not work, or none where one is required")
    there_is_one = probed == 0
    if there_is_one or os.environ.get("MILLRACE_REQUIRE_GPU") == "1":
        require("training on the GPU" in text, "training on the CPU")
    losses = [float(x) for x in re.findall(r"loss ([0-9.]+)", text)]
    require(len(losses) == 5 and losses[-1] < losses[0] / 2, "a loss that does not fall")
    accuracy = float(re.search(r"has not seen: ([0-9.]+)%", text).group(1))
    require(accuracy > 90, "the accuracy")
    require("images/s" in text and "decode_images" in text and "next item: p50" in text, "the stage table")


def speech(program):
    text = run([program])
    require("480 words, 480 heard right" in text, "the words")
    padding = re.findall(r"epoch \d: 174 s of sound, (\d+)% of the batches is padding", text)
    require(len(padding) == 2 and all(int(share) < 15 for share in padding), "the sound of an epoch, and the padding")


def language_model(program):
    epochs = re.findall(r"epoch \d: loss ([0-9.]+), (\d+) tokens", run([program]))
    losses = [float(loss) for loss, _ in epochs]
    require(len(losses) == 2 and losses[1] < losses[0] < 2, "a loss that does not fall")
    require(all(abs(int(n) - int(epochs[0][1])) < 2000 for _, n in epochs) and int(epochs[0][1]) > 50000, "the tokens")


def imagenet(program):
    right = re.findall(r"epoch \d: top-1 ([0-9.]+)% of 40 images", run([program]))
    require(right == ["100.0"] * 3, "three epochs")


def read_ppm(path):
    """The side of a square picture, and its pixels."""
    with open(path, "rb") as file:
        head, pixels = file.readline().split(), file.read()
    require(head[0] == b"P6" and len(pixels) == 3 * int(head[1]) ** 2, f"the size of {path}")
    return int(head[1]), [tuple(pixels[i:i + 3]) for i in range(0, len(pixels), 3)]


def rand_augment(program):
    with tempfile.TemporaryDirectory() as folder:
        def batches(*stop):
            return [line for line in run([program, folder, *stop]).splitlines() if line.startswith("epoch ")]

        whole = batches()
        require([line[:8] for line in whole] == ["epoch 0,"] * 8 + ["epoch 1,"] * 8, "the batches")
        require(len(set(line.split()[-1] for line in whole)) == 16, "images that are the same in two batches")
        os.remove(os.path.join(folder, "state"))
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the pool has one thread
        require(batches("3") + batches("9") + batches() == whole, "what came after a stop, on one core")

        names = {name[:-4] for name in os.listdir(folder) if name.endswith(".ppm")}
        require(len(names) == 14, "a picture of each operation")
        pictures = {name: read_ppm(os.path.join(folder, name + ".ppm")) for name in names}
        side, plain = pictures["identity"]
        black = (0, 0, 0)
        for name in ("shear_x", "shear_y", "translate_x", "translate_y", "rotate"):
            moved = pictures[name][1]
            require(set(moved) <= {*plain, black} and plain != moved, name + ": pixels that the image does not have")
            require(side * side // 2 < sum(pixel != black for pixel in moved) < side * side, name + ": what is outside")
        step = int(side * 150 / 331 * 0.6)
        by_columns = [plain[i - step] if i % side >= step else black for i in range(side * side)]
        require(pictures["translate_x"][1] == by_columns, "translate_x")
        require(pictures["translate_y"][1] == [black] * (step * side) + plain[:-step * side], "translate_y")
        require(pictures["posterize"][1] == [tuple(v & 0xfc for v in pixel) for pixel in plain], "posterize")
        require(pictures["solarize"][1] == [tuple(255 - v if v >= 102 else v for v in pixel) for pixel in plain],
                "solarize")
        for c in range(3):
            values = [pixel[c] for pixel in plain]
            least, most = min(values), max(values)
            for pixel, v in zip(pictures["autocontrast"][1], values):
                require(abs(pixel[c] - 255 * (v - least) / (most - least)) < 0.51, "autocontrast")
            ranks = sorted(zip(values, (pixel[c] for pixel in pictures["equalize"][1])))
            require(all(a[1] <= b[1] for a, b in zip(ranks, ranks[1:])), "equalize: the order of the values")
            require(abs(sum(v for _, v in ranks) / len(ranks) - 128) < 4, "equalize: the mean")


def write_samples(path, mode, count):
    with tarfile.open(path, mode) as tar:
        for i in range(count):
            for extension in ("txt", "cls"):
                info = tarfile.TarInfo(f"{i:03d}.{extension}")
                info.size = 1000 + i
                tar.addfile(info, io.BytesIO(b"x" * info.size))


def ranks(program):
    launcher = shutil.which("mpirun")
    if launcher is None:
        print("skipped: example_ranks: mpirun is not installed (Debian: openmpi-bin)")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        files = {os.path.join(folder, f"train-{i:02d}.tar"): 10 + i for i in range(9)}
        for path, samples in files.items():
            write_samples(path, "w", samples)
        text = run([launcher, "--allow-run-as-root", "--oversubscribe", "-n", "2", program, folder + "/train-{00..08}.tar"])
    read = {rank: (int(n), set(urls.split())) for rank, n, urls in re.findall(r"rank (\d) read (\d+) samples from (.*)", text)}
    require(sorted(read) == ["0", "1"] and not read["0"][1] & read["1"][1], "ranks that share shards")
    require(read["0"][1] | read["1"][1] == set(files), "shards that no rank reads")
    for n, urls in read.values():
        require(urls and n == sum(files[url] for url in urls), "the number of samples")


def local_tars(program):
    with tempfile.TemporaryDirectory() as folder:
        for name, mode in (("a.tar", "w"), ("b.tar.gz", "w:gz")):
            write_samples(os.path.join(folder, name), mode, 50)
        require("100 samples" in run([program, folder + "/*"]), "the number of samples")


def text_lines(program):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lines.jsonl")
        with open(path, "w") as file:
            for i in range(20000):
                file.write('{"line": %d}\n' % i)
        require(run([program, path]).count("20000 lines") == 4, "the number of lines")


def own_format(program):
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in (("a", 30), ("b", 1), ("c", 0)):
            with open(os.path.join(folder, name + ".csv"), "w") as file:
                file.write("name,weight" + "".join(f"\n{name}{i},{i}.5" for i in range(rows)))
        with open(os.path.join(folder, "README"), "w") as file:
            file.write("no shard")
        require(run([program, folder]) == "62 samples in two epochs, of a total weight of 901\n", "the samples")


def checkpoint(program):
    text = run([program])
    require("stored s3://" in text and "25.2 MB" in text and "loaded 12 tensors: the same" in text, "what was stored and loaded")


def epochs(program):
    with tempfile.TemporaryDirectory() as folder:
        shards = [os.path.join(folder, f"{i}.tar") for i in range(3)]
        for i, path in enumerate(shards):
            write_samples(path, "w", 7 + 2 * i)

        def batches(state, *stop):
            text = run([program, folder + "/*.tar", os.path.join(folder, state), *stop])
            return [line for line in text.splitlines() if line.startswith("epoch ")]

        whole = batches("whole")
        require([line[:8] for line in whole] == ["epoch 0:"] * 7 + ["epoch 1:"] * 7 + ["epoch 2:"] * 7, "the batches")
        samples = [sorted(" ".join(whole[7 * e:7 * e + 7]).replace(f"epoch {e}:", "").split()) for e in range(3)]
        require(samples[0] == sorted(f"{i:03d}" for n in (7, 9, 11) for i in range(n)) == samples[1], "the samples")
        require([line[8:] for line in whole[:7]] != [line[8:] for line in whole[7:14]], "one order for two epochs")
        parts = batches("stopped", "4")
        other = subprocess.run([program, shards[0], os.path.join(folder, "stopped")], capture_output=True, text=True)
        require(other.returncode == 1 and "is of another list: this shard" in other.stderr, "shards that are not refused")
        os.remove(os.path.join(folder, "stopped.index"))
        other = subprocess.run([program, shards[0], os.path.join(folder, "stopped")], capture_output=True, text=True)
        require(other.returncode == 1 and "of another order: its index" in other.stderr, "a state that is not refused")
        os.remove(os.path.join(folder, "stopped.index"))
        for stop in ("5", "1", "100"):
            parts += batches("stopped", stop)
        require(parts == whole, "what came after a stop")
        launcher = shutil.which("mpirun")
        if launcher is not None:
            two = [launcher, "--allow-run-as-root", "--oversubscribe", "-n", "2"]
            text = run([*two, program, folder + "/*.tar", os.path.join(folder, "both")])
            keys = [line[8:].split() for line in text.splitlines() if line.startswith("epoch 0: ")]
            require(len(keys) == 8 and sorted(sum(keys, [])) == samples[0], "the samples of two ranks")
            left = sorted(name for name in os.listdir(folder) if name.startswith("both"))
            require(left == ["both", "both.index"], "the files that two ranks leave")


if __name__ == "__main__":
    examples = (own_stage, own_format, training_loop, train_libtorch, speech, language_model, imagenet, quickstart, ranks,
                local_tars, text_lines, checkpoint, epochs, rand_augment)
    {f.__name__: f for f in examples}[sys.argv[1]](*sys.argv[2:])
