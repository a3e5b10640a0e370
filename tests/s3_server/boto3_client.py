# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""What boto3 does with a server: boto3_client.py ENDPOINT ACCESS_KEY SECRET [CA_FILE]. Leaves with 77 without boto3."""

import hashlib
import io
import os
import sys
import urllib.error
import urllib.request

# Nothing of the machine's own configuration takes part.
for name in list(os.environ):
    if name.startswith("AWS_") or name.lower().endswith("_proxy"):
        del os.environ[name]
os.environ.update(AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull, AWS_EC2_METADATA_DISABLED="true")

try:
    import boto3
    import botocore.config
    import botocore.exceptions
except ImportError:
    sys.exit(77)

endpoint, key, secret = sys.argv[1:4]
ca_file = sys.argv[4] if len(sys.argv) > 4 else None


def client(access_key=key, secret_key=secret, region="us-east-1", **config):
    return boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=access_key, aws_secret_access_key=secret_key,
        region_name=region, verify=ca_file,
        config=botocore.config.Config(signature_version="s3v4", s3={"addressing_style": "path"},
                                      retries={"max_attempts": 0}, **config))


def code_of(call, **arguments):
    try:
        call(**arguments)
    except botocore.exceptions.ClientError as error:
        return error.response["Error"]["Code"]
    return "no error"


def expect(actual, expected):
    assert actual == expected, f"expected {expected!r}, got {actual!r}"


s3 = client()
s3.create_bucket(Bucket="boto")
s3.head_bucket(Bucket="boto")

keys = ["plain", "a b+c", "dir/é/日本.tar", "dir//double", "dir/../dots", "per%20cent", "~tilde*'()!", "tab\tnew\nline", "q?&=#"]
for name in keys:
    body = f"body of {name}".encode()
    etag = s3.put_object(Bucket="boto", Key=name, Body=body, Metadata={"a": "two  words"})["ETag"]
    expect(etag, f'"{hashlib.md5(body).hexdigest()}"')
    got = s3.get_object(Bucket="boto", Key=name)
    expect(got["Body"].read(), body)
    expect(got["Metadata"], {"a": "two  words"})
    expect(s3.head_object(Bucket="boto", Key=name)["ContentLength"], len(body))
    part = s3.get_object(Bucket="boto", Key=name, Range="bytes=2-4", IfMatch=etag)
    expect((part["Body"].read(), part["ContentRange"]), (body[2:5], f"bytes 2-4/{len(body)}"))

pages = s3.get_paginator("list_objects_v2").paginate(Bucket="boto", PaginationConfig={"PageSize": 2})
expect([o["Key"] for page in pages for o in page["Contents"]], sorted(keys, key=str.encode))
rolled = s3.list_objects_v2(Bucket="boto", Delimiter="/", Prefix="dir/", StartAfter="dir/0")
expect([p["Prefix"] for p in rolled["CommonPrefixes"]], ["dir/é/"])

expect(code_of(s3.get_object, Bucket="boto", Key="none"), "NoSuchKey")
expect(code_of(s3.get_object, Bucket="boto", Key="plain", IfMatch='"x"'), "PreconditionFailed")
# A header of its own: the boto3 of Debian 12 and Ubuntu 24.04 (1.26, 1.34) has no IfNoneMatch for put_object().
only_new = client()
only_new.meta.events.register("before-sign.s3.PutObject",
                              lambda request, **_: request.headers.add_header("If-None-Match", "*"))
expect(code_of(only_new.put_object, Bucket="boto", Key="plain", Body=b""), "PreconditionFailed")
expect(code_of(client(secret_key="wrong").list_objects_v2, Bucket="boto"), "SignatureDoesNotMatch")
expect(code_of(client(access_key="unknown").list_objects_v2, Bucket="boto"), "InvalidAccessKeyId")

big = bytes(range(256)) * 4096 * 12  # 12 MiB, uploaded in parts by threads
transfer = boto3.s3.transfer.TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
s3.upload_fileobj(io.BytesIO(big), "boto", "big", Config=transfer)
expect(s3.head_object(Bucket="boto", Key="big")["ETag"][-3:], '-3"')
copy = io.BytesIO()
s3.download_fileobj("boto", "big", copy, Config=transfer)
assert copy.getvalue() == big, "the big object came back different"

upload = s3.create_multipart_upload(Bucket="boto", Key="aborted")["UploadId"]
s3.upload_part(Bucket="boto", Key="aborted", UploadId=upload, PartNumber=7, Body=b"part")
parts = s3.list_parts(Bucket="boto", Key="aborted", UploadId=upload)["Parts"]
expect([(p["PartNumber"], p["Size"]) for p in parts], [(7, 4)])
s3.abort_multipart_upload(Bucket="boto", Key="aborted", UploadId=upload)
expect(code_of(s3.list_parts, Bucket="boto", Key="aborted", UploadId=upload), "NoSuchUpload")

if ca_file is None:
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "boto", "Key": "a b+c"}, ExpiresIn=60)
    expect(urllib.request.urlopen(url).read(), b"body of a b+c")
    url = s3.generate_presigned_url("put_object", Params={"Bucket": "boto", "Key": "up"}, ExpiresIn=60)
    expect(urllib.request.urlopen(urllib.request.Request(url, data=b"up", method="PUT")).status, 200)
    try:
        urllib.request.urlopen(url.replace("/up?", "/uq?"))
        raise AssertionError("a changed presigned URL was accepted")
    except urllib.error.HTTPError as error:
        expect(error.code, 403)

for name in keys:
    s3.delete_object(Bucket="boto", Key=name)
expect(sorted(o["Key"] for o in s3.list_objects_v2(Bucket="boto")["Contents"]), ["big"] if ca_file else ["big", "up"])
# A client with the wrong region gets the right one.
expect(client(region="eu-west-1").head_bucket(Bucket="boto")["ResponseMetadata"]["HTTPStatusCode"], 200)
print("boto3", boto3.__version__)
