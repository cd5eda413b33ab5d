/* Code in anonymous memory that is mapped, called and unmapped all the time. It keeps a frame pointer, loops, and calls
 * back into the program. */
#define _GNU_SOURCE
#include "burn.h"

#include <string.h>
#include <sys/mman.h>

/* long generated(long rounds, long (*callback)(long)) */
static const unsigned char generated_code[] = {
	0x55,                         /* push %rbp */
	0x48, 0x89, 0xe5,             /* mov %rsp, %rbp */
	0x48, 0xff, 0xcf,             /* 1: dec %rdi */
	0x75, 0xfb,                   /* jnz 1b */
	0xbf, 0x07, 0x00, 0x00, 0x00, /* mov $7, %edi */
	0xff, 0xd6,                   /* call *%rsi */
	0x5d,                         /* pop %rbp */
	0xc3,                         /* ret */
};

KEEP long called_back(long seed)
{
	return (long)burn(seed) + 1;
}

KEEP long call_generated(int pages)
{
	size_t size = (size_t)pages * 4096;
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 0;
	/* At the end of the mapping, so that its address changes. */
	char *code = (char *)memory + size - 256;
	memcpy(code, generated_code, sizeof generated_code);
	if (mprotect(memory, size, PROT_READ | PROT_EXEC) != 0)
		return 0;
	long (*generated)(long, long (*)(long)) = (long (*)(long, long (*)(long)))code;
	long result = 0;
	for (int i = 0; i < 8; i++)
		result += generated(3000000, called_back);
	munmap(memory, size);
	sink += result;
	return result;
}

int main(int argc, char **argv)
{
	double end = begin_run(argc, argv);
	for (int i = 0; now_seconds() < end; i++)
		sink += call_generated(1 + i % 16);
	return 0;
}
