"""An export of OpenTelemetry as JSON, with the names that its fields have.

    as_json.py FILE
"""
import base64
import json
import struct
import sys

from wire import every, fields, numbers, read, samples_are_old, signed

TEXT, BYTES, ID, NUMBER, TRUTH, FIXED, DOUBLE = "text", "bytes", "id", "number", "truth", "fixed", "double"
VALUE_TYPE = {1: ("typeStrindex", NUMBER), 2: ("unitStrindex", NUMBER)}
ANY_VALUE, KEY_VALUE = {}, {}
ANY_VALUE.update({
    1: ("stringValue", TEXT), 2: ("boolValue", TRUTH), 3: ("intValue", NUMBER), 4: ("doubleValue", DOUBLE),
    5: ("arrayValue", {1: ("values", [ANY_VALUE])}), 6: ("kvlistValue", {1: ("values", [KEY_VALUE])}), 7: ("bytesValue", BYTES),
    8: ("stringValueStrindex", NUMBER),
})
KEY_VALUE.update({1: ("key", TEXT), 2: ("value", ANY_VALUE), 3: ("keyStrindex", NUMBER)})
NEW_SAMPLE = {
    1: ("stackIndex", NUMBER), 2: ("attributeIndices", [NUMBER]), 3: ("linkIndex", NUMBER), 4: ("values", [NUMBER]),
    5: ("timestampsUnixNano", [FIXED]),
}
OLD_SAMPLE = NEW_SAMPLE | {2: ("values", [NUMBER]), 3: ("attributeIndices", [NUMBER]), 4: ("linkIndex", NUMBER)}


def export(sample):
    profile = {
        1: ("sampleType", VALUE_TYPE), 2: ("samples", [sample]), 3: ("timeUnixNano", FIXED), 4: ("durationNano", NUMBER),
        5: ("periodType", VALUE_TYPE), 6: ("period", NUMBER), 7: ("profileId", ID), 8: ("droppedAttributesCount", NUMBER),
        9: ("originalPayloadFormat", TEXT), 10: ("originalPayload", BYTES), 11: ("attributeIndices", [NUMBER]),
    }
    scope = {1: ("name", TEXT), 2: ("version", TEXT), 3: ("attributes", [KEY_VALUE]), 4: ("droppedAttributesCount", NUMBER)}
    resource = {1: ("attributes", [KEY_VALUE]), 2: ("droppedAttributesCount", NUMBER)}
    scope_profiles = {1: ("scope", scope), 2: ("profiles", [profile]), 3: ("schemaUrl", TEXT)}
    dictionary = {
        1: ("mappingTable", [{
            1: ("memoryStart", NUMBER), 2: ("memoryLimit", NUMBER), 3: ("fileOffset", NUMBER), 4: ("filenameStrindex", NUMBER),
            5: ("attributeIndices", [NUMBER]),
        }]),
        2: ("locationTable", [{
            1: ("mappingIndex", NUMBER), 2: ("address", NUMBER),
            3: ("lines", [{1: ("functionIndex", NUMBER), 2: ("line", NUMBER), 3: ("column", NUMBER)}]),
            4: ("attributeIndices", [NUMBER]),
        }]),
        3: ("functionTable", [{
            1: ("nameStrindex", NUMBER), 2: ("systemNameStrindex", NUMBER), 3: ("filenameStrindex", NUMBER),
            4: ("startLine", NUMBER),
        }]),
        4: ("linkTable", [{1: ("traceId", ID), 2: ("spanId", ID)}]),
        5: ("stringTable", [TEXT]),
        6: ("attributeTable", [{1: ("keyStrindex", NUMBER), 2: ("value", ANY_VALUE), 3: ("unitStrindex", NUMBER)}]),
        7: ("stackTable", [{1: ("locationIndices", [NUMBER])}]),
    }
    resource_profiles = {1: ("resource", resource), 2: ("scopeProfiles", [scope_profiles]), 3: ("schemaUrl", TEXT)}
    return {1: ("resourceProfiles", [resource_profiles]), 2: ("dictionary", dictionary)}


def value_of(kind, wire, value):
    """What a field holds, as a list: numbers may lie side by side."""
    if kind == NUMBER:
        # Numbers of 64 bits are texts.
        return [str(number) for number in (numbers(value) if wire == 2 else [signed(value)])]
    if kind == FIXED:
        return [str(number) for (number,) in struct.iter_unpack("<Q", value)]
    if kind == DOUBLE:
        return list(struct.unpack("<d", value))
    if kind == TRUTH:
        return [bool(value)]
    if kind == TEXT:
        return [value.decode()]
    if kind == BYTES:
        return [base64.b64encode(value).decode()]
    if kind == ID:
        return [value.hex()]
    return [message(kind, value)]


def message(schema, data):
    out = {}
    for number, wire, value in fields(data):
        # What is not known here is known nowhere: a reader must not lose a field in silence.
        name, kind = schema[number]
        if isinstance(kind, list):
            out.setdefault(name, []).extend(value_of(kind[0], wire, value))
        else:
            (out[name],) = value_of(kind, wire, value)
    return out


data = read(sys.argv[1])
profiles = [p for resource in every(data, 1) for scope in every(resource, 2) for p in every(scope, 2)]
print(json.dumps(message(export(OLD_SAMPLE if samples_are_old(profiles) else NEW_SAMPLE), data)))
