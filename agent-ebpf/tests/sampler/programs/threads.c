/* Threads with names. The main thread waits. */
#define _GNU_SOURCE
#include "burn.h"

#include <pthread.h>

static double end;

KEEP uint64_t leaf_of_thread(uint64_t seed)
{
	return burn(seed) + 1;
}

KEEP void *run_thread(void *name)
{
	pthread_setname_np(pthread_self(), name);
	for (uint64_t i = 0; now_seconds() < end; i++)
		sink += leaf_of_thread(i);
	return NULL;
}

int main(int argc, char **argv)
{
	end = begin_run(argc, argv);
	pthread_t first, second;
	pthread_create(&first, NULL, run_thread, "first-worker");
	pthread_create(&second, NULL, run_thread, "second-worker");
	pthread_join(first, NULL);
	pthread_join(second, NULL);
	return 0;
}
