"""A program that is busy in one known function and sends its profiles with the SDK for Python."""
import sys
import time

import pyroscope


def known_busy_function(until):
    total = 0
    while time.time() < until:
        for number in range(10_000):
            total += number * number
    return total


pyroscope.configure(application_name="python-busy", server_address=sys.argv[1], sample_rate=100, upload_interval=2)
with pyroscope.tag_wrapper({"work": "known"}):
    known_busy_function(time.time() + 5)
# The SDK sends now and then, and not at its end: whoever started this says when all has come.
print("done", flush=True)
sys.stdin.read()
pyroscope.shutdown()
