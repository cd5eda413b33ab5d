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
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#include "../layout.h"

#define COMMAND_TABLES 1
#define COMMAND_UNWIND 2
#define NOT_ENDED 0xffffffffu
#define MAX_LIST_BYTES (1ull << 30)

struct page_entry {
	struct page_key key;
	struct page_value value;
};

struct memory_region {
	u64 address, size;
	u8 *bytes;
};

struct list {
	u32 count;
	void *entries;
};

static struct {
	u32 pid;
	struct process_value process;
	u64 stack_start;
	struct list mappings, pages, rows, regions;
	u8 *memory;
	u32 requests;
} tables;

struct unwind_state;
static struct process_value *unwind_find_process(u32 pid);
static struct mapping_value *unwind_find_mapping(u32 pid, u64 address);
static struct page_value *unwind_find_page(struct unwind_state *state);
static void *unwind_find_chunk(u32 chunk);
static struct unwind_row *unwind_find_row(void *chunk, u32 index);
static long unwind_read(void *to, u32 size, u64 address);
static void unwind_request(struct unwind_state *state, u32 kind, u64 address);

#include "../unwind.h"

static struct process_value *unwind_find_process(u32 pid)
{
	return pid == tables.pid ? &tables.process : NULL;
}

static struct mapping_value *unwind_find_mapping(u32 pid, u64 address)
{
	struct mapping_value *mappings = tables.mappings.entries;

	for (u32 i = 0; pid == tables.pid && i < tables.mappings.count; i++)
		if (address >= mappings[i].start && address < mappings[i].end)
			return &mappings[i];
	return NULL;
}

static struct page_value *unwind_find_page(struct unwind_state *state)
{
	struct page_entry *pages = tables.pages.entries;

	for (u32 i = 0; i < tables.pages.count; i++)
		if (pages[i].key.file == state->page.file && pages[i].key.page == state->page.page)
			return &pages[i].value;
	return NULL;
}

/* A chunk is a pointer to its first row. */
static void *unwind_find_chunk(u32 chunk)
{
	u64 first = (u64)chunk * ROWS_PER_CHUNK;

	return first < tables.rows.count ? (struct unwind_row *)tables.rows.entries + first : NULL;
}

static struct unwind_row *unwind_find_row(void *chunk, u32 index)
{
	struct unwind_row *first = chunk;
	u64 before = first - (struct unwind_row *)tables.rows.entries;

	return index < ROWS_PER_CHUNK && before + index < tables.rows.count ? first + index : NULL;
}

static long unwind_read(void *to, u32 size, u64 address)
{
	struct memory_region *regions = tables.regions.entries;

	for (u32 i = 0; i < tables.regions.count; i++) {
		u64 offset = address - regions[i].address;

		if (address >= regions[i].address && offset < regions[i].size && size <= regions[i].size - offset) {
			memcpy(to, regions[i].bytes + offset, size);
			return 0;
		}
	}
	return -1;
}

static void unwind_request(struct unwind_state *state, u32 kind, u64 address)
{
	(void)state;
	(void)kind;
	(void)address;
	tables.requests++;
}

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
	u32 is_ended = 0;

	memset(&state, 0, sizeof state);
	read_bytes(&state.record.key.pid, sizeof(u32));
	read_bytes(&state.record.key.exec_id, sizeof(u32));
	read_bytes(&state.record.key.start_nanos, sizeof(u64));
	read_bytes(state.registers, sizeof state.registers);
	read_bytes(&state.ip, sizeof state.ip);
	state.stack_start = tables.stack_start;
	tables.requests = 0;
	unwind_begin(&state);
	for (u32 step = 0; step <= MAX_USER_FRAMES && !is_ended; step++)
		is_ended = unwind_step(&state) != 0;
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
