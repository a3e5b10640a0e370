// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace millrace::test {

/// A program of Python, with checksums and an encoder of its own, that writes TFRecord files of drawn records:
///
///     python3 write.py SEED FILES RECORDS
///
/// Beside each 0.tfrecord there is 0.txt, with a line for each record, which says what TensorFlow's reader makes of it:
/// `name:kind:values;` for each feature, by names, then `|name[kind:values;...]` for each feature list. Names and byte
/// strings are in hexadecimal digits, floats are those of their bits.
inline constexpr const char* tfrecord_writer = R"PY(
import random, struct, sys

table = []
for i in range(256):
    for _ in range(8):
        i = (i >> 1) ^ (0x82f63b78 if i & 1 else 0)
    table.append(i)

def crc32c(data):
    r = 0xffffffff
    for b in data:
        r = table[(r ^ b) & 255] ^ (r >> 8)
    return r ^ 0xffffffff

def masked(data):
    c = crc32c(data)
    return struct.pack('<I', ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff)

def framed(data):
    size = struct.pack('<Q', len(data))
    return size + masked(size) + data + masked(data)

def varint(n):
    n &= (1 << 64) - 1
    out = b''
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])

def part(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data

def unknown(r):
    if r.random() < 0.9:
        return b''
    n = r.choice([4, 15, 16, 2000])
    return r.choice([varint(n << 3) + varint(r.getrandbits(64)), varint(n << 3 | 1) + r.randbytes(8),
                     part(n, r.randbytes(r.randrange(20))), varint(n << 3 | 5) + r.randbytes(4)])

def a_number(r):
    n = r.choice([r.getrandbits(63), r.getrandbits(31), r.randrange(200)])
    return n if r.random() < 0.7 else -n

def feature(r):
    """Its bytes, and what they say: 'kind:values;'."""
    kind = r.randrange(4)
    if kind == 0:
        return unknown(r), '0:;'
    count = r.choice([0, 1, 1, 1, 2, r.randrange(20)])
    packed = r.random() < 0.6
    body = unknown(r)
    if kind == 1:
        values = [r.randbytes(r.choice([0, 5, r.randrange(300)])) for _ in range(count)]
        body += b''.join(part(1, v) + unknown(r) for v in values)
        text = ','.join(v.hex() for v in values)
    else:
        if kind == 2:
            values = [r.randbytes(4) for _ in range(count)]
            texts = ['%08x' % struct.unpack('<I', v)[0] for v in values]
            encoded, tag = values, varint(1 << 3 | 5)
        else:
            values = [a_number(r) for _ in range(count)]
            texts = [str(v) for v in values]
            encoded, tag = [varint(v) for v in values], varint(1 << 3)
        cut = r.randrange(count + 1) if r.random() < 0.2 else count  # two stretches, of which one is packed
        runs = [(encoded[:cut], packed), (encoded[cut:], not packed)]
        for run, is_packed in runs:
            if is_packed and (run or r.random() < 0.1):
                body += part(1, b''.join(run))
            elif not is_packed:
                body += b''.join(tag + v for v in run)
        text = ','.join(texts)
    out = part(kind, body)
    if r.random() < 0.05:  # a list of another kind before it counts for nothing
        out = part(kind % 3 + 1, b'') + out
    return unknown(r) + out + unknown(r), '%d:%s;' % (kind, text)

def entry(r, name, value):
    both = [part(1, name), part(2, value)]
    if r.random() < 0.1:
        both.reverse()
    return part(1, b''.join(both))

def a_name(r):
    return r.choice([b'image/encoded', b'image/class/label', b'x', b'tokens', b'', b'a name of more than fifteen bytes',
                     'Stra\u00dfe'.encode(), b'n%d' % r.randrange(50)])

def features(r, count):
    said, body = {}, b''
    for _ in range(count):
        name = a_name(r)
        value, text = feature(r)
        said[name] = name.hex() + ':' + text  # the last one of a name counts
        body += entry(r, name, value) + unknown(r)
    return body, said

def example(r):
    body, said = features(r, r.randrange(7))
    out = unknown(r) + (part(1, body) if body or r.random() < 0.5 else b'')
    if r.random() < 0.1:  # what is there twice is merged
        body, more = features(r, r.randrange(3))
        said.update(more)
        out += part(1, body)
    return out + unknown(r), ''.join(said[n] for n in sorted(said))

def sequence_example(r):
    out, text = example(r)
    said, lists = {}, b''
    for _ in range(r.randrange(4)):
        name = a_name(r)
        steps = [feature(r) for _ in range(r.randrange(5))]
        said[name] = '|' + name.hex() + '[' + ''.join(s[1] for s in steps) + ']'
        lists += entry(r, name, b''.join(part(1, s[0]) for s in steps))
    return out + part(2, lists), text + ''.join(said[n] for n in sorted(said))

seed, files, records = (int(a) for a in sys.argv[1:4])
r = random.Random(seed)
for i in range(files):
    with open('%d.tfrecord' % i, 'wb') as out, open('%d.txt' % i, 'w') as says:
        for _ in range(records):
            data, text = sequence_example(r) if r.random() < 0.3 else example(r)
            out.write(framed(data))
            says.write(text + '\n')
)PY";

}  // namespace millrace::test
