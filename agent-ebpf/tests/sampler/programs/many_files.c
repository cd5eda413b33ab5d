/* Loads many libraries and calls them in turn. Arguments: seconds, libraries. */
#include "burn.h"

#include <dlfcn.h>

typedef uint64_t (*enter)(uint64_t);

int main(int argc, char **argv)
{
	static enter functions[1024];
	int count = 0;
	for (int i = 2; i < argc && count < 1024; i++) {
		void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
		enter function = library ? (enter)dlsym(library, "enter_library") : NULL;
		if (function == NULL) {
			fprintf(stderr, "%s: %s\n", argv[i], dlerror());
			return 1;
		}
		functions[count++] = function;
	}
	double end = begin_run(argc, argv);
	for (int i = 0; count > 0 && now_seconds() < end; i++)
		sink += functions[i % count](i);
	return 0;
}
