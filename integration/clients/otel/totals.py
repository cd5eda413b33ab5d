"""What the samples of an export of OpenTelemetry come to, by profile type: read by nothing but the numbers of the wire.

    totals.py FILE
"""
import gzip
import json
import struct
import sys


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            size = {1: 8, 5: 4}[kind]
            value, at = data[at:at + size], at + size
        yield key >> 3, kind, value


def every(data, wanted):
    return [value for field, _, value in fields(data) if field == wanted]


def numbers(data):
    at, found = 0, []
    while at < len(data):
        value, at = varint(data, at)
        found.append(value - (1 << 64) if value >> 63 else value)
    return found


with open(sys.argv[1], "rb") as file:
    data = file.read()
if data[:2] == b"\x1f\x8b":
    data = gzip.decompress(data)
strings = [text.decode() for dictionary in every(data, 2) for text in every(dictionary, 5)]
profiles = [p for resource in every(data, 1) for scope in every(resource, 2) for p in every(scope, 2)]
samples = [sample for profile in profiles for sample in every(profile, 2)]
# Before 1.10 values were field 2, and attributes field 3.
old = any(field == 3 and kind == 2 or field == 4 and kind == 0 for sample in samples for field, kind, _ in fields(sample))
totals = {}
for profile in profiles:
    def kind(field):
        found = dict((f, v) for one in every(profile, field) for f, _, v in fields(one))
        return strings[found.get(1, 0)], strings[found.get(2, 0)]

    of, period = kind(1), kind(5)
    factor, metric = 1, period[0]
    if period == ("cpu", "nanoseconds"):
        metric = "process_cpu"
        if of == ("samples", "count"):
            factor, of = every(profile, 6)[0], period
    elif of[0] == "off_cpu" and not metric:
        metric = "off_cpu"
    name = ":".join([metric, *of, *period])
    for sample in every(profile, 2):
        values = [value for packed in every(sample, 2 if old else 4) for value in numbers(packed)]
        times = sum(len(struct.unpack(f"<{len(packed) // 8}Q", packed)) for packed in every(sample, 5))
        totals[name] = totals.get(name, 0) + (sum(values) if values else times) * factor
print(json.dumps({name: str(total) for name, total in totals.items()}))
