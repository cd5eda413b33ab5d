"""Reads samples of a server as a table of pyarrow."""

import json
import sys
import time
import urllib.request

import pyarrow

PROFILE_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
SELECTOR = '{service_name="shop"}'


def server_url():
    """Returns the first argument of the script, or the default address of a server."""
    return sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4040"


def read_samples(hours, columns):
    """Returns the samples of the last hours. The server sends them in order of time."""
    now = int(time.time() * 1000)
    query = {
        "profileType": PROFILE_TYPE,
        "selector": SELECTOR,
        "start": now - hours * 3_600_000,
        "end": now,
    }
    body = json.dumps({"query": query, "columns": columns}).encode()
    headers = {"Content-Type": "application/json"}
    address = f"{server_url()}/athanor.v1.ExploreService/Samples"
    request = urllib.request.Request(address, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        for warning in response.headers.get_all("Athanor-Warnings") or []:
            print(f"partial result: {warning}", file=sys.stderr)
        samples = pyarrow.ipc.open_stream(response).read_all()
    # Sources that failed later than the first row.
    for warnings in samples["warnings"].unique().to_pylist():
        if warnings:
            print(f"partial result: {warnings}", file=sys.stderr)
    return samples.select(columns)


def map_values(column, function):
    """Returns texts of a dictionary column. The function runs once for each stack or label set, not for each row."""
    chunks = []
    for chunk in column.chunks:
        texts = pyarrow.array([function(value) for value in chunk.dictionary.to_pylist()], pyarrow.string())
        chunks.append(texts.take(chunk.indices))
    return pyarrow.chunked_array(chunks, pyarrow.string())


def leaf_function(stack):
    """Returns the function that was running."""
    return stack[0]["function"] if stack else ""


def label(name):
    """Returns a function that reads one label of a set."""
    return lambda labels: dict(labels).get(name, "")
