/* Frames that need unwind rows: a callback of libc, alloca, a realigned stack, a cold part and a deep recursion. */
#include "burn.h"

#include <alloca.h>
#include <string.h>

#ifndef WITHOUT_SORT
KEEP int compare_numbers(const void *left, const void *right)
{
	uint64_t noise = burn(*(const int *)left);
	int order = *(const int *)left - *(const int *)right;
	sink += noise;
	return order;
}

KEEP uint64_t sort_numbers(int seed)
{
	int numbers[4];
	for (int i = 0; i < 4; i++)
		numbers[i] = (seed + i * 7919) % 101;
	qsort(numbers, 4, sizeof *numbers, compare_numbers);
	return numbers[seed & 3];
}
#endif

KEEP uint64_t leaf_of_alloca(const char *memory, int size)
{
	return burn(memory[size / 2]) + size;
}

KEEP uint64_t use_alloca(int size)
{
	char *memory = alloca(size);
	memset(memory, size, size);
	uint64_t result = leaf_of_alloca(memory, size) + memory[size / 3];
	sink += result;
	return result;
}

KEEP uint64_t leaf_of_realigned(const char *aligned, const char *memory)
{
	sink += (uintptr_t)aligned & 63;
	return burn(aligned[1] + memory[1]);
}

/* An over-aligned local beside alloca, and arguments on the stack: the frame is reached through a pointer to them. */
KEEP uint64_t use_realigned(int a, int b, int c, int d, int e, int f, int g, int size)
{
	char aligned[128] __attribute__((aligned(64)));
	char *memory = alloca(size);
	memset(aligned, a + b + c, sizeof aligned);
	memset(memory, d + e + f, size);
	uint64_t result = leaf_of_realigned(aligned, memory) + aligned[g & 63] + size;
	sink += result;
	return result;
}

__attribute__((cold, noinline)) uint64_t leaf_of_cold(uint64_t seed)
{
	return burn(seed) + 1;
}

KEEP uint64_t use_cold(int seed)
{
	if (__builtin_expect(seed % 2 == 1, 0)) {
		uint64_t result = leaf_of_cold(seed);
		sink += result;
		result += leaf_of_cold(result);
		return result + sink;
	}
	return seed;
}

KEEP uint64_t descend(int depth)
{
	volatile char padding[24];
	padding[depth & 15] = depth;
	uint64_t result = depth > 0 ? descend(depth - 1) : burn(padding[0]);
	result += padding[1];
	sink += result;
	return result;
}

KEEP uint64_t use_recursion(int depth)
{
	uint64_t result = descend(depth - 1) + burn(depth);
	sink += result;
	return result;
}

int main(int argc, char **argv)
{
	double end = begin_run(argc, argv);
	for (int i = 0; now_seconds() < end; i++) {
#ifndef WITHOUT_SORT
		sink += sort_numbers(i);
#endif
		sink += use_alloca(100 + i % 500);
		sink += use_realigned(i, 2, 3, 4, 5, 6, 7, 64 + i % 64);
		sink += use_cold(i | 1);
		sink += use_recursion(200);
	}
	return 0;
}
