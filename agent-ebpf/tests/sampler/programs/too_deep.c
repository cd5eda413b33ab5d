/* A stack of 400 frames: more than the sampler follows. */
#include "burn.h"

KEEP uint64_t descend(int depth)
{
	volatile char padding[24];
	padding[depth & 15] = depth;
	uint64_t result = depth > 0 ? descend(depth - 1) : burn(padding[0]);
	result += padding[1];
	sink += result;
	return result;
}

int main(int argc, char **argv)
{
	double end = begin_run(argc, argv);
	while (now_seconds() < end)
		sink += descend(400);
	return 0;
}
