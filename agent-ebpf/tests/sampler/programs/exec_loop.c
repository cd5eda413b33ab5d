/* Executes itself again and again, and burns between. Arguments: seconds, end on the monotonic clock. */
#include "burn.h"

KEEP uint64_t leaf_between_execs(uint64_t seed)
{
	return burn(seed) + 1;
}

int main(int argc, char **argv)
{
	double end = argc > 2 ? atof(argv[2]) : begin_run(argc, argv);
	if (now_seconds() > end)
		return 0;
	for (int i = 0; i < 10; i++)
		sink += leaf_between_execs(i);
	char text[64];
	snprintf(text, sizeof text, "%f", end);
	execl("/proc/self/exe", argv[0], argv[1], text, NULL);
	return 1;
}
