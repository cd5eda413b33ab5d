/* Forks processes that end at once. Arguments: seconds, forks per second. */
#define _GNU_SOURCE
#include "burn.h"

#include <sys/wait.h>

int main(int argc, char **argv)
{
	double start = now_seconds();
	double end = begin_run(argc, argv);
	double rate = argc > 2 ? atof(argv[2]) : 2000;
	long forks = 0;
	for (double now = start; now < end; now = now_seconds()) {
		while (forks < (now - start) * rate) {
			pid_t child = fork();
			if (child == 0)
				_exit(0);
			if (child > 0)
				waitpid(child, NULL, 0);
			forks++;
		}
		usleep(1000);
	}
	return 0;
}
