"""Protobuf by nothing but the numbers of the wire."""
import gzip


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


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def numbers(data):
    at, found = 0, []
    while at < len(data):
        value, at = varint(data, at)
        found.append(signed(value))
    return found


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def samples_are_old(profiles):
    """Before 1.10 values were field 2, and attributes field 3."""
    samples = [sample for profile in profiles for sample in every(profile, 2)]
    return any(field == 3 and kind == 2 or field == 4 and kind == 0 for sample in samples for field, kind, _ in fields(sample))
