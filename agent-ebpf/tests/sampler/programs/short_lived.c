/* Children that live for 50 ms: each is forked, and executes this program under another name. Arguments: seconds, or
 * `child`. */
#include "burn.h"

#include <string.h>
#include <sys/wait.h>

KEEP uint64_t leaf_of_child(uint64_t seed)
{
	return burn(seed) + 1;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "child") == 0) {
		double end = now_seconds() + 0.05;
		for (uint64_t i = 0; now_seconds() < end; i++)
			sink += leaf_of_child(i);
		return 0;
	}
	double end = begin_run(argc, argv);
	while (now_seconds() < end) {
		pid_t child = fork();
		if (child == 0) {
			execl("/proc/self/exe", "short-lived", "child", NULL);
			_exit(1);
		}
		waitpid(child, NULL, 0);
		usleep(20000);
	}
	return 0;
}
