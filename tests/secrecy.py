#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Looks for secrets and signatures in what the tests have printed: nothing that the library says may show one.

find(text) names the kinds of secrets in a text; summarize.py asks it about the output of every test.

secrecy.py --self-test

Secrets are the keys and tokens that the tests use, collected from their sources, and whatever has the form of a
signature, a signed header or a token in a URL. What was found is named by its kind and never repeated.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent

# The forms that signatures and tokens have, whatever their values.
FORMS = {
    "a signature": re.compile(r"(?i)(?:x-amz-)?signature\W{0,4}[0-9a-f]{64}\b"),
    "an Authorization field": re.compile(r"(?i)\bauthorization\W{0,4}(?:AWS4-HMAC-SHA256|bearer|basic)\b|AWS4-HMAC-SHA256 Credential="),
    "a token in a URL": re.compile(r"(?i)x-amz-(?:security-token|signature)=[^&\s]{4}"),
    "a session token": re.compile(r"(?i)x-amz-security-token\W{0,4}[\w/+%=-]{8}"),
}

# Where the sources of the tests write secrets down: the second and third arguments of credentials and keys of the
# embedded server, and settings by name.
WRITTEN = [
    re.compile(r'credentials\(\s*"[^"]*",\s*"([^"]+)"(?:,\s*"([^"]+)")?'),
    re.compile(r'access_key\("([^"]+)"(?:,\s*"([^"]+)")?'),
    re.compile(r"(?m)^(?:secret_key|sts_key)='?([^'\s]+)'?$"),
    re.compile(r'"AWS_(?:SECRET_ACCESS_KEY|SESSION_TOKEN)",\s*"([^"]+)"'),
    re.compile(r"aws_(?:secret_access_key|session_token)\s*=\s*([\w/+.=-]+)"),
]
# From the documentation of AWS, whose vectors the tests use.
KNOWN = ["wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"]
SHORTEST = 8  # anything shorter is an ordinary word


def collect(folder):
    """The secrets in the sources below a folder, with every one of the examples and of the embedded server."""
    found = set(KNOWN)
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".cpp", ".hpp", ".py", ".sh") and path.name != "secrecy.py":
            text = path.read_text(errors="replace")
            for pattern in WRITTEN:
                for match in pattern.finditer(text):
                    found.update(value for value in match.groups() if value and len(value) >= SHORTEST)
    return {value for value in found if not re.fullmatch(r"[a-z_]+|.* .*", value)}  # names of variables, sentences


SECRETS = collect(HERE)


def find(text):
    """The kinds of secrets that a text shows, each once."""
    shown = [kind for kind, form in FORMS.items() if form.search(text)]
    if any(secret in text for secret in SECRETS):
        shown.append("a secret key or token of the tests")
    return shown


# A text, and whether it shows a secret.
CASES = [
    ("s3://bucket/key: 403 SignatureDoesNotMatch: The request signature we calculated does not match", False),
    ("every request is covered by its signature: " + "x" * 64, False),
    ("the message shows no signature", False),
    ("sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", False),
    ("http://h/k?X-Amz-Signature=", False),
    ("Signature=" + "0123456789abcdef" * 4, True),
    ("<SignatureProvided>" + "ab" * 32, False),
    ('"signature": "' + "ab" * 32 + '"', True),
    ("http://h/k?X-Amz-Signature=abcd", True),
    ("http://h/k?X-Amz-Security-Token=a%2Fb%2B", True),
    ("authorization: AWS4-HMAC-SHA256 x", True),
    ("AWS4-HMAC-SHA256 Credential=A/20260101/r/s3/aws4_request", True),
    ("Authorization: Bearer abc", True),
    ("x-amz-security-token: FQoGZXIvYXdz", True),
    ("the key is test" + "-secret", True),
    ("wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY", True),
]


def self_test():
    failures = 0
    for text, expected in CASES:
        if bool(find(text)) != expected:
            failures += 1
            print(f"self-test: case {CASES.index((text, expected))}: {find(text)}")
    # The collection finds what it was written for: the server's own key, and that of the real server.
    for secret in ("test" + "-secret", "mill/race+secret/of+40/" + "characters+or/so="):
        if secret not in SECRETS:
            failures += 1
            print("self-test: a secret of the tests is not collected")
    print(f"self-test: {len(CASES)} texts, {len(SECRETS)} secrets, {failures} unexpected results")
    return 1 if failures else 0


if __name__ == "__main__":
    if sys.argv[1:] != ["--self-test"]:
        print(__doc__)
        sys.exit(2)
    sys.exit(self_test())
