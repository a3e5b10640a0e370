# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0

"""Writes drawn Parquet files by pyarrow, and what pyarrow reads in them: write_by_pyarrow.py FOLDER SEED FILES.

FOLDER/0000.parquet and so on; FOLDER/rows.txt has a line for each row: its key, and name=hex for each of its fields as
docs/guide/parquet.md describes them, in the order of the columns. A file that pyarrow itself cannot read has a name
that ends in .refused. Leaves with 77 where python3 has no pyarrow.
"""

import datetime
import decimal
import os
import random
import struct
import sys

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as e:
    print("python3 has no pyarrow: %s" % e)
    sys.exit(77)

decimal.getcontext().prec = 100
CODES = {"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
         "uint64": "Q", "halffloat": "e", "float": "f", "double": "d", "bool": "?"}


def draw_value(at, t):
    """A value of a type, as pyarrow takes it."""
    if pa.types.is_boolean(t):
        return at.random() < 0.5
    if pa.types.is_integer(t):
        signed = pa.types.is_signed_integer(t)
        bits = t.bit_width
        few = at.randrange(-3 if signed else 0, 4)
        return at.choice([few, at.randrange(-2**(bits - 1) if signed else 0, 2**(bits - 1 if signed else bits))])
    if pa.types.is_float16(t):
        return at.randrange(-100, 100) / 4
    if pa.types.is_floating(t):
        return struct.unpack("<f", struct.pack("<f", at.uniform(-1e6, 1e6)))[0]
    if pa.types.is_fixed_size_binary(t):
        return at.randbytes(t.byte_width)
    if pa.types.is_binary(t) or pa.types.is_large_binary(t):
        return at.randbytes(at.choice([0, 3, 40, 900]))
    if pa.types.is_string(t) or pa.types.is_large_string(t):
        return at.choice(["", "a", "\u00e4\U0001f600", "text %d" % at.randrange(9), "x" * at.randrange(70)])
    if pa.types.is_date32(t):
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=at.randrange(-9999, 9999))
    if pa.types.is_time(t):
        return datetime.time(at.randrange(24), at.randrange(60), at.randrange(60), 1000 * at.randrange(1000))
    if pa.types.is_timestamp(t):
        return datetime.datetime(1960, 1, 1) + datetime.timedelta(milliseconds=at.randrange(10**13))
    if pa.types.is_duration(t):
        return datetime.timedelta(milliseconds=at.randrange(10**10))
    if pa.types.is_decimal(t):
        most = 10**t.precision
        return decimal.Decimal(at.randrange(1 - most, most)).scaleb(-t.scale)
    if pa.types.is_dictionary(t):
        return draw_value(at, t.value_type)
    if pa.types.is_fixed_size_list(t):
        return [draw_value(at, t.value_type) for _ in range(t.list_size)]
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return [draw_value(at, t.value_type) for _ in range(at.choice([0, 1, 2, at.randrange(9)]))]
    raise TypeError(t)


def draw_type(at):
    """Of a column, and whether its rows may be null."""
    numbers = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(),
               pa.float16(), pa.float32(), pa.float64()]
    texts = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
    others = [pa.bool_(), pa.binary(7), pa.date32(), pa.time32("ms"), pa.time64("us"), pa.timestamp("us"),
              pa.timestamp("ms", "UTC"), pa.duration("ms"), pa.decimal128(12, 3), pa.decimal128(38, 0),
              pa.decimal256(60, 5), pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64())]
    kind = at.randrange(8)
    if kind == 0:
        return pa.list_(at.choice(numbers + [pa.bool_(), pa.date32()]))
    if kind == 1:
        return pa.list_(at.choice(numbers), at.randrange(1, 5))
    if kind == 2:
        return at.choice([pa.list_, pa.large_list])(at.choice(texts))
    if kind == 3:
        return pa.list_(pa.list_(at.choice(numbers)))
    return at.choice(at.choice([numbers, texts, others]))


def plain(column):
    """An array as one of values that bytes_of_value() takes."""
    t = column.type
    if pa.types.is_dictionary(t):
        return plain(column.cast(t.value_type))
    if pa.types.is_date32(t) or pa.types.is_time32(t):
        return column.cast(pa.int32())
    if pa.types.is_time64(t) or pa.types.is_timestamp(t) or pa.types.is_duration(t) or pa.types.is_date64(t):
        return column.cast(pa.int64())
    return column


def bytes_of_value(value, t):
    if pa.types.is_decimal(t):
        whole = int(value.scaleb(t.scale))
        return whole.to_bytes(t.bit_width // 8, "little", signed=True)
    if str(t) in CODES:
        return struct.pack("<" + CODES[str(t)], value)
    return value.encode() if isinstance(value, str) else value


def is_list(t):
    return pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t)


def is_text(t):
    return t in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def fields_of(column, name):
    """Of each row of a column its fields: a list of (name, bytes)."""
    t = column.type
    if pa.types.is_struct(t):
        rows = [[] for _ in range(len(column))]
        for child, of in zip(column.flatten(), t):  # null where the struct is
            for row, more in zip(rows, fields_of(child, name + "." + of.name)):
                row.extend(more)
        return rows
    rows = []
    inner = t
    while is_list(inner):
        inner = inner.value_type
    if is_list(t):
        flat = pa.types.is_date32(inner)
        for value in column.to_pylist():
            if value is None:
                rows.append([])
            elif is_text(inner):
                rows.append([(name if i == 0 else "%s#%d" % (name, i), bytes_of_value(v, inner))
                             for i, v in enumerate(value)])
            elif is_list(t.value_type):
                ends = [0]
                for one in value:
                    ends.append(ends[-1] + len(one))
                rows.append([(name + ".offsets", struct.pack("<%dq" % len(ends), *ends)),
                             (name, b"".join(bytes_of_value(v, inner) for one in value for v in one))])
            elif flat:
                days = [(v - datetime.date(1970, 1, 1)).days for v in value]
                rows.append([(name, struct.pack("<%di" % len(days), *days))])
            else:
                rows.append([(name, b"".join(bytes_of_value(v, inner) for v in value))])
        return rows
    column = plain(column)
    return [[] if v is None else [(name, bytes_of_value(v, column.type))] for v in column.to_pylist()]


def draw_file(at, path, rows):
    names, arrays = [], []
    for i in range(at.randrange(1, 9)):
        t = draw_type(at)
        nulls = 0 if pa.types.is_fixed_size_list(t) else at.choice([0, 0.2, 0.9, 1])
        distinct = at.random() < 0.3  # as images are: none stands twice
        values = [None if at.random() < nulls else draw_value(at, t) for _ in range(rows)]
        if distinct and t in (pa.binary(), pa.large_binary()):
            values = [None if v is None else v + struct.pack("<q", k) for k, v in enumerate(values)]
        names.append("c%d" % i)
        arrays.append(pa.array(values, t))
    if at.randrange(2):
        image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        names.append("image")
        arrays.append(pa.array([None if at.randrange(9) == 0 else {
            "bytes": at.randbytes(at.randrange(2000)), "path": at.choice([None, "a/%d.jpg" % k])} for k in range(rows)],
                               image))
    if at.randrange(4) == 0:
        nested = pa.struct([("a", pa.struct([("b", pa.int16()), ("c", pa.list_(pa.float32()))]))])
        names.append("deep")
        arrays.append(pa.array([{"a": at.choice([None, {"b": k, "c": [0.5] * (k % 3)}])} for k in range(rows)], nested))
    table = pa.table(arrays, names=names)
    dictionary = at.choice([True, False, names[:1]])
    pq.write_table(
        table, path, row_group_size=at.choice([max(rows, 1), 1, 7, 50, 64]), version=at.choice(["1.0", "2.4", "2.6"]),
        use_dictionary=dictionary, compression=at.choice(["none", "snappy", "gzip", "brotli", "zstd", "lz4"]),
        write_statistics=at.choice([True, False]), data_page_size=at.choice([None, 64, 1000]),
        data_page_version=at.choice(["1.0", "2.0"]), store_schema=at.choice([True, True, False]),
        write_page_index=at.choice([True, False]), write_page_checksum=at.choice([True, False]),
        use_compliant_nested_type=at.choice([True, False]), dictionary_pagesize_limit=at.choice([None, 200]),
        write_batch_size=at.choice([None, 3]),
        column_encoding=draw_encodings(at, names, arrays) if dictionary is False else None)


def draw_encodings(at, names, arrays):
    """Of columns that are not nested: others than PLAIN."""
    chosen = {}
    for name, array in zip(names, arrays):
        t = array.type
        if pa.types.is_int32(t) or pa.types.is_int64(t):
            chosen[name] = at.choice(["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"])
        elif is_text(t):
            chosen[name] = at.choice(["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "PLAIN"])
        elif pa.types.is_boolean(t):
            chosen[name] = at.choice(["RLE", "PLAIN"])
        elif pa.types.is_float32(t) or pa.types.is_float64(t):
            chosen[name] = at.choice(["BYTE_STREAM_SPLIT", "PLAIN"])
    return chosen or None


def main(folder, seed, files):
    with open(os.path.join(folder, "rows.txt"), "w", encoding="utf-8") as out:
        for f in range(files):
            at = random.Random(seed * 1000 + f)
            name = "%04d.parquet" % f
            path = os.path.join(folder, name)
            draw_file(at, path, at.choice([0, 1, 30, 100, 200]))
            try:
                table = pq.ParquetFile(path).read(use_threads=False)
            except pa.ArrowInvalid:  # it cannot read what it has written
                os.rename(path, path + ".refused")
                continue
            rows = [[] for _ in range(table.num_rows)]
            for column, field in zip(table.columns, table.schema):
                for row, more in zip(rows, fields_of(column, field.name)):
                    row.extend(more)
            for number, row in enumerate(rows):
                out.write("%s#%d" % (name, number) + "".join(" %s=%s" % (n, v.hex()) for n, v in row) + "\n")


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
