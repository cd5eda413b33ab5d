/* Library that is loaded and unloaded. NAME tells the two builds apart. */
#include "burn.h"

#define JOIN_NAMES(a, b) a##b
#define JOIN(a, b) JOIN_NAMES(a, b)

KEEP uint64_t JOIN(leaf_of_, NAME)(uint64_t seed)
{
	return burn(seed) + 1;
}

KEEP uint64_t enter_library(uint64_t seed)
{
	uint64_t result = JOIN(leaf_of_, NAME)(seed);
	sink += result;
	return result;
}
