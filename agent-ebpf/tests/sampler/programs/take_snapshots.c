/* Writes registers and stacks of all threads of a process, taken on the CPU clock, to stdout.
 * Arguments: pid, number of snapshots, frequency. A snapshot is 17 registers (u64: 16 by DWARF number, and the
 * instruction pointer), the size of the stack (u64) and its bytes. */
#define _GNU_SOURCE
#include "burn.h"

#include <dirent.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define STACK_BYTES 49152
#define RING_PAGES 256
#define MAX_THREADS 64

/* Bits of the kernel's register numbers in the order of DWARF numbers; the instruction pointer is 8. */
static const int kernel_numbers[17] = { 0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8 };

struct ring {
	struct perf_event_mmap_page *head;
	unsigned char *data;
};

static void copy_from_ring(struct ring *ring, uint64_t from, void *to, size_t size)
{
	size_t capacity = RING_PAGES * 4096;

	for (size_t i = 0; i < size; i++)
		((unsigned char *)to)[i] = ring->data[(from + i) % capacity];
}

static int write_snapshot(struct ring *ring, uint64_t from, uint32_t size)
{
	static uint64_t words[8192 + 64];
	uint64_t registers[24], ordered[17];
	uint32_t mask = 0xff01ff;

	if (size > sizeof words)
		return 0;
	copy_from_ring(ring, from, words, size);
	/* Layout: ABI, registers by rising bit, size of the stack, its bytes, size that is valid. */
	if (words[0] != PERF_SAMPLE_REGS_ABI_64)
		return 0;
	for (int bit = 0, place = 1; bit < 24; bit++)
		if (mask >> bit & 1)
			registers[bit] = words[place++];
	for (int i = 0; i < 17; i++)
		ordered[i] = registers[kernel_numbers[i]];
	uint64_t stack_size = words[18];
	uint64_t valid = stack_size ? words[19 + stack_size / 8] : 0;
	fwrite(ordered, sizeof ordered, 1, stdout);
	fwrite(&valid, sizeof valid, 1, stdout);
	fwrite(&words[19], 1, valid, stdout);
	return 1;
}

static int drain(struct ring *ring)
{
	uint64_t tail = ring->head->data_tail;
	uint64_t head = __atomic_load_n(&ring->head->data_head, __ATOMIC_ACQUIRE);
	int count = 0;

	while (tail < head) {
		struct perf_event_header header;
		copy_from_ring(ring, tail, &header, sizeof header);
		if (header.type == PERF_RECORD_SAMPLE)
			count += write_snapshot(ring, tail + sizeof header, header.size - sizeof header);
		tail += header.size;
	}
	__atomic_store_n(&ring->head->data_tail, tail, __ATOMIC_RELEASE);
	return count;
}

static int open_ring(struct ring *ring, int tid, int hz)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof attributes,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_freq = hz,
		.freq = 1,
		.sample_type = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
		.sample_regs_user = 0xff01ff,
		.sample_stack_user = STACK_BYTES,
		.exclude_kernel = 1,
		.wakeup_events = 1,
	};
	int event = syscall(SYS_perf_event_open, &attributes, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (event < 0)
		return -1;
	void *memory = mmap(NULL, (RING_PAGES + 1) * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, event, 0);
	if (memory == MAP_FAILED)
		return -1;
	*ring = (struct ring){ memory, (unsigned char *)memory + 4096 };
	return event;
}

int main(int argc, char **argv)
{
	struct ring rings[MAX_THREADS];
	struct pollfd events[MAX_THREADS];
	char path[64];
	int count = 0;

	if (argc < 4)
		return 2;
	snprintf(path, sizeof path, "/proc/%d/task", atoi(argv[1]));
	DIR *threads = opendir(path);
	for (struct dirent *entry; threads && (entry = readdir(threads)) && count < MAX_THREADS;) {
		int tid = atoi(entry->d_name);
		int event = tid ? open_ring(&rings[count], tid, atoi(argv[3])) : -1;
		if (event >= 0)
			events[count++] = (struct pollfd){ .fd = event, .events = POLLIN };
	}
	if (count == 0) {
		perror("perf_event_open");
		return 1;
	}
	double end = now_seconds() + 60;
	for (int taken = 0; taken < atoi(argv[2]) && now_seconds() < end;) {
		poll(events, count, 100);
		for (int i = 0; i < count; i++)
			taken += drain(&rings[i]);
	}
	return fflush(stdout) != 0;
}
