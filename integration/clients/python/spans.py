"""A program that is busy in one known function within a span, and writes which one: profiles and spans belong together."""
import sys
import time

import pyroscope
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from pyroscope.otel import PyroscopeSpanProcessor


def known_busy_function(until):
    total = 0
    while time.time() < until:
        for number in range(10_000):
            total += number * number
    return total


pyroscope.configure(application_name="python-spans", server_address=sys.argv[1], sample_rate=100, upload_interval=2)
provider = TracerProvider()
provider.add_span_processor(PyroscopeSpanProcessor())
trace.set_tracer_provider(provider)
with trace.get_tracer("busy").start_as_current_span("known work") as span:
    known_busy_function(time.time() + 5)
    print(format(span.get_span_context().span_id, "016x"))
# The SDK sends now and then, and not at its end: whoever started this says when all has come.
print("done", flush=True)
sys.stdin.read()
pyroscope.shutdown()
