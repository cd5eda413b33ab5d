"""Pushes the example data of the notebooks: a week of a made-up web shop with five pods.

Usage: python3 push_example.py [URL]

The server must accept old profiles: athanor serve --set limits.reject_older_than=0s
Version 2 was deployed a day ago. It prices more slowly, and it verifies sessions faster. Garbage collection takes more of
pod-4 than of the others.
"""

import random
import sys
import time
import urllib.parse
import urllib.request

HOURS_BETWEEN_PROFILES = 4
PROFILE_SECONDS = 10
PODS = [f"pod-{number}" for number in range(5)]
WEEK_HOURS = 7 * 24
DEPLOY_HOURS_AGO = 24

# Samples of a profile by stack, root first.
STACKS = {
    "main.main;shop/web.(*Router).ServeHTTP;shop/pricing.(*Engine).Quote;shop/pricing.evaluate": 240,
    "main.main;shop/web.(*Router).ServeHTTP;shop/pricing.(*Engine).Quote;math/big.(*Int).Mul": 60,
    "main.main;shop/web.(*Router).ServeHTTP;shop/session.Verify;crypto/sha256.block": 150,
    "main.main;shop/web.(*Router).ServeHTTP;shop/orders.(*Store).Insert;encoding/json.Marshal": 120,
    "main.main;shop/web.(*Router).ServeHTTP;shop/orders.(*Store).Insert;syscall.Syscall": 90,
    "main.main;shop/web.(*Router).ServeHTTP;shop/catalog.(*Service).Search;shop/catalog.intersect": 180,
    "main.main;shop/web.(*Router).ServeHTTP;shop/catalog.(*Service).Search;sort.insertionSort": 50,
    "main.main;net/http.(*conn).readRequest;syscall.Syscall": 40,
    "runtime.gcBgMarkWorker;runtime.gcDrain;runtime.scanobject": 70,
}


def expected_samples(stack, pod, version):
    """Returns the mean number of samples of a stack."""
    samples = STACKS[stack]
    if pod == "pod-4" and stack.endswith("runtime.scanobject"):
        samples *= 4
    if version == "2" and stack.endswith("shop/pricing.evaluate"):
        samples *= 1.4
    if version == "2" and stack.endswith("crypto/sha256.block"):
        samples *= 0.6
    return samples


def push(url, pod, version, start, noise):
    """Sends one profile as folded stacks."""
    lines = []
    for stack in STACKS:
        mean = expected_samples(stack, pod, version)
        lines.append(f"{stack} {max(1, round(noise.gauss(mean, mean**0.5)))}\n")
    parameters = {
        "name": f"shop.cpu{{pod={pod},version={version}}}",
        "format": "folded",
        "from": start,
        "until": start + PROFILE_SECONDS,
    }
    request = f"{url}/ingest?{urllib.parse.urlencode(parameters)}"
    urllib.request.urlopen(request, data="".join(lines).encode(), timeout=30).close()


def main():
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4040"
    noise = random.Random(1)
    now = int(time.time())
    count = 0
    for hours_ago in range(WEEK_HOURS - 1, 0, -HOURS_BETWEEN_PROFILES):
        version = "1" if hours_ago > DEPLOY_HOURS_AGO else "2"
        for number, pod in enumerate(PODS):
            push(url, pod, version, now - hours_ago * 3600 + 60 * number, noise)
            count += 1
    print(f"pushed {count} profiles")


if __name__ == "__main__":
    main()
