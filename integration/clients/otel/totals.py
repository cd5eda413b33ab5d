"""What the samples of an export of OpenTelemetry come to, by profile type.

    totals.py FILE
"""
import json
import struct
import sys

from wire import every, fields, numbers, read, samples_are_old

data = read(sys.argv[1])
strings = [text.decode() for dictionary in every(data, 2) for text in every(dictionary, 5)]
profiles = [p for resource in every(data, 1) for scope in every(resource, 2) for p in every(scope, 2)]
old = samples_are_old(profiles)
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
        times = [time for packed in every(sample, 5) for time in struct.unpack(f"<{len(packed) // 8}Q", packed)]
        # OpenTelemetry for Python looks at the whole heap again and again: what it held last counts.
        if period[0] == "memory.heap" and len(values) == len(times) > 1:
            values = [max(zip(times, range(len(values)), values))[2]]
        totals[name] = totals.get(name, 0) + (sum(values) if values else len(times)) * factor
print(json.dumps({name: str(total) for name, total in totals.items()}))
