/* Reads the clock through the vdso. */
#define _GNU_SOURCE
#include "burn.h"

KEEP uint64_t read_clock(int rounds)
{
	uint64_t sum = 0;
	struct timespec time;

	for (int i = 0; i < rounds; i++) {
		clock_gettime(CLOCK_MONOTONIC, &time);
		sum += (uint64_t)time.tv_nsec;
	}
	return sum;
}

int main(int argc, char **argv)
{
	double end = begin_run(argc, argv);

	while (now_seconds() < end)
		sink += read_clock(1000);
	return 0;
}
