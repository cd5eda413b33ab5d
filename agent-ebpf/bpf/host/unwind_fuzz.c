/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Fuzz target of ../unwind.h for libFuzzer: rows, pages, mappings, registers and memory from the input. Each walk ends,
 * within its bounds, with a known reason, and in the same way a second time. */
#include <stdio.h>

#include "host_tables.h"

#define CODE_START 0x400000ull
#define STACK_START 0x7ff00000ull
#define PART_BYTES 0x10000u /* code of one mapping */
#define MAX_ROWS 64u
#define MAX_PAGES 4u
#define MAX_MAPPINGS 3u
#define MAX_STACK_BYTES 4096u

static const u8 *rest;
static size_t rest_size;

/* Copies the next bytes of the input. Behind its end there are zeros. */
static void take(void *to, size_t size)
{
	size_t copied = size < rest_size ? size : rest_size;

	memset(to, 0, size);
	memcpy(to, rest, copied);
	rest += copied;
	rest_size -= copied;
}

static u32 take_number(u32 limit)
{
	u16 number;

	take(&number, sizeof number);
	return number % limit;
}

/* An address that often leads somewhere: a small number is one of the code or the stack. */
static u64 take_address(void)
{
	u64 address;

	take(&address, sizeof address);
	if (address >> 24)
		return address;
	if (address & 1 << 23)
		return STACK_START + (address & (MAX_STACK_BYTES - 1));
	return CODE_START + address % (MAX_MAPPINGS * PART_BYTES);
}

static void take_tables(void)
{
	static struct unwind_row rows[MAX_ROWS];
	static struct page_entry pages[MAX_PAGES];
	static struct mapping_value mappings[MAX_MAPPINGS];
	static struct memory_region region;
	static u64 stack[MAX_STACK_BYTES / sizeof(u64)];

	take(&tables.process, sizeof tables.process);
	tables.stack_start = take_address();
	tables.rows = (struct list){ 1 + take_number(MAX_ROWS), rows };
	for (u32 i = 0; i < tables.rows.count; i++)
		take(&rows[i], sizeof rows[i]);
	tables.pages = (struct list){ take_number(MAX_PAGES + 1), pages };
	for (u32 i = 0; i < tables.pages.count; i++) {
		take(&pages[i].value, sizeof pages[i].value);
		pages[i].key = (struct page_key){ .file = 1 + take_number(2), .page = take_number(3) };
		if (take_number(8)) {
			pages[i].value.state = PAGE_LOADED;
			pages[i].value.chunk = 0;
		}
	}
	tables.mappings = (struct list){ MAX_MAPPINGS, mappings };
	for (u32 i = 0; i < MAX_MAPPINGS; i++) {
		u64 start = CODE_START + i * PART_BYTES;

		mappings[i] = (struct mapping_value){
			.start = start, .end = start + PART_BYTES, .bias = CODE_START, .file = take_number(4)
		};
		if (!take_number(8))
			mappings[i].bias = take_address();
	}
	for (u32 i = 0; i < MAX_STACK_BYTES / sizeof(u64); i++)
		stack[i] = rest_size ? take_address() : 0;
	region = (struct memory_region){ STACK_START, MAX_STACK_BYTES, (u8 *)stack };
	tables.regions = (struct list){ 1, &region };
}

static void check(u32 is_right, const char *what)
{
	if (!is_right) {
		fputs(what, stderr);
		abort();
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static struct unwind_state states[2];
	struct unwind_state *first = &states[0], *second = &states[1];

	rest = data;
	rest_size = size;
	memset(states, 0, sizeof states);
	tables.pid = 1;
	first->record.key.pid = 1;
	for (u32 i = 0; i < REGISTER_COUNT; i++)
		first->registers[i] = take_address();
	first->ip = take_address();
	take_tables();
	first->record.key.exec_id = tables.process.exec_id;
	first->record.key.start_nanos = tables.process.start_nanos;
	memcpy(second, first, sizeof *first);
	check(walk_stack(first), "the walk does not end\n");
	check(first->end < STACK_END_COUNT, "the reason is unknown\n");
	check(first->record.user_frames >= 1, "the innermost frame is missing\n");
	check(first->record.user_frames <= MAX_USER_FRAMES, "too many frames\n");
	walk_stack(second);
	check(!memcmp(first, second, sizeof *first), "two walks over the same tables differ\n");
	return 0;
}
