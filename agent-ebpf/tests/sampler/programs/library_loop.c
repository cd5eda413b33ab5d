/* Loads, calls and unloads two libraries in turn. Arguments: seconds, first library, second library. */
#include "burn.h"

#include <dlfcn.h>

KEEP uint64_t call_library(const char *path, int rounds)
{
	void *library = dlopen(path, RTLD_NOW);
	if (library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	uint64_t (*enter)(uint64_t) = (uint64_t (*)(uint64_t))dlsym(library, "enter_library");
	uint64_t result = 0;
	for (int i = 0; i < rounds; i++)
		result += enter(i);
	dlclose(library);
	sink += result;
	return result;
}

int main(int argc, char **argv)
{
	double end = begin_run(argc, argv);
	while (now_seconds() < end && argc > 3) {
		sink += call_library(argv[2], 400);
		sink += call_library(argv[3], 400);
	}
	return 0;
}
