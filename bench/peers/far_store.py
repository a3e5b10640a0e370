#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""One reading of far_store_bench by a peer, as its documentation says, with its default settings:

    far_store.py ENDPOINT PEER PREFIX COUNT SIZE     prints seconds and bytes

Objects are s3://b/PREFIX/0 to COUNT - 1, of SIZE bytes each. Peers: awscrt (4 objects at once, given as far as the
interface asks for a number), s3torchconnector (4 threads), obstore (64 at once; obstore-list: of what it lists), boto3
(32 threads), litdata (COUNT samples of SIZE bytes, shuffled, in batches of 100; its first call makes its chunks of them
and uploads these). They come from PyPI:

    python3 -m venv peers && peers/bin/pip install awscrt s3torchconnector obstore boto3 litdata torch
"""

import asyncio
import concurrent.futures
import functools
import os
import sys
import threading
import time

KEY, SECRET, REGION = "test-key", "test-secret", "us-east-1"
RESULT = sys.stdout
sys.stdout = sys.stderr  # for what peers print


def keys(prefix, count):
    return [f"{prefix}/{i}" for i in range(count)]


def awscrt(endpoint, prefix, count):
    from awscrt import auth, http, io, s3

    group = io.EventLoopGroup()
    bootstrap = io.ClientBootstrap(group, io.DefaultHostResolver(group))
    credentials = auth.AwsCredentialsProvider.new_static(KEY, SECRET)
    client = s3.S3Client(bootstrap=bootstrap, region=REGION, credential_provider=credentials,
                         tls_mode=s3.S3RequestTlsMode.DISABLED)
    host = endpoint.split("//")[1]
    lock, total, room = threading.Lock(), [0], threading.Semaphore(4)

    def on_body(chunk, **_):
        with lock:
            total[0] += len(chunk)

    def start(key):
        room.acquire()
        headers = http.HttpHeaders([("host", host)])
        request = s3.S3RequestType.GET_OBJECT
        made = client.make_request(type=request, request=http.HttpRequest("GET", f"/b/{key}", headers),
                                   on_body=on_body, on_done=lambda **_: room.release())
        return made

    begin = time.monotonic()
    for each in [start(key) for key in keys(prefix, count)]:
        each.finished_future.result()
    return time.monotonic() - begin, total[0]


def s3torchconnector(endpoint, prefix, count):
    os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
    from s3torchconnector import S3ClientConfig, S3MapDataset

    data = S3MapDataset.from_objects([f"s3://b/{key}" for key in keys(prefix, count)], region=REGION, endpoint=endpoint,
                                     s3client_config=S3ClientConfig(force_path_style=True))
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        total = sum(pool.map(lambda i: len(data[i].read()), range(count)))
    return time.monotonic() - begin, total


def obstore(endpoint, prefix, count, listed=False):
    import obstore as library
    from obstore.store import S3Store

    store = S3Store("b", endpoint=endpoint, access_key_id=KEY, secret_access_key=SECRET, region=REGION,
                    virtual_hosted_style_request=False, client_options={"allow_http": True})

    async def read_all():
        room = asyncio.Semaphore(64)

        async def one(key):
            async with room:
                return len(await (await library.get_async(store, key)).bytes_async())

        names = keys(prefix, count)
        if listed:
            names = [each["path"] for page in library.list(store, prefix=prefix) for each in page]
        return sum(await asyncio.gather(*[one(name) for name in names]))

    begin = time.monotonic()
    total = asyncio.run(read_all())
    return time.monotonic() - begin, total


def boto3(endpoint, prefix, count):
    import boto3 as library
    from botocore.config import Config

    client = library.client("s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                            region_name=REGION,
                            config=Config(max_pool_connections=32, s3={"addressing_style": "path"}))
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        read = lambda key: client.get_object(Bucket="b", Key=key)["Body"].read()
        total = sum(pool.map(lambda key: len(read(key)), keys(prefix, count)))
    return time.monotonic() - begin, total


def sample_of(what):
    number, size = what
    return {"data": bytes([number % 251]) * size, "key": number}


def litdata(endpoint, prefix, count, size):
    import tempfile

    import boto3 as library
    import litdata as loader
    from botocore.exceptions import ClientError
    from litdata.streaming import downloader

    access = {"endpoint_url": endpoint, "aws_access_key_id": KEY, "aws_secret_access_key": SECRET,
              "region_name": REGION}
    client = library.client("s3", **access)
    try:
        client.head_object(Bucket="b", Key=f"{prefix}/index.json")
    except ClientError:
        with tempfile.TemporaryDirectory() as folder:
            loader.optimize(fn=sample_of, inputs=[(i, size) for i in range(count)], output_dir=folder,
                            chunk_bytes="64MB", num_workers=1)
            for name in sorted(os.listdir(folder)):
                client.upload_file(os.path.join(folder, name), "b", f"{prefix}/{name}")
    # Its chunks come by obstore, which refuses plain HTTP otherwise.
    downloader._OBSTORE_CLIENT_OPTIONS = {**(downloader._OBSTORE_CLIENT_OPTIONS or {}), "allow_http": True}
    with tempfile.TemporaryDirectory() as cache:
        begin = time.monotonic()
        data = loader.StreamingDataset(f"s3://b/{prefix}", storage_options=access, shuffle=True, cache_dir=cache)
        batches = loader.StreamingDataLoader(data, batch_size=100, collate_fn=list)
        total = sum(len(sample["data"]) for batch in batches for sample in batch)
        return time.monotonic() - begin, total


def main():
    endpoint, peer, prefix, count, size = sys.argv[1:]
    peers = {"awscrt": awscrt, "s3torchconnector": s3torchconnector, "obstore": obstore,
             "obstore-list": functools.partial(obstore, listed=True), "boto3": boto3,
             "litdata": functools.partial(litdata, size=int(size))}
    seconds, total = peers[peer](endpoint, prefix, int(count))
    if total != int(count) * int(size):
        sys.exit(f"{peer} has read {total} bytes")
    print(seconds, total, file=RESULT, flush=True)
    os._exit(0)  # the threads of obstore abort at an ordinary exit


if __name__ == "__main__":
    main()
