/* A process of 60 000 mappings, half of them executable, that calls its own code. Arguments: seconds, mappings. */
#define _GNU_SOURCE
#include "burn.h"

#include <sys/mman.h>

KEEP uint64_t leaf_beside_mappings(uint64_t seed)
{
	return burn(seed) + 1;
}

int main(int argc, char **argv)
{
	long count = argc > 2 ? atol(argv[2]) : 60000;
	char *memory = mmap(NULL, count * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return 1;
	/* Neighbors differ, so that they stay apart. */
	for (long i = 0; i < count; i += 2)
		if (mprotect(memory + i * 4096, 4096, PROT_READ | PROT_EXEC) != 0)
			return 1;
	double end = begin_run(argc, argv);
	for (uint64_t i = 0; now_seconds() < end; i++)
		sink += leaf_beside_mappings(i);
	return 0;
}
