/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The unwinder of user stacks. Free of BPF, so that it also compiles for the host.
 *
 * The including file defines u8 … s64 and __always_inline, includes layout.h, and defines the functions that are
 * declared below: all access to maps and to user memory.
 *
 * It then fills in `record.key` (pid, start_nanos, exec_id), `record.window`, `first_frame`, `hash`, `ip` and
 * `registers`, calls `unwind_begin`, and calls `unwind_step` until that returns a number that is not 0. `end`,
 * `record.user_frames` and `hash` are the result. The frames begin at `frames[first_frame]`.
 *
 * Bounds that the verifier checks (`low`, `high`) live in the state and not in registers: a value loaded from memory is
 * an unknown number to the verifier, so that both arms of a search step lead to one state. */
#pragma once

/* DWARF numbers. */
#define REGISTER_RBP 6
#define REGISTER_RSP 7
#define REGISTER_COUNT 16

#define FRAME_SLOTS 512u /* power of two, at least MAX_STACK_FRAMES */
#define MAX_SEARCH_STEPS 16
#define REGISTERS_BUT_RSP_AND_RBP 0xff3fu
/* Distance of a frame pointer or a likely register from the stack pointer, where nothing is known of the code. */
#define MAX_GUESSED_FRAME_BYTES (1u << 20)
/* Code that starts a process calls main with less stack than this. musl has no rows for it. */
#define MAX_START_BYTES 256u
/* User addresses are below, also with five levels of page tables. */
#define USER_ADDRESS_END (1ull << 56)

/* Result of a part of a step, apart from those of enum stack_end. */
#define UNWIND_NEXT 0x100u

/* Signal frame: the ucontext is at the stack pointer. */
#define UCONTEXT_REGISTERS 40
#define UCONTEXT_REGISTER_COUNT 17

#define UNWIND_WORD_COUNT 21 /* enough for all registers of a task */

struct unwind_state {
	u64 registers[REGISTER_COUNT]; /* by DWARF number */
	u64 ip;
	u32 known_registers; /* bit by DWARF number */
	u32 is_exact;        /* ip is the instruction itself, not a return address */
	u32 is_loaded;       /* mappings of the process are loaded */
	u32 unloaded_end;    /* the end if they are not */
	u32 likely_registers; /* bit by DWARF number: unknown, but a function without calls seldom changes them */
	u32 reserved;
	u64 stack_start;     /* stack pointer of the first instruction of the process; 0 if it is not known */
	u32 end;             /* enum stack_end */
	u32 first_frame;     /* index of the innermost user frame */
	u32 low, high;       /* bounds of the search for a row */
	struct page_key page;
	struct unwind_row row;        /* of the current frame */
	struct mapping_value mapping; /* of the current frame; empty if there is none */
	u64 frame;                    /* the current frame */
	u64 words[UNWIND_WORD_COUNT];   /* words read from user memory */
	u64 hash[2]; /* of all frames so far */
	struct stack_record record;
	u64 frames[FRAME_SLOTS];
};

/* The including file defines these. Those that find something return a null pointer if there is none. */
static __always_inline struct process_value *unwind_find_process(u32 pid);
static __always_inline struct mapping_value *unwind_find_mapping(u32 pid, u64 address);
/* Finds the page `state->page`. */
static __always_inline struct page_value *unwind_find_page(struct unwind_state *state);
static __always_inline void *unwind_find_chunk(u32 chunk);
static __always_inline struct unwind_row *unwind_find_row(void *chunk, u32 index);
/* Reads user memory. Returns 0 only if all bytes were readable. */
static __always_inline long unwind_read(void *to, u32 size, u64 address);
/* Requests the process, the mapping at `address`, or the page `state->page`. Limits the rate of requests. */
static __always_inline void unwind_request(struct unwind_state *state, u32 kind, u64 address);

static __always_inline u64 unwind_rotate(u64 value, u32 bits)
{
	return value << bits | value >> (64 - bits);
}

/* Mixes a word into the hash. The two halves are independent of each other. */
static __always_inline void unwind_hash(struct unwind_state *state, u64 word)
{
	u64 first = state->hash[0] ^ word * 0x9fb21c651e98df25ull;
	u64 second = (state->hash[1] + word) * 0xd6e8feb86659fd93ull;

	state->hash[0] = unwind_rotate(first, 29) * 0xa0761d6478bd642full;
	state->hash[1] = second ^ second >> 32;
}

static __always_inline void unwind_push(struct unwind_state *state, u64 frame)
{
	u32 count = state->record.user_frames;

	state->frames[(state->first_frame + count) & (FRAME_SLOTS - 1)] = frame;
	state->record.user_frames = count + 1;
	unwind_hash(state, frame);
}

static __always_inline u32 unwind_is_known(struct unwind_state *state, u32 number)
{
	return state->known_registers >> number & 1;
}

/* Moves `low` behind the last row whose pc is not above. 0 if there is none. */
static __always_inline void unwind_search(struct unwind_state *state, void *chunk, u32 first_row, u32 pc)
{
	for (u32 step = 0; step < MAX_SEARCH_STEPS; step++) {
		u32 low = state->low;
		u32 high = state->high;
		u32 middle = (low + high) >> 1;
		struct unwind_row *row;

		if (low >= high)
			break;
		row = unwind_find_row(chunk, first_row + middle);
		if (row && row->pc <= pc)
			state->low = middle + 1;
		else
			state->high = middle;
	}
}

/* Finds the row for an address of a file. Returns UNWIND_NEXT with `row`, or the end. */
static __always_inline u32 unwind_find_rule(struct unwind_state *state, u64 file_address)
{
	struct page_value *page;
	struct unwind_row *row;
	void *chunk;
	u32 window = (u32)state->record.window;

	state->page.file = state->mapping.file;
	state->page.page = (u32)(file_address >> PAGE_SHIFT_ROWS);
	page = unwind_find_page(state);
	if (!page) {
		unwind_request(state, REQUEST_PAGE, file_address);
		return STACK_ROWS_NOT_LOADED;
	}
	if (page->used_in != window)
		page->used_in = window;
	if (page->state == PAGE_EMPTY)
		return UNWIND_NEXT;
	if (page->state != PAGE_LOADED)
		return STACK_ROWS_NOT_LOADED;
	chunk = unwind_find_chunk(page->chunk);
	if (!chunk)
		return STACK_ROWS_NOT_LOADED;
	state->low = 0;
	state->high = page->row_count;
	unwind_search(state, chunk, page->first_row, file_address & 0xffff);
	if (state->low == 0)
		return UNWIND_NEXT;
	row = unwind_find_row(chunk, page->first_row + state->low - 1);
	if (!row)
		return STACK_ROWS_NOT_LOADED;
	state->row = *row;
	return UNWIND_NEXT;
}

/* Sets `frame` and `row` for the code at an address. Returns UNWIND_NEXT, or the end after this frame.
 * Without a row, the rule stays CFA_NONE. */
static __always_inline u32 unwind_find_frame(struct unwind_state *state, u64 address)
{
	u64 file_address;

	state->frame = address & FRAME_ADDRESS_MASK;
	state->row.rule = CFA_NONE;
	if (!state->is_loaded)
		return UNWIND_NEXT;
	if (address < state->mapping.start || address >= state->mapping.end) {
		struct mapping_value *mapping = unwind_find_mapping(state->record.key.pid, address);

		if (!mapping || address < mapping->start || address >= mapping->end) {
			unwind_request(state, REQUEST_MAPPING, address);
			return UNWIND_NEXT;
		}
		state->mapping = *mapping;
	}
	if (!state->mapping.file)
		return UNWIND_NEXT;
	file_address = address - state->mapping.bias;
	if (state->mapping.file > FRAME_FILE_MASK || file_address > FRAME_FILE_ADDRESS_MASK)
		return UNWIND_NEXT;
	state->frame = FRAME_FILE_BIT | (u64)state->mapping.file << FRAME_FILE_SHIFT | file_address;
	return unwind_find_rule(state, file_address);
}

/* Continues at the caller. */
static __always_inline u32 unwind_return(struct unwind_state *state, u64 ip, u64 cfa, u64 rbp, u32 is_rbp_known)
{
	if (ip == 0)
		return STACK_COMPLETE;
	if (ip >= USER_ADDRESS_END)
		return ROW_CFA_RULE(state->row.rule) == CFA_NONE ? STACK_BAD_FRAME_POINTER : STACK_UNSUPPORTED_RULE;
	state->ip = ip;
	state->likely_registers = state->is_exact ? REGISTERS_BUT_RSP_AND_RBP : 0;
	state->is_exact = 0;
	state->registers[REGISTER_RSP] = cfa;
	state->registers[REGISTER_RBP] = rbp;
	state->known_registers = 1u << REGISTER_RSP | is_rbp_known << REGISTER_RBP;
	return UNWIND_NEXT;
}

/* End of a stack whose frame pointer leads nowhere: complete in the code that started the process. */
static __always_inline u32 unwind_bad_frame_pointer(struct unwind_state *state)
{
	u64 distance = state->stack_start - state->registers[REGISTER_RSP];

	return distance < MAX_START_BYTES ? STACK_COMPLETE : STACK_BAD_FRAME_POINTER;
}

/* Follows the frame pointer: the saved one and the return address lie where it points to. */
static __always_inline u32 unwind_by_frame_pointer(struct unwind_state *state, u32 is_guess)
{
	u64 rsp = state->registers[REGISTER_RSP];
	u64 rbp = state->registers[REGISTER_RBP];

	if (!unwind_is_known(state, REGISTER_RBP))
		return STACK_REGISTER_UNKNOWN;
	/* In code without rows rbp may hold any number, until a frame was found by it. */
	if (rbp == 0)
		return is_guess && state->is_exact ? unwind_bad_frame_pointer(state) : STACK_COMPLETE;
	if (is_guess && (rbp < rsp || rbp & 7))
		return unwind_bad_frame_pointer(state);
	if (!state->is_loaded && rbp - rsp > MAX_GUESSED_FRAME_BYTES)
		return STACK_BAD_FRAME_POINTER;
	if (unwind_read(state->words, 16, rbp))
		return is_guess ? unwind_bad_frame_pointer(state) : STACK_MEMORY_NOT_READABLE;
	if (rbp + 16 == rsp && state->words[1] == state->ip)
		return STACK_NOT_PROGRESSING;
	return unwind_return(state, state->words[1], rbp + 16, state->words[0], 1);
}

/* Restores all registers from the ucontext of a signal. */
static __always_inline u32 unwind_by_ucontext(struct unwind_state *state)
{
	u64 *saved = state->words;
	u64 *registers = state->registers;

	if (unwind_read(saved, UCONTEXT_REGISTER_COUNT * 8, registers[REGISTER_RSP] + UCONTEXT_REGISTERS))
		return STACK_MEMORY_NOT_READABLE;
	for (u32 number = 8; number < REGISTER_COUNT; number++)
		registers[number] = saved[number - 8];
	registers[5] = saved[8];
	registers[4] = saved[9];
	registers[6] = saved[10];
	registers[3] = saved[11];
	registers[1] = saved[12];
	registers[0] = saved[13];
	registers[2] = saved[14];
	registers[7] = saved[15];
	state->known_registers = 0xffff;
	state->ip = saved[16];
	state->is_exact = 1;
	if (state->ip == 0 || state->ip >= USER_ADDRESS_END)
		return STACK_UNSUPPORTED_RULE;
	return UNWIND_NEXT;
}

/* Finds rbp of the caller and the return address. */
static __always_inline u32 unwind_by_cfa(struct unwind_state *state, u64 cfa)
{
	u64 rbp = state->registers[REGISTER_RBP];
	u32 is_rbp_known = unwind_is_known(state, REGISTER_RBP);
	s64 rbp_offset = (s64)state->row.rbp_offset8 * 8;

	switch (ROW_RBP_RULE(state->row.rule)) {
	case RBP_SAME:
		break;
	case RBP_AT_CFA:
		/* The usual place is beside the return address: both in one read. */
		if (rbp_offset == -16) {
			if (unwind_read(state->words, 16, cfa - 16))
				return STACK_MEMORY_NOT_READABLE;
			return unwind_return(state, state->words[1], cfa, state->words[0], 1);
		}
		if (unwind_read(&state->words[1], 8, cfa + rbp_offset))
			return STACK_MEMORY_NOT_READABLE;
		rbp = state->words[1];
		is_rbp_known = 1;
		break;
	case RBP_AT_RBP:
		if (!is_rbp_known)
			return STACK_REGISTER_UNKNOWN;
		if (unwind_read(&state->words[1], 8, rbp))
			return STACK_MEMORY_NOT_READABLE;
		rbp = state->words[1];
		break;
	default:
		is_rbp_known = 0;
	}
	if (unwind_read(state->words, 8, cfa - 8))
		return STACK_MEMORY_NOT_READABLE;
	return unwind_return(state, state->words[0], cfa, rbp, is_rbp_known);
}

/* Register that a CFA is computed from, for rules with one. */
static __always_inline u32 unwind_cfa_register(u32 rule, s32 cfa)
{
	if (rule == CFA_REGISTER)
		return cfa & 15;
	return rule == CFA_RBP || rule == CFA_DEREF_RBP ? REGISTER_RBP : REGISTER_RSP;
}

/* Follows the rule of the current frame. Returns UNWIND_NEXT, or the end. */
static __always_inline u32 unwind_follow(struct unwind_state *state)
{
	u32 rule = ROW_CFA_RULE(state->row.rule);
	s64 offset = state->row.cfa;
	u32 number = unwind_cfa_register(rule, state->row.cfa);
	u64 base = state->registers[number & 15];
	u64 cfa;

	if (rule == CFA_NONE || rule == CFA_FRAME_POINTER)
		return unwind_by_frame_pointer(state, rule == CFA_NONE);
	if (rule == CFA_SIGNAL)
		return unwind_by_ucontext(state);
	if (rule == CFA_END)
		return STACK_COMPLETE;
	if (rule >= CFA_END)
		return STACK_UNSUPPORTED_RULE;
	if (!unwind_is_known(state, number)) {
		/* Assembler finds its frame by a register that its helper functions leave alone. Debuggers assume the same. */
		if (!(state->likely_registers >> number & 1))
			return STACK_REGISTER_UNKNOWN;
		cfa = base + (rule == CFA_REGISTER ? offset >> 4 : 0);
		if (cfa & 7 || cfa - state->registers[REGISTER_RSP] > MAX_GUESSED_FRAME_BYTES)
			return STACK_REGISTER_UNKNOWN;
	}
	switch (rule) {
	case CFA_PLT:
		cfa = base + 8 + ((s64)(state->ip & 15) >= offset ? 8 : 0);
		break;
	case CFA_REGISTER:
		cfa = base + (offset >> 4);
		break;
	case CFA_DEREF_RSP:
	case CFA_DEREF_RBP:
		if (unwind_read(state->words, 8, base + (s64)(s16)offset))
			return STACK_MEMORY_NOT_READABLE;
		return unwind_by_cfa(state, state->words[0] + (offset >> 16));
	default:
		cfa = base + offset;
	}
	if (cfa <= state->registers[REGISTER_RSP])
		return STACK_NOT_PROGRESSING;
	return unwind_by_cfa(state, cfa);
}

static __always_inline long unwind_finish(struct unwind_state *state, u32 end)
{
	state->end = state->is_loaded ? end : state->unloaded_end;
	return 1;
}

/* Records the frame at `ip` and moves to its caller. Returns 1 after the last frame, with `end`. */
static __always_inline long unwind_step(struct unwind_state *state)
{
	u64 address = state->is_exact ? state->ip : state->ip - 1;
	u32 result;

	if (state->record.user_frames >= MAX_USER_FRAMES)
		return unwind_finish(state, STACK_TRUNCATED);
	result = unwind_find_frame(state, address);
	if (result != UNWIND_NEXT) {
		unwind_push(state, state->frame);
		return unwind_finish(state, result);
	}
	if (ROW_CFA_RULE(state->row.rule) == CFA_NONE)
		state->frame |= FRAME_POINTER_BIT;
	unwind_push(state, state->frame);
	result = unwind_follow(state);
	if (result != UNWIND_NEXT)
		return unwind_finish(state, result);
	return 0;
}

/* Prepares the walk from the innermost frame. */
static __always_inline void unwind_begin(struct unwind_state *state)
{
	struct stack_key *key = &state->record.key;
	struct process_value *process;

	state->known_registers = 0xffff;
	state->likely_registers = 0;
	state->is_exact = 1;
	state->is_loaded = 0;
	state->unloaded_end = STACK_PROCESS_NOT_VISIBLE;
	state->mapping.start = 0;
	state->mapping.end = 0;
	state->record.user_frames = 0;
	if (!key->pid)
		return;
	process = unwind_find_process(key->pid);
	if (process && process->state == PROCESS_LOADED && process->start_nanos == key->start_nanos &&
	    process->exec_id == key->exec_id) {
		state->is_loaded = 1;
		return;
	}
	state->unloaded_end = STACK_PROCESS_NOT_LOADED;
	unwind_request(state, REQUEST_PROCESS, state->ip);
}
