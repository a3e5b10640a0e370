# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

"""millrace-ls, -cat, -reshard and -index over Parquet files that pyarrow writes.

  check_parquet.py LS CAT RESHARD INDEX       leaves with 77 where python3 has no pyarrow
  check_parquet.py --without LS CAT RESHARD INDEX    of programs that were built without Arrow
"""

import ast
import decimal
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

FAILURES = []


def require(good, what):
    if not good:
        FAILURES.append(what)
        print("FAILED:", what)


def run(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    print("$", *command, "\n[%d] %s" % (done.returncode, text if len(text) < 3000 else "..."))
    return done.returncode, text


def require_said(said, status, *texts):
    require(said[0] == status, "the program left with %d" % said[0])
    for text in texts:
        require(text in said[1], "not said: " + text)


def read_npy(data):
    """Type, shape and bytes of elements."""
    require(data[:8] == b"\x93NUMPY\1\0", "no .npy")
    length = struct.unpack("<H", data[8:10])[0]
    require((10 + length) % 64 == 0, "the elements of the .npy are not aligned")
    head = ast.literal_eval(data[10:10 + length].decode())
    require(head["fortran_order"] is False, "another order")
    return head["descr"], head["shape"], data[10 + length:]


def read_content(name, data):
    if name.endswith(".npy"):
        return read_npy(data)
    return json.loads(data) if name.endswith(".json") else data


def by_tarfile(folder, order=None):
    """Key to {field: content} of the tars of a folder."""
    all_of = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".tar"):
            continue
        with tarfile.open(os.path.join(folder, name)) as archive:
            for m in archive:
                key, field = m.name.split(".", 1)
                fields = all_of.setdefault(key, {})
                require(field not in fields, "a member stands twice: " + m.name)
                fields[field] = read_content(field, archive.extractfile(m).read())
                if order is not None and (not order or order[-1] != key):
                    order.append(key)
    return all_of


def bytes_of(folder):
    texts = []
    for base, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if name.endswith(".tar"):
                with open(os.path.join(base, name), "rb") as file:
                    texts.append((name, file.read()))
    return texts


def draw(count, seed, pa):
    """A table of drawn rows, and what the files of each row must be."""
    at = random.Random(seed)
    rows, files = [], []
    for i in range(count):
        ending, head = at.choice([("jpg", b"\xff\xd8\xff\xe0"), ("png", b"\x89PNG\r\n\x1a\n"), ("bytes", b"??")])
        image = head + at.randbytes(at.randrange(400))
        made = {"image." + ending: image, "label.json": i}
        row = {"image": {"bytes": image, "path": None}, "Label": i, "caption": None, "tags": None, "boxes": None}
        if at.randrange(3):
            row["image"]["path"] = "a/%d.jpg" % i
            made["image.path.txt"] = b"a/%d.jpg" % i
        if at.randrange(4):
            row["caption"] = "Bild \u00e4 \U0001f600 %d" % i
            made["caption.txt"] = row["caption"].encode()
        row["box"] = [struct.unpack("<f", struct.pack("<f", at.uniform(-9, 9)))[0] for _ in range(4)]
        made["box.npy"] = ("<f4", (4,), struct.pack("<4f", *row["box"]))
        row["tokens"] = [at.randrange(-2**31, 2**31) for _ in range(at.randrange(6))]
        made["tokens.npy"] = ("<i4", (len(row["tokens"]),), struct.pack("<%di" % len(row["tokens"]), *row["tokens"]))
        if at.randrange(4):
            row["tags"] = ["q\"\\\n\u00fc"[at.randrange(4):] + str(k) for k in range(at.randrange(3))]
            if row["tags"]:
                made["tags.json"] = row["tags"]
        if at.randrange(4):
            row["boxes"] = [[at.uniform(0, 1) for _ in range(at.randrange(3))] for _ in range(at.randrange(3))]
            flat = [x for b in row["boxes"] for x in b]
            made["boxes.npy"] = ("<f8", (len(flat),), struct.pack("<%dd" % len(flat), *flat))
            ends = [0]
            for b in row["boxes"]:
                ends.append(ends[-1] + len(b))
            made["boxes.offsets.npy"] = ("<i8", (len(ends),), struct.pack("<%dq" % len(ends), *ends))
        cents = at.choice([0, 1, -1, 99, -12345, 10**17 - 1, 1 - 10**17])
        row["price"] = decimal.Decimal(cents).scaleb(-2)
        made["price.txt"] = ("%.2f" % row["price"] if abs(cents) < 10**6 else str(row["price"])).encode()
        row["score"] = at.uniform(-1e9, 1e9)
        made["score.json"] = row["score"]
        row["ok"] = at.random() < 0.5
        made["ok.json"] = row["ok"]
        row["sha"] = b"\0" + at.randbytes(19)
        made["sha"] = row["sha"]
        row["cls"] = at.randrange(10)
        made["cls"] = b"%d" % row["cls"]
        rows.append(row)
        files.append(made)
    schema = pa.schema([
        ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("Label", pa.int64()),
        ("caption", pa.string()), ("box", pa.list_(pa.float32(), 4)), ("tokens", pa.list_(pa.int32())),
        ("tags", pa.list_(pa.string())), ("boxes", pa.list_(pa.list_(pa.float64()))),
        ("price", pa.decimal128(19, 2)), ("score", pa.float64()), ("ok", pa.bool_()), ("sha", pa.binary(20)),
        ("cls", pa.uint8()),
    ])
    return pa.Table.from_pylist(rows, schema=schema), files


def check_without(tools, folder):
    path = os.path.join(folder, "a.parquet")
    with open(path, "wb") as file:
        file.write(b"PAR1")
    for said in (run(tools["ls"], path), run(tools["cat"], path, "--number", 0),
                 run(tools["reshard"], path, folder + "/out", "--no-shuffle"),
                 run(tools["ls"], "--format", "parquet", path), run(tools["index"], "--format", "parquet", folder)):
        require_said(said, 3, "the component millrace::parquet, which was not there when this program was built")
    require(not os.path.exists(folder + "/out"), "something was written")


def check_look(tools, source, expected, pa, pq):
    table = run(tools["ls"], "-s", source)
    require_said(table, 0, "b.parquet: 40 rows in 6 row groups of 5 to 7, ", "  image.bytes: binary, ",
                 "  Label: int64, ", "  box: fixed_size_list<element: float>[4], ",
                 " by snappy, uncompressed\n",
                 "  price: decimal128(19, 2), ")
    listed = run(tools["ls"], source, "-n", 3)
    require_said(listed, 0, "0  a.parquet#0  ", "box.npy 144 B (npy f32[4])", "the first 3 samples in 3 shards of parquet",
                 "1 object is left out, whose names are not those of parquet")
    require("a.parquet#3" not in listed[1], "more rows than -n says")
    lines = run(tools["ls"], "--json", source + "/c.parquet")[1].splitlines()
    require(len(lines) == 40, "not a line for each row")
    for number, line in enumerate(lines):
        one = json.loads(line)
        require(one["number"] == number and one["key"] == "c.parquet#%d" % number, "another row")
        require({f["field"] for f in one["fields"]} == set(expected["c_parquet#%d" % number]), "other fields")

    out = source + ".look"
    require_said(run(tools["cat"], source, "b.parquet#9", "--all", out), 0, "/b.parquet-9.box.npy\n")
    found = {}
    for name in os.listdir(out):
        with open(os.path.join(out, name), "rb") as file:
            found[name[len("b.parquet-9."):]] = read_content(name, file.read())
    require(found == expected["b_parquet#9"], "other files than those of the row")
    require_said(run(tools["cat"], source, "--number", 41, "-f", "label.json"), 0, "1")
    require_said(run(tools["cat"], source, "--number", 0, "--columns", "Label"), 0, "0")
    require_said(run(tools["ls"], source, "--columns", "label"), 3, "there is no column \"label\" (it has: image, Label, ")
    require_said(run(tools["ls"], "--format", "lines", source, "--columns", "label"), 3, "--columns are of Parquet")

    # What no field is made of has to be left out.
    other = source + ".maps"
    os.makedirs(other)
    pq.write_table(pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())), "n": pa.array([7])}),
                   other + "/m.parquet")
    require_said(run(tools["ls"], other), 3, "no field can be made of column \"m\", which is of type map<string, int32")
    require_said(run(tools["ls"], other, "--columns", "n"), 0, "0  m.parquet#0  n.json 1 B (number 7)")
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(struct.pack("<2i", 0, 2)), pa.py_buffer(b"\xff\xfe"))
    pq.write_table(pa.table({"t": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), bad)}), other + "/m.parquet")
    require_said(run(tools["ls"], other), 1, "column \"t\" has a text that is no UTF-8", "m.parquet#0")
    numbers = {"h": pa.array([1.5, None, float("inf")], pa.float16()), "d": pa.array([0, 1, -1], pa.date32()),
               "u": pa.array([2**64 - 1, 0, 1], pa.uint64()), "f": pa.array([0.1, float("nan"), -0.0], pa.float32())}
    pq.write_table(pa.table(numbers), other + "/m.parquet")
    for row, texts in enumerate([("1.5", "0", "18446744073709551615", "0.1"), (None, "1", "0", "NaN"),
                                 ("Infinity", "-1", "1", "-0")]):
        for name, text in zip("hduf", texts):
            said = run(tools["cat"], other, "--number", row, "-f", name + ".json")
            require_said(said, 3 if text is None else 0, "no field h.json" if text is None else text)
            require(text is None or said[1] == text, "another number")
    # A row of nulls has no fields, and cannot be written.
    pq.write_table(pa.table({"A": ["x"], "a": ["y"]}), other + "/m.parquet")
    require_said(run(tools["ls"], other), 1, "two columns become files of one name, a.txt: choose by --columns",
                 "m.parquet#0")
    require_said(run(tools["ls"], other, "--columns", "a"), 0, "a.txt 1 B")
    pq.write_table(pa.table({"n": pa.array([1, None])}), other + "/m.parquet")
    require_said(run(tools["reshard"], other, other + "/out", "--no-shuffle"), 1, "a sample without fields")


def check_reshard(tools, source, expected, folder):
    spool = ["--spool", folder + "/spool"]
    order, other = [], []
    one = run(tools["reshard"], source, folder + "/one", *spool, "--read-back", "--shard-samples", 50)
    require_said(one, 0, "120 samples, ", "; read back, and agrees")
    require(by_tarfile(folder + "/one", order) == expected, "other members than the rows'")
    require(order != sorted(order) and len(order) == 120, "nothing was shuffled")
    require_said(run(tools["reshard"], source, folder + "/two", *spool, "--memory", "1kB", "--shard-samples", 50), 0)
    require(bytes_of(folder + "/one") == bytes_of(folder + "/two"), "memory has changed the order")
    require_said(run(tools["reshard"], source, folder + "/three", *spool, "--seed", 1), 0)
    require(by_tarfile(folder + "/three", other) == expected and other != order, "another seed gives the same order")
    keys = []
    require_said(run(tools["reshard"], source, folder + "/kept", "--no-shuffle"), 0, "120 samples")
    by_tarfile(folder + "/kept", keys)
    require(keys == list(expected), "the order was not kept")
    # Samples are the same, so is the sum of them.
    again = run(tools["reshard"], folder + "/one", folder + "/again", *spool)
    fingerprint = one[1].split("fingerprint ")[1][:32]
    require_said(again, 0, "fingerprint " + fingerprint)
    require_said(run(tools["reshard"], source, folder + "/named", *spool, "--columns", "image.bytes,Label",
                     "--with", "image.jpg", "--rename", "image.jpg=jpg,label.json=cls"), 0, "left out by the filters")
    named = by_tarfile(folder + "/named")
    require(named == {k: {"jpg": f["image.jpg"], "cls": b"%d" % f["label.json"]} for k, f in expected.items()
                      if "image.jpg" in f}, "other members where columns are named")
    require_said(run(tools["reshard"], source, folder + "/none", "--dry-run"), 0, "source: 3 shards of parquet")
    require("without an index" not in run(tools["reshard"], source, folder + "/none", "--dry-run")[1], "read twice")


def check_damage_and_resume(tools, source, expected, folder):
    """The last file is damaged when its turn comes; when it is whole again, the run goes on where it was."""
    path = source + "/c.parquet"
    with open(path, "rb") as file:
        whole = file.read()
    # In the last row group; not one that the statistics have, too, which stand before the page.
    images = sorted(content for i in range(35, 40) for name, content in expected["c_parquet#%d" % i].items()
                    if name in ("image.jpg", "image.png", "image.bytes"))
    at = whole.index(images[2]) + len(images[2]) - 1
    damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]
    with open(path, "wb") as file:
        file.write(damaged)
    command = [tools["reshard"], source, folder + "/resumed", "--spool", folder + "/resume", "--checkpoint", "1kB",
               "--shard-samples", "50"]
    require_said(run(*command), 1, "c.parquet", "row group 5, column ", "CRC")
    require(not os.path.exists(folder + "/resumed/shard-000000.tar"), "shards were written")
    with open(path, "wb") as file:
        file.write(whole)
    said = run(*command)
    require_said(said, 0, "goes on by ", "120 samples")
    before = int(said[1].split(", after ")[1].split(" ")[0])
    require(80 <= before < 120, "it continued after %d samples" % before)
    require(bytes_of(folder + "/resumed") == bytes_of(folder + "/one"), "the resumed run wrote other shards")
    cut = folder + "/cut"
    os.makedirs(cut)
    with open(cut + "/a.parquet", "wb") as file:
        file.write(whole[:-3])
    for said in (run(tools["ls"], cut), run(tools["ls"], "-s", cut), run(tools["reshard"], cut, cut + "/o", "--no-shuffle")):
        require_said(said, 1, "a.parquet", "not a Parquet file, or cut short")


def check_index(tools, source):
    def rows():
        return [line for line in run(tools["ls"], "--json", source)[1].splitlines() if line.startswith("{")]

    before = rows()
    require(len(before) == 120, "not all rows are listed")
    require_said(run(tools["index"], "--format", "parquet", source), 0, "3 shards, 120 samples, ")
    require(rows() == before, "with an index other rows are listed")
    require_said(run(tools["ls"], "-n", 2, "--columns", "Label", source), 0, "1  a.parquet#1  label.json 1 B (number 1)\n")


def main():
    arguments = sys.argv[1:]
    without = arguments[0] == "--without"
    tools = dict(zip(("ls", "cat", "reshard", "index"), arguments[1 if without else 0:]))
    folder = tempfile.mkdtemp(prefix="check_parquet.")
    try:
        if without:
            check_without(tools, folder)
        else:
            try:
                import pyarrow as pa
                import pyarrow.parquet as pq
            except ImportError as e:
                print("skipped: tools_parquet: python3 has no pyarrow: %s" % e)
                return 77
            source = folder + "/in"
            os.makedirs(source)
            expected = {}
            for number, name in enumerate("abc"):
                table, files = draw(40, number, pa)
                pq.write_table(table, "%s/%s.parquet" % (source, name), row_group_size=7, write_page_checksum=True,
                               data_page_version="2.0" if number == 1 else "1.0", use_dictionary=number == 2,
                               compression="snappy" if number != 2 else "none")
                expected.update(("%s_parquet#%d" % (name, i), made) for i, made in enumerate(files))
            with open(source + "/README", "w", encoding="ascii") as file:
                file.write("not a shard\n")
            check_look(tools, source, expected, pa, pq)
            check_reshard(tools, source, expected, folder)
            check_damage_and_resume(tools, source, expected, folder)
            check_index(tools, source)
    finally:
        shutil.rmtree(folder)
    print("all as it should be" if not FAILURES else "%d failed" % len(FAILURES))
    return 1 if FAILURES else 0


sys.exit(main())
