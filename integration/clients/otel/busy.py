"""A program that is busy in one known function and sends its profiles with OpenTelemetry's SDK for Python."""
import os
import sys
import time

server, protocol = sys.argv[1], sys.argv[2]
os.environ.update({
    "OTEL_SERVICE_NAME": f"otel-busy-{protocol.split('/')[0]}",
    "OTEL_PROFILING_ENABLED": "true",
    "OTEL_PROFILING_EXPORTER": "otlp",
    "OTEL_PROFILING_EXPORT_INTERVAL": "2",
    "OTEL_EXPORTER_OTLP_PROFILES_PROTOCOL": protocol,
    "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT": server if protocol == "grpc" else f"{server}/v1development/profiles",
    "OTEL_EXPORTER_OTLP_PROFILES_COMPRESSION": "gzip",
    "OTEL_EXPORTER_OTLP_PROFILES_INSECURE": "true",
})

from opentelemetry.sdk.extension.profiling import Profiler  # noqa: E402


def known_busy_function(until):
    total = 0
    while time.time() < until:
        for number in range(10_000):
            total += number * number
    return total


profiler = Profiler()
profiler.start()
known_busy_function(time.time() + 5)
profiler.stop()
