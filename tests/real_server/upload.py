# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Fills a bucket without the library: with boto3 where it is installed, else with requests signed here."""

import datetime
import hashlib
import hmac
import urllib.parse
import urllib.request
import xml.etree.ElementTree


class Boto3Store:
    name = "boto3"

    def __init__(self, environment):
        import boto3
        from botocore.config import Config
        server = dict(endpoint_url=environment["AWS_ENDPOINT_URL_S3"], region_name=environment["AWS_REGION"],
                      aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
                      aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"])
        self.s3 = boto3.client("s3", **server, config=Config(s3={"addressing_style": "path"}, signature_version="s3v4",
                                                             proxies={}))
        self.sts = boto3.client("sts", **server, config=Config(proxies={}))

    def create_bucket(self, bucket):
        self.s3.create_bucket(Bucket=bucket)

    def put(self, bucket, key, body):
        self.s3.put_object(Bucket=bucket, Key=key, Body=body)

    def put_in_parts(self, bucket, key, path, algorithm):
        """As boto3's upload_file does with large files; why that cannot be done, else None."""
        from boto3.s3.transfer import TransferConfig
        from botocore.exceptions import BotoCoreError
        how = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, use_threads=False)
        try:
            self.s3.upload_file(str(path), bucket, key, Config=how,
                                ExtraArgs={"ChecksumAlgorithm": algorithm} if algorithm else {})
        except (BotoCoreError, ValueError) as fault:  # an algorithm that this version does not have
            return str(fault)
        return None

    def presign(self, bucket, key):
        return self.s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=600)

    def assume_role(self, role):
        """(access key, secret key, session token)"""
        given = self.sts.assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
        return given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"]


class OwnStore:
    """AWS Signature Version 4, as its documentation describes it."""
    name = "this program's own signatures (no boto3)"

    def __init__(self, environment):
        self.endpoint = environment["AWS_ENDPOINT_URL_S3"]
        self.host = self.endpoint.split("://")[1]
        self.region = environment["AWS_REGION"]
        self.key = environment["AWS_ACCESS_KEY_ID"]
        self.secret = environment["AWS_SECRET_ACCESS_KEY"]
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def create_bucket(self, bucket):
        self._send("/" + bucket, b"")

    def put(self, bucket, key, body):
        self._send(f"/{bucket}/" + urllib.parse.quote(key, safe="/-_.~"), body)

    def presign(self, bucket, key):
        path = f"/{bucket}/" + urllib.parse.quote(key, safe="/-_.~")
        time, scope = self._now("s3")
        query = urllib.parse.urlencode(
            {"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"{self.key}/{scope}", "X-Amz-Date": time,
             "X-Amz-Expires": "600", "X-Amz-SignedHeaders": "host"}, quote_via=urllib.parse.quote, safe="-_.~")
        request = f"GET\n{path}\n{query}\nhost:{self.host}\n\nhost\nUNSIGNED-PAYLOAD"
        return f"{self.endpoint}{path}?{query}&X-Amz-Signature={self._sign(request, time, scope)}"

    def assume_role(self, role):
        """(access key, secret key, session token)"""
        form = urllib.parse.urlencode({"Action": "AssumeRole", "Version": "2011-06-15", "RoleArn": role,
                                       "RoleSessionName": "test"})
        answer = xml.etree.ElementTree.fromstring(self._send("/", form.encode(), "POST", "sts"))
        found = {element.tag.rsplit("}")[-1]: element.text for element in answer.iter()}
        return found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"]

    def _now(self, service):
        time = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        return time, f"{time[:8]}/{self.region}/{service}/aws4_request"

    def _sign(self, request, time, scope):
        digest = hashlib.sha256(request.encode()).hexdigest()
        key = ("AWS4" + self.secret).encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}"
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    def _send(self, path, body, method="PUT", service="s3"):
        payload = hashlib.sha256(body).hexdigest()
        time, scope = self._now(service)
        fields = {"host": self.host, "x-amz-content-sha256": payload, "x-amz-date": time}
        if method == "POST":
            fields = {"content-type": "application/x-www-form-urlencoded", **fields}
        names = ";".join(fields)
        lines = "".join(f"{name}:{value}\n" for name, value in fields.items())
        signature = self._sign(f"{method}\n{path}\n\n{lines}\n{names}\n{payload}", time, scope)
        fields["authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, SignedHeaders={names}, "
                                   f"Signature={signature}")
        request = urllib.request.Request(self.endpoint + path, data=body, headers=fields, method=method)
        with self.opener.open(request, timeout=60) as answer:
            return answer.read()


def open_store(environment):
    try:
        return Boto3Store(environment)
    except ImportError:
        return OwnStore(environment)
