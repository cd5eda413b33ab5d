/* Signal handlers that burn: on the stack of the interrupted code, and on a stack of their own. */
#define _GNU_SOURCE
#include "burn.h"

#include <signal.h>
#include <sys/time.h>

KEEP uint64_t leaf_of_handler(int number)
{
	return burn(number) + burn(number + 1);
}

KEEP void on_alarm(int number)
{
	sink += leaf_of_handler(number);
}

KEEP void on_own_stack(int number)
{
	sink += leaf_of_handler(number) + 1;
}

KEEP uint64_t interrupted_work(int seed)
{
	return burn(seed) + seed;
}

KEEP uint64_t call_interrupted(int seed)
{
	uint64_t result = interrupted_work(seed);
	sink += result;
	return result;
}

int main(int argc, char **argv)
{
	double end = begin_run(argc, argv);
	static char own_stack[65536];
	stack_t stack = { .ss_sp = own_stack, .ss_size = sizeof own_stack };
	sigaltstack(&stack, NULL);
	struct sigaction alarm_action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct sigaction own_action = { .sa_handler = on_own_stack, .sa_flags = SA_RESTART | SA_ONSTACK };
	sigaction(SIGALRM, &alarm_action, NULL);
	sigaction(SIGVTALRM, &own_action, NULL);
	struct itimerval every = { { 0, 9000 }, { 0, 9000 } };
	setitimer(ITIMER_REAL, &every, NULL);
	setitimer(ITIMER_VIRTUAL, &every, NULL);
	for (int i = 0; now_seconds() < end; i++)
		sink += call_interrupted(i);
	return 0;
}
