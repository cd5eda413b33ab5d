/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The unwinder of ../unwind.h over tables in memory of the host, in place of BPF maps and of a sampled process. */
#pragma once

#include <stdint.h>
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

/* Walks a stack: `record.key`, `registers` and `ip` of the state are set, the rest is zero. Returns whether the walk
 * ended within the steps of the deepest stack. */
static u32 walk_stack(struct unwind_state *state)
{
	u32 is_ended = 0;

	state->stack_start = tables.stack_start;
	tables.requests = 0;
	unwind_begin(state);
	for (u32 step = 0; step <= MAX_USER_FRAMES && !is_ended; step++)
		is_ended = unwind_step(state) != 0;
	return is_ended;
}
