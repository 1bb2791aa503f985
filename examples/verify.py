#!/usr/bin/env python3
"""Verify a CSV file of addresses and print the results. Only the standard library.

    ROLLCALL_API=https://verify.example.com ROLLCALL_KEY=rc_... python3 verify.py contacts.csv > results.csv

Run it again after any failure: the bytes of the file are its identity, so nothing is charged twice.
"""

import hashlib
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

if len(sys.argv) != 2 or not {"ROLLCALL_API", "ROLLCALL_KEY"} <= os.environ.keys():
    sys.exit(__doc__)
API = os.environ["ROLLCALL_API"].rstrip("/")
KEY = os.environ["ROLLCALL_KEY"]


def ask(method, url, headers, body=None):
    """Send one request; again while the service is away or says "later" (429, 503). Give status, headers, bytes."""
    for attempt in range(60):
        wait = min(0.25 * 2**attempt, 16)
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method)) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as refusal:
            if refusal.code == 308:  # of an upload: bytes are missing
                return refusal.code, refusal.headers, b""
            if refusal.code not in (429, 503):
                issue = json.loads(refusal.read())["issue"]
                sys.exit(f"{issue['code']}: {issue['message']}")
            wait = float(refusal.headers.get("Retry-After", wait))
        except OSError:
            if method == "PUT":  # what arrived is not known: the caller asks
                time.sleep(wait)
                return 308, {}, b""
        time.sleep(wait)
    sys.exit("the service does not answer")


def api(method, path, headers=None):
    status, headers, body = ask(method, API + path, {"X-API-Key": KEY, **(headers or {})})
    return json.loads(body), headers


def upload(url, data):
    """Send the bytes, and after a cut connection only those that are missing. The URL is the secret: no key is sent."""
    start, total = 0, len(data)
    while True:
        span = f"bytes {start}-{total - 1}/{total}"
        status, headers, _ = ask("PUT", url, {"Content-Type": "text/csv", "Content-Range": span}, data[start:])
        if status == 308:
            status, headers, _ = ask("PUT", url, {"Content-Range": f"bytes */{total}"}, b"")
        if status != 308:
            return
        start = int(headers["Range"].removeprefix("bytes=0-")) + 1 if headers.get("Range") else 0


def main(name):
    with open(name, "rb") as file:
        data = file.read()
    created, _ = api("POST", "/v1/verifications", {
        "Idempotency-Key": str(uuid.UUID(bytes=hashlib.sha256(data).digest()[:16], version=4)),
        "X-Upload-Content-Length": str(len(data)),
        "X-Upload-Filename": urllib.parse.quote(os.path.basename(name)),
    })
    if created.get("upload"):
        upload(created["upload"]["url"], data)
    while True:
        detail, headers = api("GET", "/v1/verifications/" + created["id"])
        if detail["status"] == "failed":
            sys.exit(f"{detail['issue']['code']}: {detail['issue']['message']}")
        if detail["status"] in ("completed", "completed_with_errors", "cancelled"):
            break
        time.sleep(float(headers.get("Retry-After", 2)))
    _, _, results = ask("GET", f"{API}/v1/verifications/{created['id']}/results", {"X-API-Key": KEY})
    sys.stdout.write(results.decode())


main(sys.argv[1])
