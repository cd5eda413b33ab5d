/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Layout of what the BPF programs and user space share. `src/layout.rs` is its twin; both assert the sizes.
 *
 * Names: `pid` is the process id in the PID namespace of the agent, 0 if the process is not visible there.
 * `host_pid` is the one of the initial namespace. `window` counts the windows; its lowest bit is the side. */
#pragma once

#define MAX_USER_FRAMES 256
#define MAX_KERNEL_FRAMES 127
#define MAX_STACK_FRAMES (MAX_USER_FRAMES + MAX_KERNEL_FRAMES)
#define ROWS_PER_CHUNK 32768u
#define MAX_ROW_CHUNKS 1024u
#define PAGE_SHIFT_ROWS 16 /* rows are loaded by pages of 64 KiB of code */

/* A frame is one u64. Its address is that of an instruction: for a caller it is the return address - 1, which lies in
 * the call.
 *   kernel address:  bit 63 set, the address itself
 *   file frame:      bit 62 set; bit 61 mark; bits 60..40 file id; bits 39..0 address in the file (ELF virtual address)
 *   other address:   bits 63, 62 clear; bit 61 mark; bits 56..0 address in the process
 * The mark: the caller of this frame was found by frame pointer, because there is no row for its code. */
#define FRAME_KERNEL_BIT (1ull << 63)
#define FRAME_FILE_BIT (1ull << 62)
#define FRAME_POINTER_BIT (1ull << 61)
#define FRAME_FILE_SHIFT 40
#define FRAME_FILE_MASK 0x1fffffull
#define FRAME_FILE_ADDRESS_MASK ((1ull << 40) - 1)
#define FRAME_ADDRESS_MASK ((1ull << 57) - 1)

/* Why the user part of a stack ended. */
enum stack_end {
	STACK_COMPLETE = 0,          /* at the outermost frame, or a kernel thread */
	STACK_TRUNCATED = 1,         /* after MAX_USER_FRAMES */
	STACK_PROCESS_NOT_LOADED = 2, /* mappings of the process are not loaded yet */
	STACK_PROCESS_NOT_VISIBLE = 3, /* outside of the PID namespace of the agent */
	STACK_ROWS_NOT_LOADED = 4,   /* rows of the page are not loaded yet */
	STACK_UNSUPPORTED_RULE = 5,  /* the rule of the row cannot be expressed or followed */
	STACK_REGISTER_UNKNOWN = 6,  /* the rule needs a register whose value is lost */
	STACK_MEMORY_NOT_READABLE = 7, /* stack memory is not resident */
	STACK_BAD_FRAME_POINTER = 8, /* no rows, and the frame pointer leads nowhere */
	STACK_NOT_PROGRESSING = 9,   /* the caller's frame is not above this one */
	STACK_NO_REGISTERS = 10,     /* user registers are not available */
	STACK_END_COUNT = 11,
};

/* Why a sample that was taken was not delivered. */
enum lost_reason {
	LOST_COUNTS_FULL = 0, /* no memory or capacity for a new key */
	LOST_RING_FULL = 1,   /* frames of a new key did not fit into the ring */
	LOST_SCRATCH = 2,     /* state of the CPU not found */
	LOST_REASON_COUNT = 4,
};

/* Rule of a row: how to find the caller's frame. CFA: stack pointer of the caller after the return. */
enum cfa_rule {
	CFA_NONE = 0,           /* no row: frame pointer, frame gets the mark */
	CFA_RSP = 1,            /* rsp + cfa */
	CFA_RBP = 2,            /* rbp + cfa */
	CFA_PLT = 3,            /* rsp + 8 + (8 if (ip & 15) >= cfa) */
	CFA_SIGNAL = 4,         /* registers are in the ucontext at rsp */
	CFA_DEREF_RSP = 5,      /* *(rsp + low half of cfa) + high half, both s16 */
	CFA_DEREF_RBP = 6,      /* *(rbp + low half of cfa) + high half, both s16 */
	CFA_REGISTER = 7,       /* DWARF register (cfa & 15) + (cfa >> 4) */
	CFA_FRAME_POINTER = 8,  /* known to keep a frame pointer: CFA rbp + 16, rbp at *rbp; no mark */
	CFA_END = 9,            /* outermost frame */
	CFA_UNSUPPORTED = 10,
};
enum rbp_rule {
	RBP_SAME = 0,
	RBP_AT_CFA = 1,   /* at CFA + rbp_offset8 * 8 */
	RBP_AT_RBP = 2,   /* at *rbp (functions that realign their stack) */
	RBP_UNKNOWN = 3,
};
#define ROW_CFA_RULE(r) ((r) & 15)
#define ROW_RBP_RULE(r) (((r) >> 4) & 3)
/* Rows of a page are sorted by pc. The first has pc 0. The return address is at CFA - 8. */
struct unwind_row {
	u16 pc;         /* address in the file, low 16 bits */
	u8 rule;        /* cfa_rule | rbp_rule << 4 */
	s8 rbp_offset8;
	s32 cfa;
};

struct page_key {
	u32 file;
	u32 page; /* address in the file >> PAGE_SHIFT_ROWS */
};
enum page_state {
	PAGE_REQUESTED = 1, /* inserted by the BPF program together with a request */
	PAGE_LOADED = 2,
	PAGE_EMPTY = 3, /* no rows: frame pointers */
};
struct page_value {
	u32 state;
	u32 chunk;     /* index into row_chunks */
	u32 first_row; /* index into the chunk */
	u32 row_count;
	u32 used_in;   /* low bits of the last window in which a sample used the page */
	u32 reserved;
};

/* Key of the LPM trie of mappings. prefix_bits counts the bits of pid and address; both are big endian. */
struct mapping_key {
	u32 prefix_bits;
	u32 pid_be;
	u64 address_be;
};
struct mapping_value {
	u64 start, end; /* whole mapping */
	u64 bias;       /* address in the file = address - bias */
	u32 file;       /* 0: anonymous memory */
	u32 reserved;
};

enum process_state {
	PROCESS_REQUESTED = 1, /* inserted by the BPF program together with a request */
	PROCESS_LOADED = 2,
};
struct process_value {
	u64 start_nanos;  /* start of the process since boot */
	u64 requested_at; /* last request of the process or of a mapping, CLOCK_MONOTONIC */
	u32 exec_id;      /* changes with each exec */
	u32 state;
};

/* Identity of a counted stack. */
struct stack_key {
	u64 hash[2]; /* of all frames and the end */
	u64 start_nanos;
	u64 cgroup;
	u32 pid;
	u32 host_pid;
	u32 exec_id;
	u32 end;      /* stack_end */
	u8 comm[16];  /* of the process, or of the thread if control.thread_names */
};
struct stack_count {
	u64 samples;
	u64 nanos; /* sum of period / probability */
};
/* Record of the ring `stacks`: frames of a new key. Frames follow: kernel, then user, innermost first. */
struct stack_record {
	u64 window;
	u16 kernel_frames;
	u16 user_frames;
	u32 reserved;
	struct stack_key key;
};

enum request_kind {
	REQUEST_PROCESS = 1, /* mappings of a process */
	REQUEST_MAPPING = 2, /* the process has no mapping at `address` */
	REQUEST_PAGE = 3,    /* rows of `page` */
};
/* Record of the ring `requests`. */
struct request_record {
	u32 kind;
	u32 pid;
	u32 host_pid;
	u32 exec_id;
	u64 start_nanos;
	u64 address;
	struct page_key page;
};

/* The one entry of the map `control`, written by user space. */
struct control {
	u64 window;            /* switched last; side = window & 1 */
	u64 threshold[2];      /* per side: a sample is taken if a random u32 is below; 1 << 32 takes all */
	u64 nanos_factor[2];   /* per side: 1 / probability, 16 fractional bits */
	u32 is_stopped;
	u32 pid_filter;        /* sample this pid only; 0: all */
	u32 thread_names;
	u32 pid_namespace_inode; /* of the agent */
	u32 with_kernel_frames;
	u32 reserved_word;
	u64 reserved[4];
};
/* One entry per possible CPU of the map `cpu_states`. `entries` is odd while the program is inside. */
struct cpu_state {
	u64 entries;
	u64 taken;     /* = delivered + sum of lost */
	u64 delivered;
	u64 thinned;   /* left out by probability, before they are taken */
	u64 idle;
	u64 lost[LOST_REASON_COUNT];
	u64 ends[16];  /* delivered, by stack_end */
	u64 run_nanos; /* time inside, without the entry of the kernel */
	u64 reserved[6];
};

_Static_assert(sizeof(struct unwind_row) == 8, "unwind_row");
_Static_assert(sizeof(struct page_key) == 8, "page_key");
_Static_assert(sizeof(struct page_value) == 24, "page_value");
_Static_assert(sizeof(struct mapping_key) == 16, "mapping_key");
_Static_assert(sizeof(struct mapping_value) == 32, "mapping_value");
_Static_assert(sizeof(struct process_value) == 24, "process_value");
_Static_assert(sizeof(struct stack_key) == 64, "stack_key");
_Static_assert(sizeof(struct stack_count) == 16, "stack_count");
_Static_assert(sizeof(struct stack_record) == 80, "stack_record");
_Static_assert(sizeof(struct request_record) == 40, "request_record");
_Static_assert(sizeof(struct control) == 96, "control");
_Static_assert(sizeof(struct cpu_state) == 256, "cpu_state");
