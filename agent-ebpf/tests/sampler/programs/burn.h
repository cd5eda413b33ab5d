/* Shared by the programs whose call chains the tests know: work that lasts about a millisecond, and the time limit.
 * `noipa` keeps a function as it is written: never inlined, cloned, merged with another or called as a tail. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define KEEP __attribute__((noipa))

static volatile uint64_t sink;

static inline double now_seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* Burns a millisecond. Inline: the caller is the leaf. */
static inline __attribute__((always_inline)) uint64_t burn(uint64_t seed)
{
	uint64_t x = seed | 1;
	for (int i = 0; i < 400000; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		x ^= x >> 29;
	}
	sink += x;
	return x;
}

/* Returns the end of the run: argument 1 is its length in seconds. */
static inline double begin_run(int argc, char **argv)
{
	printf("%d\n", (int)getpid());
	fflush(stdout);
	return now_seconds() + (argc > 1 ? atof(argv[1]) : 1);
}
