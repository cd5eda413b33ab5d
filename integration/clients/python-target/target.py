"""A program that serves its profiles with pypprof. It prints its address, and is busy in a known function until its input
ends."""
import os
import sys
import threading

from pypprof.net_http import start_pprof_server

ended = threading.Event()


def wait_for_end_of_input():
    sys.stdin.read()
    ended.set()


def known_busy_function():
    # The wall-clock profiler samples the main thread only.
    while not ended.is_set():
        for number in range(10_000):
            number * number


server = start_pprof_server(host="127.0.0.1", port=0)
print(f"127.0.0.1:{server.server_address[1]}", flush=True)
threading.Thread(target=wait_for_end_of_input, daemon=True).start()
known_busy_function()
# The profilers have threads and signal handlers that may abort the process while the interpreter is taken down.
os._exit(0)
