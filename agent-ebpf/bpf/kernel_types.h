/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Integer types, helpers and partial kernel structs of the BPF programs, instead of vmlinux.h.
 *
 * The structs name only the fields that the programs read. Their offsets are relocated when the programs are loaded
 * (CO-RE), so a partial definition fits every kernel. Helper numbers are ABI. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name
#define __array(name, value) typeof(value) *name[]
#define __always_inline inline __attribute__((always_inline))
#define offsetof(type, member) __builtin_offsetof(type, member)

/* Hides the origin of a value from the compiler. */
#define barrier_var(value) asm volatile("" : "+r"(value))
#define READ_ONCE(value) (*(const volatile typeof(value) *)&(value))

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};

/* Flags of maps, updates and rings. */
#define BPF_F_NO_PREALLOC (1u << 0)
#define BPF_F_MMAPABLE (1u << 10)
#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_FORCE_WAKEUP 2
#define BPF_RB_AVAIL_DATA 0
#define BPF_RB_RING_SIZE 1

#define EEXIST 17

/* Context of a perf event program: registers in the order of the ABI, then the event. */
#define USER_REGISTER_COUNT 21
enum user_register {
	USER_R15 = 0,
	USER_R14 = 1,
	USER_R13 = 2,
	USER_R12 = 3,
	USER_RBP = 4,
	USER_RBX = 5,
	USER_R11 = 6,
	USER_R10 = 7,
	USER_R9 = 8,
	USER_R8 = 9,
	USER_RAX = 10,
	USER_RCX = 11,
	USER_RDX = 12,
	USER_RSI = 13,
	USER_RDI = 14,
	USER_RIP = 16,
	USER_CS = 17,
	USER_RSP = 19,
};
#define CODE_SEGMENT_32_BIT 0x23
struct bpf_perf_event_data {
	u64 registers[USER_REGISTER_COUNT];
	u64 sample_period;
	u64 address;
};

#define PF_IO_WORKER 0x00000010
#define PF_KTHREAD 0x00200000
/* Inode of the initial PID namespace, ABI. */
#define INITIAL_PID_NAMESPACE 0xeffffffcu
#define MAX_PID_NAMESPACE_LEVEL 32

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct mm_struct {
	u64 start_stack;
};
struct ns_common {
	u32 inum;
};
struct pid_namespace {
	struct ns_common ns;
};
struct upid {
	s32 nr;
	struct pid_namespace *ns;
};
struct pid {
	u32 level;
	struct upid numbers[1];
};
struct task_struct {
	u32 flags;
	struct mm_struct *mm;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	u64 start_boottime;
	char comm[16];
	u64 self_exec_id;
};
#pragma clang attribute pop

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_get_current_comm)(void *to, u32 size) = (void *)16;
static long (*bpf_get_stack)(void *context, void *to, u32 size, u64 flags) = (void *)67;
static u64 (*bpf_get_current_cgroup_id)(void) = (void *)80;
static long (*bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static long (*bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static u64 (*bpf_ringbuf_query)(void *ring, u64 what) = (void *)134;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
static void *(*bpf_task_pt_regs)(struct task_struct *task) = (void *)175;
static long (*bpf_loop)(u32 count, void *callback, void *context, u64 flags) = (void *)181;

/* Reads a field through a pointer that the verifier does not know. */
#define READ_KERNEL(pointer, field)                                                                                    \
	({                                                                                                             \
		typeof((pointer)->field) value_ = 0;                                                                   \
		bpf_probe_read_kernel(&value_, sizeof(value_), __builtin_preserve_access_index(&(pointer)->field));    \
		value_;                                                                                                \
	})
/* Offset of a field and size of a type in the running kernel. */
#define FIELD_OFFSET(pointer, field) __builtin_preserve_field_info((pointer)->field, 0)
#define TYPE_SIZE(type) __builtin_preserve_type_info(*(typeof(type) *)0, 1)
