/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The unwinder of ../unwind.h as a program of the host, for tests. Reads commands from stdin and writes results to
 * stdout, all in the byte order of the machine. Numbers are u32 unless said otherwise.
 *
 *   1 tables: pid, process_value, stack_start (u64), then four lists, each a length and its entries:
 *             mapping_value; page_key and page_value together; unwind_row; memory regions (u64 address, u64 size)
 *             with the bytes of all regions behind the list.
 *             Rows are split into chunks of ROWS_PER_CHUNK: chunk 0 has the first ones.
 *   2 unwind: stack_key fields pid, exec_id (u32) and start_nanos (u64), 16 registers by DWARF number and ip (u64).
 *             Result: end, number of frames, number of requests, frames (u64). The end is NOT_ENDED if the walk took
 *             more steps than there may be frames. */
#include <stdio.h>

#include "host_tables.h"

#define COMMAND_TABLES 1
#define COMMAND_UNWIND 2
#define NOT_ENDED 0xffffffffu
#define MAX_LIST_BYTES (1ull << 30)

static void fail(const char *what)
{
	fprintf(stderr, "unwind_host: %s\n", what);
	exit(1);
}

static void read_bytes(void *to, u64 size)
{
	if (size && fread(to, size, 1, stdin) != 1)
		fail("input ends inside of a command");
}

static void write_bytes(const void *from, u64 size)
{
	if (size && fwrite(from, size, 1, stdout) != 1)
		fail("output is closed");
}

static void *allocate(u64 size)
{
	void *bytes = size <= MAX_LIST_BYTES ? malloc(size ? size : 1) : NULL;

	if (!bytes)
		fail("a list is too long");
	return bytes;
}

/* Reads a list of entries of `size` bytes. */
static void read_list(struct list *list, u64 size)
{
	free(list->entries);
	read_bytes(&list->count, sizeof list->count);
	list->entries = allocate(list->count * size);
	read_bytes(list->entries, list->count * size);
}

static void read_memory(void)
{
	struct list spans = { 0 };
	u64 total = 0;

	read_list(&spans, 2 * sizeof(u64));
	u64 *numbers = spans.entries;
	struct memory_region *regions = allocate(spans.count * sizeof *regions);
	for (u32 i = 0; i < spans.count; i++) {
		if (numbers[2 * i + 1] > MAX_LIST_BYTES - total)
			fail("too much memory");
		total += numbers[2 * i + 1];
	}
	free(tables.memory);
	tables.memory = allocate(total);
	read_bytes(tables.memory, total);
	u8 *bytes = tables.memory;
	for (u32 i = 0; i < spans.count; i++) {
		regions[i] = (struct memory_region){ numbers[2 * i], numbers[2 * i + 1], bytes };
		bytes += regions[i].size;
	}
	free(tables.regions.entries);
	free(spans.entries);
	tables.regions = (struct list){ spans.count, regions };
}

static void read_tables(void)
{
	read_bytes(&tables.pid, sizeof tables.pid);
	read_bytes(&tables.process, sizeof tables.process);
	read_bytes(&tables.stack_start, sizeof tables.stack_start);
	read_list(&tables.mappings, sizeof(struct mapping_value));
	read_list(&tables.pages, sizeof(struct page_entry));
	read_list(&tables.rows, sizeof(struct unwind_row));
	read_memory();
}

static void unwind(void)
{
	static struct unwind_state state;

	memset(&state, 0, sizeof state);
	read_bytes(&state.record.key.pid, sizeof(u32));
	read_bytes(&state.record.key.exec_id, sizeof(u32));
	read_bytes(&state.record.key.start_nanos, sizeof(u64));
	read_bytes(state.registers, sizeof state.registers);
	read_bytes(&state.ip, sizeof state.ip);
	u32 is_ended = walk_stack(&state);
	u32 head[] = { is_ended ? state.end : NOT_ENDED, state.record.user_frames, tables.requests };
	if (head[1] > MAX_USER_FRAMES)
		fail("too many frames");
	write_bytes(head, sizeof head);
	write_bytes(&state.frames[state.first_frame], head[1] * sizeof(u64));
	if (fflush(stdout) != 0)
		fail("output is closed");
}

int main(void)
{
	u32 command;

	while (fread(&command, sizeof command, 1, stdin) == 1) {
		if (command == COMMAND_TABLES)
			read_tables();
		else if (command == COMMAND_UNWIND)
			unwind();
		else
			fail("unknown command");
	}
	return 0;
}
