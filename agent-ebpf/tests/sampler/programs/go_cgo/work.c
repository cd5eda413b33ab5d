/* The C side: a chain that burns, and one that calls back into Go. */
#include "_cgo_export.h"

#include <stdint.h>

static uint64_t burn(uint64_t seed)
{
	uint64_t x = seed | 1;
	for (int i = 0; i < 400000; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		x ^= x >> 29;
	}
	return x;
}

__attribute__((noipa)) uint64_t leaf_in_c(uint64_t seed) { return burn(seed) + 1; }

__attribute__((noipa)) uint64_t call_leaf_in_c(uint64_t seed)
{
	volatile uint64_t result = leaf_in_c(seed);
	return result + 1;
}

__attribute__((noipa)) uint64_t call_back_from_c(uint64_t seed)
{
	volatile uint64_t result = goCallback(seed);
	return result + 1;
}
