// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace millrace::test {

/// A program of Python that writes MDS by MosaicML's own writer:
///
///     python3 reference.py FOLDER SEED STREAMS SAMPLES
///
/// Exit status 77: mosaicml-streaming is not there, or what it needs. In each folder FOLDER/i there is expected.txt
/// with a line for each sample, as its own reader reads it: `shard#number`, then `name:encoding:value;` for each
/// column. Values are in decimal digits (int), hexadecimal digits of a double's bits (float), `type:extents:bytes`
/// (ndarray), or the bytes of what was encoded.
inline constexpr const char* mds_reference = R"PY(
import importlib.util, json, os, random, struct, sys, types
from unittest import mock

spec = importlib.util.find_spec('streaming')
if spec is None or importlib.util.find_spec('numpy') is None:
    sys.exit(77)
# Only the format: the package itself wants torch and the clients of all clouds.
root = os.path.dirname(spec.origin)
for name in ('streaming', 'streaming.base', 'streaming.base.format', 'streaming.base.format.mds',
             'streaming.base.format.base'):
    module = types.ModuleType(name)
    module.__path__ = [os.path.join(root, *name.split('.')[1:])]
    sys.modules[name] = module
if importlib.util.find_spec('torch') is None:
    for name in ('torch', 'torch.distributed', 'torch.utils', 'torch.utils.data'):
        sys.modules[name] = mock.MagicMock(__path__=[])
try:
    import numpy as np
    from decimal import Decimal
    from PIL import Image
    from streaming.base.format.mds.writer import MDSWriter
    from streaming.base.format.mds.reader import MDSReader
    from streaming.base.format.mds.encodings import mds_encode
    from streaming.base.compression import decompress
except ImportError as e:
    print(e, file=sys.stderr)
    sys.exit(77)

folder, seed, streams, samples = sys.argv[1], *map(int, sys.argv[2:])
r = random.Random(seed)
types_ = ['uint8', 'int8', 'uint16', 'int16', 'float16', 'uint32', 'int32', 'float32', 'uint64', 'int64', 'float64']

def drawn_array(dtype, shape):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    a = np.frombuffer(r.randbytes(size), dtype).reshape(shape)
    return np.nan_to_num(a) if dtype.startswith('float') else a

def drawn(encoding):
    if encoding == 'bytes': return r.randbytes(r.randrange(60))
    if encoding == 'str': return ''.join(r.choice('aé漢 x') for _ in range(r.randrange(20)))
    if encoding == 'int': return r.getrandbits(63) - r.getrandbits(62)
    if encoding == 'str_int': return r.getrandbits(62) * r.choice([1, -1])
    if encoding == 'str_float': return r.gauss(0, 1e3)
    if encoding == 'str_decimal': return Decimal(r.getrandbits(80)) / 1000
    if encoding == 'json': return {'a': r.randrange(9), 'b': [None, 'ü']}
    if encoding == 'pkl': return ('x', r.random())
    if encoding in ('jpeg', 'png', 'pil'):
        return Image.frombytes('RGB', (5, 4), r.randbytes(60))
    if encoding.startswith('ndarray'):
        parts = encoding.split(':')
        dtype = parts[1] if len(parts) > 1 else r.choice(types_)
        shape = [int(n) for n in parts[2].split(',')] if len(parts) > 2 else \
            [r.choice([1, 2, 3]) for _ in range(r.randrange(1, 4))]
        if len(parts) < 3 and r.random() < 0.1: shape = [300]
        return drawn_array(dtype, tuple(shape))
    return np.dtype(encoding).type(drawn_array(encoding, (1,))[0])

def said(encoding, value):
    if isinstance(value, np.ndarray):
        return value.dtype.name + ':' + 'x'.join(map(str, value.shape)) + ':' + value.tobytes().hex()
    if encoding.startswith(('int', 'uint')) or encoding == 'str_int': return str(int(value))
    if encoding.startswith('float') or encoding == 'str_float': return struct.pack('>d', float(value)).hex()
    return None

every = ['bytes', 'str', 'int', 'str_int', 'str_float', 'str_decimal', 'json', 'pkl', 'jpeg', 'png', 'pil',
         'ndarray', 'ndarray:float32', 'ndarray:uint8:2,3', 'ndarray:int16:5'] + types_
for stream in range(streams):
    chosen = every if stream == 0 else r.sample(every, r.randrange(1, 6))
    columns = {'c%d%s' % (i, r.choice(['', '.x', 'é'])): e for i, e in enumerate(chosen)}
    out = os.path.join(folder, str(stream))
    compression = [None, 'zstd:3', 'gz:6', 'zstd'][stream % 4]
    hashes = [['sha1'], ['md5', 'sha256'], ['xxh64'], None, ['blake2b', 'sha3_256']][stream % 5]
    encoded = []
    with MDSWriter(out=out, columns=columns, compression=compression, hashes=hashes,
                   size_limit=r.choice([2000, 20000, 1 << 26])) as writer:
        for _ in range(samples):
            s = {name: drawn(e) for name, e in columns.items()}
            encoded.append({name: mds_encode(columns[name], v) for name, v in s.items()})
            writer.write(s)
    index = json.load(open(os.path.join(out, 'index.json')))
    lines = []
    at = 0
    for shard in index['shards']:
        info = shard['zip_data'] or shard['raw_data']
        raw = os.path.join(out, shard['raw_data']['basename'])
        if shard['zip_data']:
            with open(os.path.join(out, info['basename']), 'rb') as f:
                data = decompress(shard['compression'], f.read())
            with open(raw, 'wb') as f:
                f.write(data)
        reader = MDSReader.from_json(out, '', shard)
        for i in range(shard['samples']):
            s = reader.decode_sample(reader.get_sample_data(i))
            line = info['basename'] + '#' + str(i) + ' '
            for name in sorted(columns):
                e = columns[name]
                value = said(e, s[name])
                if value is None:
                    value = encoded[at][name].hex()
                line += name + ':' + e.replace(':', '=') + ':' + value + ';'
            lines.append(line)
            at += 1
        if shard['zip_data']:
            os.remove(raw)
    assert at == samples
    with open(os.path.join(out, 'expected.txt'), 'w', encoding='utf-8') as f:
        f.write('\n'.join(lines) + '\n')
)PY";

}  // namespace millrace::test
