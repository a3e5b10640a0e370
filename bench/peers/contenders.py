#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""The libraries beside which millrace is measured, one in a process; measure.py starts it.

    contenders.py NAME ENDPOINT KEYS FOLDER

Prints "ready"; each line of standard input, "PASSES FIRST THIRD", is answered when the work has been done so many
times: items and bytes; items, seconds and CPU seconds when FIRST items have come, the same of THIRD (0: all are 0), and
the same at the end. It reads the KEYS objects train/N.tar, raw/N.bin, text/N.txt or volume/N.bin of bucket b as its own
documentation shows. FOLDER holds copies of the tars or films, for what reads local files; caches are in the current
folder.
AWS_CA_BUNDLE names the authority of an endpoint of https.

Each function below is one contender: it imports, makes its client and prepares its data, and returns what does the work
of a pass.
"""

import asyncio
import concurrent.futures
import functools
import glob
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

from measure import CLIP_SHAPE, CLIP_STRIDE, FILM_CLIPS, cpu_seconds

KEY, SECRET, REGION, BUCKET = "test-key", "test-secret", "us-east-1", "b"
BATCH, FIRST, PIECE = 100, 32, 8 << 20
WEIGHTS, TENSOR_SIDE = 8, 1024  # of a file of the checkpoint: so many tensors of side x side floats, as many of a side
HEIGHT, WIDTH, SIDE = 375, 500, 224
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Counter:
    """What has come, and when, in wall and CPU time, the first `first` items had, and the first `third`."""

    def __init__(self, first=1, third=0):
        self.items = self.bytes = 0
        self.first, self.third, self.next = first, third, first
        self.at_first = self.at_third = (0, 0.0, 0.0)
        self.cpu, self.begin = cpu_seconds(os.getpid()), time.monotonic()

    def add(self, size, items=1):
        self.items += items
        self.bytes += size
        if self.items >= self.next:
            now = self.now()
            if self.next == self.first:
                self.at_first = now
            if self.third and self.items >= self.third:
                self.at_third = now
            self.next = self.third if self.third > self.items else float("inf")

    def now(self):
        return self.items, time.monotonic() - self.begin, cpu_seconds(os.getpid()) - self.cpu


class Place:
    def __init__(self, endpoint, keys, folder):
        self.endpoint, self.count, self.folder = endpoint, keys, folder

    def names(self, prefix, suffix):
        return [f"{prefix}/{i:04d}.{suffix}" for i in range(self.count)]

    def urls(self, prefix, suffix):
        return [f"s3://{BUCKET}/{name}" for name in self.names(prefix, suffix)]

    def local(self, suffix="tar"):
        return sorted(glob.glob(os.path.join(self.folder, f"*.{suffix}")))


def boto3_client(place, connections=10):
    import boto3
    from botocore.config import Config

    return boto3.client("s3", endpoint_url=place.endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                        region_name=REGION,
                        config=Config(max_pool_connections=connections, s3={"addressing_style": "path"}))


def obstore_store(place):
    from obstore.store import S3Store

    return S3Store(BUCKET, endpoint=place.endpoint, access_key_id=KEY, secret_access_key=SECRET, region=REGION,
                   virtual_hosted_style_request=False, client_options={"allow_http": True})  # TLS: by SSL_CERT_FILE


def s3torch_objects(place, prefix, suffix):
    from s3torchconnector import S3ClientConfig, S3MapDataset

    return S3MapDataset.from_objects(place.urls(prefix, suffix), region=REGION, endpoint=place.endpoint,
                                     s3client_config=S3ClientConfig(force_path_style=True))


def one_by_one(names, size_of):
    """Work that gets each object of a list whole."""

    def work(c):
        for name in names:
            c.add(size_of(name))

    return work


# ---- objects, whole: raw/ and volume/


def boto3_readinto(place, prefix):
    client, buffer = boto3_client(place), memoryview(bytearray(PIECE))

    def size_of(name):
        body, total = client.get_object(Bucket=BUCKET, Key=name)["Body"], 0
        while n := body.readinto(buffer):
            total += n
        return total

    return one_by_one(place.names(prefix, "bin"), size_of)


def boto3_read(place, prefix):
    client = boto3_client(place)
    return one_by_one(place.names(prefix, "bin"), lambda n: len(client.get_object(Bucket=BUCKET, Key=n)["Body"].read()))


def s3fs(place, prefix):
    import s3fs as library

    files = library.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=place.endpoint,
                                 client_kwargs={"region_name": REGION})
    return one_by_one(place.names(prefix, "bin"), lambda n: len(files.cat_file(f"{BUCKET}/{n}")))


def awscrt_client(place):
    """Returns what starts to get an object, by name; on_body is called with the pieces and their places."""
    from awscrt import auth, http, io as crt_io, s3

    group = crt_io.EventLoopGroup()
    bootstrap = crt_io.ClientBootstrap(group, crt_io.DefaultHostResolver(group))
    tls = {"tls_mode": s3.S3RequestTlsMode.DISABLED}
    if place.endpoint.startswith("https:"):
        trusting = crt_io.TlsContextOptions()
        trusting.override_default_trust_store_from_path(None, os.environ["AWS_CA_BUNDLE"])
        tls = {"tls_mode": s3.S3RequestTlsMode.ENABLED,
               "tls_connection_options": crt_io.ClientTlsContext(trusting).new_connection_options()}
    client = s3.S3Client(bootstrap=bootstrap, region=REGION,
                         credential_provider=auth.AwsCredentialsProvider.new_static(KEY, SECRET), **tls)
    host = place.endpoint.split("//")[1]

    def start(name, on_body, on_done=None):
        request = http.HttpRequest("GET", f"/{BUCKET}/{name}", http.HttpHeaders([("host", host)]))
        return client.make_request(type=s3.S3RequestType.GET_OBJECT, request=request, on_body=on_body, on_done=on_done)

    return start


def awscrt(place, prefix):
    start, names = awscrt_client(place), place.names(prefix, "bin")

    def work(c):
        lock, room = threading.Lock(), threading.Semaphore(4)

        def on_body(chunk, **_):
            with lock:
                c.add(len(chunk))

        running = []
        for name in names:
            room.acquire()
            running.append(start(name, on_body, lambda **_: room.release()))
        for each in running:
            each.finished_future.result()

    return work


def s3torchconnector(place, prefix):
    data = s3torch_objects(place, prefix, "bin")
    return one_by_one(range(place.count), lambda i: len(data[i].read()))


def obstore(place, prefix):
    import obstore as library

    store = obstore_store(place)
    return one_by_one(place.names(prefix, "bin"), lambda name: len(library.get(store, name).bytes()))


def s3dlio(place, prefix):
    import s3dlio as library

    return one_by_one(place.urls(prefix, "bin"), lambda url: len(library.get(url)))


def kvikio(place, prefix):
    import kvikio as library
    import numpy

    def size_of(name):
        file = library.RemoteFile.open_s3(BUCKET, name)  # endpoint and keys: of the environment
        return file.read(numpy.empty(file.nbytes(), numpy.uint8))

    return one_by_one(place.names(prefix, "bin"), size_of)


# ---- objects, several at once: small/, slow/ and far/


def in_threads(names, threads, size_of):
    def work(c):
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            for size in pool.map(size_of, names):
                c.add(size)

    return work


def boto3_threads(place, prefix, threads):
    client = boto3_client(place, threads)
    return in_threads(place.names(prefix, "bin"), threads,
                      lambda n: len(client.get_object(Bucket=BUCKET, Key=n)["Body"].read()))


def s3torchconnector_threads(place, prefix, threads):
    data = s3torch_objects(place, prefix, "bin")
    return in_threads(range(place.count), threads, lambda i: len(data[i].read()))


def obstore_gather(place, prefix):
    import obstore as library

    store = obstore_store(place)

    async def one(name):
        return len(await (await library.get_async(store, name)).bytes_async())

    async def all_of():
        return await asyncio.gather(*[one(name) for name in place.names(prefix, "bin")])

    def work(c):
        for size in asyncio.run(all_of()):
            c.add(size)

    return work


# ---- TFRecord files


def records(place, by):
    """Length, its CRC, content, its CRC, one after the other; the reading of the content is not part of it."""
    names = place.names("records", "tfrecord")
    if by == "boto3":
        client = boto3_client(place)
        open_it = lambda name: io.BufferedReader(client.get_object(Bucket=BUCKET, Key=name)["Body"], 1 << 20)
    elif by == "obstore":
        import obstore as library

        store = obstore_store(place)
        open_it = lambda name: io.BufferedReader(_Raw(library.open_reader(store, name)), 1 << 20)
    elif by == "s3torchconnector":
        data = s3torch_objects(place, "records", "tfrecord")
        open_it = lambda name: data[names.index(name)]
    else:
        import s3dlio as library

        open_it = lambda name: io.BytesIO(library.get(f"s3://{BUCKET}/{name}"))

    def work(c):
        for name in names:
            stream = open_it(name)
            while head := stream.read(12):
                size = int.from_bytes(head[:8], "little")
                content = stream.read(size + 4)
                if len(content) != size + 4:
                    raise ValueError(f"{name} is cut")
                c.add(size)

    return work


# ---- samples


def webdataset(place, opener, workers=0):
    import webdataset as wds

    urls = place.urls("train", "tar")
    if opener == "local":
        urls = place.local()
    elif opener == "curl":
        urls = [f"pipe:curl -s -f {place.endpoint}/{BUCKET}/{name}" for name in place.names("train", "tar")]
    else:
        open_it = opened(place, opener)
        wds.gopen_schemes["s3"] = lambda url, *_, **__: open_it(url.split(f"s3://{BUCKET}/")[1])
    data = wds.WebDataset(urls, shardshuffle=False).batched(BATCH, collation_fn=None)
    loader = wds.WebLoader(data, batch_size=None, num_workers=workers) if workers else data

    def work(c):
        for batch in loader:
            for sample in batch:
                c.add(len(sample["jpg"]) + len(sample["cls"]))

    return work


def opened(place, opener):
    """What opens a tar by its name, as a file."""
    if opener == "boto3":
        client = boto3_client(place)
        return lambda name: client.get_object(Bucket=BUCKET, Key=name)["Body"]
    if opener == "obstore":
        import obstore as library

        store = obstore_store(place)
        return lambda name: io.BufferedReader(_Raw(library.open_reader(store, name)), 1 << 20)
    if opener == "awscrt":
        start = awscrt_client(place)

        def whole(name):  # the pieces come in order
            file = io.BytesIO()
            start(name, lambda chunk, **_: file.write(chunk)).finished_future.result()
            file.seek(0)
            return file

        return whole
    data, names = s3torch_objects(place, "train", "tar"), place.names("train", "tar")
    return lambda name: data[names.index(name)]


class _Raw(io.RawIOBase):
    """A reader of obstore's as Python's io wants one."""

    def __init__(self, reader):
        self.reader = reader

    def readable(self):
        return True

    def readinto(self, buffer):
        data = self.reader.read(len(buffer))
        buffer[:len(data)] = data
        return len(data)


def samples_of(path):
    with tarfile.open(path) as archive:
        sample = {}
        for member in archive:
            key, field = member.name.split(".")
            sample[field] = archive.extractfile(member).read()
            if field == "cls":
                yield {"key": key, **sample}
                sample = {}


def in_store(place, name):
    """Whether an earlier process has uploaded it."""
    return "Contents" in boto3_client(place).list_objects_v2(Bucket=BUCKET, Prefix=name)


def _upload(place, prefix, folder):
    client = boto3_client(place)
    for path in sorted(glob.glob(os.path.join(folder, "**"), recursive=True)):
        if os.path.isfile(path):
            client.upload_file(path, BUCKET, f"{prefix}/{os.path.relpath(path, folder)}")


def owned(batch):
    """What a worker can send: not views of a chunk's memory."""
    return [{"jpg": bytes(sample["jpg"]), "cls": bytes(sample["cls"])} for sample in batch]


def litdata(place, workers=0):
    import litdata as loader
    from litdata.streaming import downloader

    if not in_store(place, "litdata/index.json"):
        with tempfile.TemporaryDirectory(dir=place.folder) as folder:
            loader.optimize(fn=samples_of, inputs=place.local(), output_dir=folder, chunk_bytes="64MB", num_workers=1)
            _upload(place, "litdata", folder)
    # Its chunks come by obstore, which refuses plain HTTP otherwise.
    downloader._OBSTORE_CLIENT_OPTIONS = {**(downloader._OBSTORE_CLIENT_OPTIONS or {}), "allow_http": True}
    access = {"endpoint_url": place.endpoint, "aws_access_key_id": KEY, "aws_secret_access_key": SECRET,
              "region_name": REGION}

    def made(cache):
        data = loader.StreamingDataset(f"s3://{BUCKET}/litdata", storage_options=access, shuffle=True, cache_dir=cache)
        # Forked, for the line above to hold in them.
        how = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
        return loader.StreamingDataLoader(data, batch_size=BATCH, collate_fn=owned if workers else list, **how)

    return own_cache(made)


def mosaicml(place):
    from streaming import MDSWriter, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()
    if not in_store(place, "mosaicml/index.json"):
        with tempfile.TemporaryDirectory(dir=place.folder) as folder:
            with MDSWriter(out=folder, columns={"jpg": "bytes", "cls": "bytes"}) as out:
                for path in place.local():
                    for sample in samples_of(path):
                        out.write({"jpg": sample["jpg"], "cls": sample["cls"]})
            _upload(place, "mosaicml", folder)
    os.environ["S3_ENDPOINT_URL"] = place.endpoint

    def made(cache):
        data = StreamingDataset(remote=f"s3://{BUCKET}/mosaicml", local=cache, shuffle=True, batch_size=BATCH)
        return DataLoader(data, batch_size=BATCH, collate_fn=list)

    return own_cache(made)


def own_cache(made):
    """Reads all of the loader that `made` makes with a folder for its cache, which it keeps: later passes find it
    full."""
    kept = []

    def work(c):
        if not kept:
            kept.append(made(tempfile.mkdtemp(dir=os.getcwd())))
        for batch in kept[0]:
            for sample in batch:
                c.add(len(sample["jpg"]) + len(sample["cls"]))

    return work


def spdl(place):
    import spdl.io
    from spdl.pipeline import PipelineBuilder

    client = boto3_client(place)

    def load(name):
        return list(spdl.io.iter_tarfile(client.get_object(Bucket=BUCKET, Key=name)["Body"].read()))

    def work(c):
        pipeline = (PipelineBuilder().add_source(place.names("train", "tar")).pipe(load, concurrency=2).add_sink(2)
                    .build(num_threads=2))
        with pipeline.auto_stop():
            for found in pipeline:
                for name, content in found:
                    c.add(len(content), name.endswith("cls"))  # the second file of a sample

    return work


def tar_stream(place, by):
    """The first samples alone, by Python's tarfile."""
    client = boto3_client(place) if by == "boto3" else None
    name = place.names("train", "tar")[0]

    def work(c):
        child = None
        if by == "boto3":
            stream = client.get_object(Bucket=BUCKET, Key=name)["Body"]
        else:
            child = subprocess.Popen(["curl", "-s", "-f", f"{place.endpoint}/{BUCKET}/{name}"], stdout=subprocess.PIPE)
            stream = child.stdout
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            size = 0
            for member in archive:
                size += len(archive.extractfile(member).read())
                if member.name.endswith(".cls"):
                    c.add(size)
                    size = 0
                    if c.items == FIRST:
                        break
        stream.close()
        if child:
            child.kill()
            child.wait()

    return work


# ---- images


def jpegs(place):
    return [sample["jpg"] for path in place.local() for sample in samples_of(path)]


def over_images(place, function):
    all_of = jpegs(place)

    def work(c):
        for jpeg in all_of:
            c.add(function(jpeg))

    return work


def pil_decode(place):
    import numpy
    from PIL import Image

    return over_images(place, lambda jpeg: numpy.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")).size)


def simplejpeg_decode(place):
    import simplejpeg

    return over_images(place, lambda jpeg: simplejpeg.decode_jpeg(jpeg).size)


def torchvision_decode(place):
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.set_num_threads(1)

    def one(jpeg):
        return decode_jpeg(torch.frombuffer(bytearray(jpeg), dtype=torch.uint8), mode=ImageReadMode.RGB).numel()

    return over_images(place, one)


def turboloader_decode(place):
    import turboloader

    def work(c):
        for path in place.local():
            loader = turboloader.FastDataLoader(path, batch_size=BATCH, num_workers=1)
            for batch in loader:
                images = batch[0] if isinstance(batch, tuple) else batch
                c.add(images.shape[0] * HEIGHT * WIDTH * 3 if tuple(images.shape[1:]) == (HEIGHT, WIDTH, 3) else 0,
                      images.shape[0])

    return work


def _torchvision_batches(place, *changes):
    """Of the decoded bytes random crops, mirrored, what `changes` make of them, normalised."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    change = v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip(), *changes,
                         v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), v2.ToDtype(torch.float16)])
    all_of = jpegs(place)

    def one(jpeg):
        return change(decode_jpeg(torch.frombuffer(bytearray(jpeg), dtype=torch.uint8), mode=ImageReadMode.RGB))

    def work(c):
        for at in range(0, len(all_of), BATCH):
            batch = torch.stack([one(jpeg) for jpeg in all_of[at:at + BATCH]])
            c.add(batch.numel(), len(batch))

    return work


def torchvision_crops(place):
    return _torchvision_batches(place)


def torchvision_augment(place, values):
    import torch
    from torchvision.transforms import v2

    return _torchvision_batches(place, v2.ToDtype(getattr(torch, values), scale=True),
                                v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
                                v2.RandomRotation(15, v2.InterpolationMode.BILINEAR),
                                v2.GaussianBlur(9, (0.1, 2.0)), v2.RandomErasing(0.25))


def pil_crops(place):
    import torch
    from PIL import Image
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    change = v2.Compose([v2.RandomResizedCrop(SIDE), v2.RandomHorizontalFlip(), v2.PILToTensor(),
                         v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD), v2.ToDtype(torch.float16)])
    all_of = jpegs(place)

    def work(c):
        for at in range(0, len(all_of), BATCH):
            batch = torch.stack([change(Image.open(io.BytesIO(j)).convert("RGB")) for j in all_of[at:at + BATCH]])
            c.add(batch.numel(), len(batch))

    return work


def dali(place, what):
    from nvidia.dali import fn, math as dmath, pipeline_def, types

    indexes = []
    for path in place.local():  # wds2idx: where each sample begins
        indexes.append(path + ".idx")
        with tarfile.open(path) as archive, open(indexes[-1], "w") as out:
            members = [(m.offset, m.offset_data, m.size, m.name) for m in archive]
            print("v1.2", len(members) // 2, file=out)
            for i in range(0, len(members), 2):
                print(*[f"{name.split('.')[1]} {data} {size} {name}" for _, data, size, name in members[i:i + 2]],
                      file=out)

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None)
    def made():
        jpeg = fn.readers.webdataset(paths=place.local(), index_paths=indexes, ext=["jpg"], name="reader",
                                     random_shuffle=what != "decode")
        if what == "decode":
            return fn.decoders.image(jpeg, device="cpu", output_type=types.RGB)
        image = fn.decoders.image_random_crop(jpeg, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0],
                                              random_aspect_ratio=[3 / 4, 4 / 3])
        image = fn.resize(image, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR)
        if what == "augment":
            between = lambda low, high: fn.random.uniform(range=[low, high])
            image = fn.color_twist(image, brightness=between(0.6, 1.4), contrast=between(0.6, 1.4),
                                   saturation=between(0.6, 1.4), hue=between(-36, 36))
            image = fn.rotate(image, angle=between(-15, 15), keep_size=True, fill_value=0)
            image = fn.gaussian_blur(image, window_size=9, sigma=between(0.1, 2.0))
            # One in four: of 0.02 to 0.33 of the area, as the others', in proportions of 0.3 to 3.3.
            side, tall = fn.random.uniform(range=[0.02, 0.33]), fn.random.uniform(range=[-1.2, 1.2])
            size = dmath.sqrt(side) * fn.random.coin_flip(probability=0.25)
            shape = fn.stack(size * dmath.exp(tall / 2), size * dmath.exp(-tall / 2))
            image = fn.erase(image, anchor=(1.0 - shape) * fn.random.uniform(range=[0.0, 1.0], shape=2), shape=shape,
                             axis_names="HW", normalized=True)
        return fn.crop_mirror_normalize(image, dtype=types.FLOAT16, output_layout="CHW", mean=[255 * m for m in MEAN],
                                        std=[255 * s for s in STD], mirror=fn.random.coin_flip())

    return dali_epochs(made(), HEIGHT * WIDTH * 3 if what == "decode" else SIDE * SIDE * 3)


def dali_epochs(pipeline, size):
    """An epoch of the reader a call; what it gives has so many bytes each. The last batch is filled up."""
    pipeline.build()
    total = pipeline.epoch_size("reader")

    def work(c):
        left = total
        while left:
            (batch,) = pipeline.run()
            count = min(len(batch), left)
            left -= count
            c.add(count * size, count)

    return work


# ---- clips of films: each in a decoder of its own, as one that is drawn


CLIP_FRAMES, CLIP_HEIGHT, CLIP_WIDTH, _ = CLIP_SHAPE
CLIP_BATCH = 8


def over_clips(place, clip_of):
    """Work that stacks the clips that clip_of(path, number of the first frame) makes."""
    import torch

    torch.set_num_threads(1)
    films = place.local("mp4")
    clips = [(path, n * CLIP_FRAMES * CLIP_STRIDE) for path in films for n in range(FILM_CLIPS)]

    def work(c):
        for at in range(0, len(clips), CLIP_BATCH):
            batch = torch.stack([clip_of(*clip) for clip in clips[at:at + CLIP_BATCH]])
            c.add(batch.numel(), len(batch))

    return work


def torchcodec(place, seek):
    from torchcodec.decoders import VideoDecoder
    from torchcodec.transforms import Resize

    def clip_of(path, first):
        decoder = VideoDecoder(path, dimension_order="NHWC", seek_mode=seek,
                               transforms=[Resize((CLIP_HEIGHT, CLIP_WIDTH))])
        return decoder.get_frames_in_range(first, first + CLIP_FRAMES * CLIP_STRIDE, CLIP_STRIDE).data

    return over_clips(place, clip_of)


def pyav(place):
    import av
    import torch

    def clip_of(path, first):
        with av.open(path) as film:
            stream = film.streams.video[0]
            stream.codec_context.thread_count = 1
            tick = round(1 / (stream.average_rate * stream.time_base))  # of a frame
            film.seek(first * tick, stream=stream)
            frames = []
            for frame in film.decode(stream):
                number = frame.pts // tick - first
                if number >= 0 and number % CLIP_STRIDE == 0:
                    frames.append(torch.from_numpy(frame.to_ndarray(width=CLIP_WIDTH, height=CLIP_HEIGHT,
                                                                    format="rgb24", interpolation="BILINEAR")))
                    if len(frames) == CLIP_FRAMES:
                        return torch.stack(frames)
        raise ValueError(f"{path} has no {CLIP_FRAMES} frames from {first}")

    return over_clips(place, clip_of)


def dali_video(place):
    from nvidia.dali import fn, pipeline_def, types

    films = place.local("mp4")

    @pipeline_def(batch_size=CLIP_BATCH, num_threads=1, device_id=None)
    def made():
        clip = fn.experimental.readers.video(device="cpu", filenames=films, sequence_length=CLIP_FRAMES,
                                             stride=CLIP_STRIDE, step=CLIP_FRAMES * CLIP_STRIDE, name="reader",
                                             random_shuffle=True)
        return fn.resize(clip, size=[CLIP_HEIGHT, CLIP_WIDTH], interp_type=types.INTERP_LINEAR)

    return dali_epochs(made(), CLIP_FRAMES * CLIP_HEIGHT * CLIP_WIDTH * 3)


# ---- lines


def split_lines(place, pieces_of, size):
    """Pieces of text cut at line feeds, as lists of `size` lines."""

    def work(c):
        for name in place.names("text", "txt"):
            rest, batch = b"", []
            for piece in pieces_of(name):
                lines = (rest + piece).split(b"\n")
                rest = lines.pop()
                batch += lines
                at = 0
                while len(batch) - at >= size:
                    taken = batch[at:at + size]
                    at += size
                    c.add(sum(map(len, taken)) + len(taken), len(taken))
                batch = batch[at:]
            c.add(sum(map(len, batch)) + len(batch), len(batch))

    return work


def lines_boto3(place, size):
    client = boto3_client(place)
    return split_lines(place, lambda n: client.get_object(Bucket=BUCKET, Key=n)["Body"].iter_chunks(1 << 20), size)


def lines_obstore(place, size):
    import obstore as library

    store = obstore_store(place)
    return split_lines(place, lambda name: map(bytes, library.get(store, name).stream(min_chunk_size=1 << 20)), size)


def batches_of_lines(place, lines_of, size):
    def work(c):
        for name in place.names("text", "txt"):
            batch = []
            for line in lines_of(name):
                batch.append(line)
                if len(batch) == size:
                    c.add(sum(map(len, batch)), size)
                    batch = []
            c.add(sum(map(len, batch)), len(batch))

    return work


def lines_iter(place, size):
    client = boto3_client(place)
    return batches_of_lines(place, lambda n: client.get_object(Bucket=BUCKET, Key=n)["Body"].iter_lines(
        chunk_size=1 << 20, keepends=True), size)


def lines_s3fs(place, size):
    import s3fs as library

    files = library.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=place.endpoint,
                                 client_kwargs={"region_name": REGION})

    def pieces(name):  # its own readline() reads a block for each line
        with files.open(f"{BUCKET}/{name}", "rb", block_size=PIECE) as file:
            while piece := file.read(1 << 20):
                yield piece

    return split_lines(place, pieces, size)


def lines_s3torchconnector(place, size):
    data = s3torch_objects(place, "text", "txt")

    def pieces(name):
        reader = data[int(name.split("/")[1].split(".")[0])]
        while piece := reader.read(1 << 20):
            yield piece

    return split_lines(place, pieces, size)


# ---- a checkpoint of KEYS files


def tensors_of(place):
    import torch

    count = place.count * WEIGHTS
    return {**{f"layer{i:04d}.weight": torch.full((TENSOR_SIDE, TENSOR_SIDE), float(i)) for i in range(count)},
            **{f"layer{i:04d}.bias": torch.full((TENSOR_SIDE,), float(i)) for i in range(count)}}


def counted(tensors, c):
    for tensor in tensors:
        c.add(tensor.nbytes)


def dcp_s3torchconnector(place, what):
    """PyTorch's distributed checkpoints in one process; what is loaded was saved by itself."""
    import torch.distributed.checkpoint as dcp
    from s3torchconnector import S3ClientConfig
    from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
    from s3torchconnector.dcp.s3_file_system import S3FileSystem

    state, path = tensors_of(place), f"s3://{BUCKET}/dcp-{what}/"  # endpoint: of the environment
    config = S3ClientConfig(force_path_style=True)

    def rename(files, old, new):  # it copies within the store, which the server here does not
        with files.create_stream(old, "rb") as source, files.create_stream(new, "wb") as to:
            to.write(source.read())

    S3FileSystem.rename = rename

    def save(c=None):
        dcp.save(state, storage_writer=S3StorageWriter(region=REGION, path=path, s3client_config=config))
        if c:
            counted(state.values(), c)

    def load(c):
        dcp.load(state, storage_reader=S3StorageReader(region=REGION, path=path, s3client_config=config))
        counted(state.values(), c)

    if what == "load":
        save()
    return {"save": save, "load": load}[what]


def safetensors_boto3(place, what):
    """The safetensors package, and boto3's transfers, of one file (save), or of each (load)."""
    import safetensors.torch

    client = boto3_client(place)

    def save(c):
        client.upload_fileobj(io.BytesIO(safetensors.torch.save(state)), BUCKET, "boto3/model.safetensors")
        counted(state.values(), c)

    def load(c):
        loaded = {}
        for name in step_files(place):
            body = io.BytesIO()
            client.download_fileobj(BUCKET, name, body)
            loaded.update(safetensors.torch.load(body.getvalue()))
        counted(loaded.values(), c)

    state = tensors_of(place) if what == "save" else {}
    return {"save": save, "load": load}[what]


def step_files(place):
    return [f"checkpoint/step-000001/model-{i + 1:05d}-of-{place.count:05d}.safetensors" for i in range(place.count)]


def runai_streamer(place):
    from runai_model_streamer import SafetensorsStreamer

    os.environ["RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING"] = "0"  # endpoint and keys: of the environment
    paths = [f"s3://{BUCKET}/{name}" for name in step_files(place)]

    def work(c):
        with SafetensorsStreamer() as streamer:
            streamer.stream_files(paths)
            counted((tensor for _, tensor in streamer.get_tensors()), c)

    return work


def find(name):
    """The contender, and what it is called with beside the place: "webdataset:curl:2"."""
    function, *arguments = name.split(":")
    return globals()[function], [int(a) if a.isdigit() else a for a in arguments]


def main():
    name, endpoint, keys, folder = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr  # for what libraries print
    function, arguments = find(name)
    work = function(Place(endpoint, int(keys), folder), *arguments)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        passes, first, third = map(int, line.split())
        c = Counter(first, third)
        for _ in range(passes):
            work(c)
        print(c.items, c.bytes, *c.at_first, *c.at_third, *c.now(), file=answers, flush=True)


if __name__ == "__main__":
    main()
