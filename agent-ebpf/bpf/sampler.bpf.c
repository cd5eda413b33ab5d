/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Samples the stack that runs on a CPU and counts it.
 *
 * The program runs on the CPU clock event of each CPU. It identifies the process, collects kernel frames and user
 * frames, and adds the sample to the counts of the current side. The frames of a new key are sent before its count is
 * inserted, so that user space has the frames of every count. */
#include "kernel_types.h"
#include "layout.h"
#include "unwind.h"

char program_license[] SEC("license") = "Dual MIT/GPL";

/* Minimum time between requests of one process. */
#define PROCESS_RETRY_NANOS 1000000000ull
#define MAPPING_RETRY_NANOS 100000000ull
#define ALL_SAMPLES (1ull << 32)
/* Stack that is searched for return addresses if a page of rows is missing: 8 KiB. */
#define SCANNED_WORDS 16
#define MAX_STACK_SCANS 64
#define FACTOR_SHIFT 16

/* Sizes are set by user space before the maps are created. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

struct counts_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct stack_key);
	__type(value, struct stack_count);
};
struct counts_map counts_0 SEC(".maps");
struct counts_map counts_1 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct page_key);
	__type(value, struct page_value);
} pages SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct process_value);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1048576);
	__type(key, struct mapping_key);
	__type(value, struct mapping_value);
} mappings SEC(".maps");

struct row_chunk {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ROWS_PER_CHUNK);
	__type(key, u32);
	__type(value, u64);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_ROW_CHUNKS);
	__type(key, u32);
	__array(values, struct row_chunk);
} row_chunks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_state);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 262144);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} requests SEC(".maps");

static __always_inline struct unwind_state *find_scratch(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

static __always_inline struct process_value *unwind_find_process(u32 pid)
{
	return bpf_map_lookup_elem(&processes, &pid);
}

static __always_inline struct mapping_value *unwind_find_mapping(u32 pid, u64 address)
{
	struct mapping_key key = {
		.prefix_bits = 96,
		.pid_be = __builtin_bswap32(pid),
		.address_be = __builtin_bswap64(address),
	};

	return bpf_map_lookup_elem(&mappings, &key);
}

static __always_inline struct page_value *unwind_find_page(struct unwind_state *state)
{
	return bpf_map_lookup_elem(&pages, &state->page);
}

static __always_inline void *unwind_find_chunk(u32 chunk)
{
	return bpf_map_lookup_elem(&row_chunks, &chunk);
}

static __always_inline struct unwind_row *unwind_find_row(void *chunk, u32 index)
{
	return bpf_map_lookup_elem(chunk, &index);
}

static __always_inline long unwind_read(void *to, u32 size, u64 address)
{
	return bpf_probe_read_user(to, size, (const void *)address);
}

static __always_inline long send_request(struct unwind_state *state, u32 kind, u64 address)
{
	struct request_record request = {
		.kind = kind,
		.pid = state->record.key.pid,
		.host_pid = state->record.key.host_pid,
		.exec_id = state->record.key.exec_id,
		.start_nanos = state->record.key.start_nanos,
		.address = address,
	};

	if (kind == REQUEST_PAGE)
		request.page = state->page;
	return bpf_ringbuf_output(&requests, &request, sizeof(request), 0);
}

/* Claims a request that may be sent once per `retry_nanos`. Returns whether this CPU got it. */
static __always_inline u32 claim_request(struct process_value *process, u64 now, u64 retry_nanos)
{
	u64 requested_at = READ_ONCE(process->requested_at);

	/* The time of another CPU may be later. */
	if ((s64)(now - requested_at) < (s64)retry_nanos)
		return 0;
	return __sync_val_compare_and_swap(&process->requested_at, requested_at, now) == requested_at;
}

static __always_inline void request_process(struct unwind_state *state, u64 address)
{
	struct stack_key *key = &state->record.key;
	u32 pid = key->pid;
	u64 now = bpf_ktime_get_ns();
	struct process_value requested = {
		.start_nanos = key->start_nanos,
		.requested_at = now,
		.exec_id = key->exec_id,
		.state = PROCESS_REQUESTED,
	};
	struct process_value *process = unwind_find_process(pid);
	long error;

	if (process && process->start_nanos == key->start_nanos && process->exec_id == key->exec_id) {
		/* Still not loaded: the request may be lost. */
		if (claim_request(process, now, PROCESS_RETRY_NANOS))
			send_request(state, REQUEST_PROCESS, address);
		return;
	}
	/* The map may be full. The request is sent then too, since only user space can evict. */
	error = bpf_map_update_elem(&processes, &pid, &requested, BPF_ANY);
	if (send_request(state, REQUEST_PROCESS, address) && !error)
		bpf_map_delete_elem(&processes, &pid);
}

static __always_inline void request_mapping(struct unwind_state *state, u64 address)
{
	struct process_value *process = unwind_find_process(state->record.key.pid);

	if (process && claim_request(process, bpf_ktime_get_ns(), MAPPING_RETRY_NANOS))
		send_request(state, REQUEST_MAPPING, address);
}

/* Requests `state->page`. `is_needed`: a frame of this sample needs it. */
static __always_inline void request_page(struct unwind_state *state, u64 address, u32 is_needed)
{
	struct page_value requested = {
		.state = PAGE_REQUESTED,
		.used_in = (u32)state->record.window,
	};

	long error = bpf_map_update_elem(&pages, &state->page, &requested, BPF_NOEXIST);

	/* Another CPU was first. A full map is no reason not to send what is needed: only user space can evict. */
	if (error == -EEXIST || (error && !is_needed))
		return;
	if (send_request(state, REQUEST_PAGE, address) && !error)
		bpf_map_delete_elem(&pages, &state->page);
}

static __always_inline void unwind_request(struct unwind_state *state, u32 kind, u64 address)
{
	if (kind == REQUEST_PROCESS)
		request_process(state, address);
	else if (kind == REQUEST_MAPPING)
		request_mapping(state, address);
	else
		request_page(state, address, 1);
}

/* Process id in the PID namespace of the agent, 0 if it is not visible there. */
static __always_inline u32 find_visible_pid(struct task_struct *leader, u32 namespace_inode, u32 host_pid)
{
	struct pid *pid;
	u32 levels;
	u64 numbers;

	if (namespace_inode == INITIAL_PID_NAMESPACE)
		return host_pid;
	pid = leader->thread_pid;
	levels = READ_KERNEL(pid, level);
	/* Not an index into the array, whose declared length differs between kernels. */
	numbers = (u64)pid + FIELD_OFFSET(pid, numbers);
	for (u32 level = 0; level <= MAX_PID_NAMESPACE_LEVEL; level++) {
		struct upid *number = (struct upid *)(numbers + level * TYPE_SIZE(struct upid));
		struct pid_namespace *namespace;

		if (level > levels)
			break;
		namespace = READ_KERNEL(number, ns);
		if (READ_KERNEL(namespace, ns.inum) == namespace_inode)
			return READ_KERNEL(number, nr);
	}
	return 0;
}

static __always_inline void identify(struct unwind_state *state, struct control *settings, struct task_struct *task)
{
	struct stack_key *key = &state->record.key;
	struct task_struct *leader = task->group_leader;

	key->host_pid = bpf_get_current_pid_tgid() >> 32;
	key->pid = find_visible_pid(leader, settings->pid_namespace_inode, key->host_pid);
	key->start_nanos = leader->start_boottime;
	key->exec_id = (u32)leader->self_exec_id;
	key->cgroup = bpf_get_current_cgroup_id();
	/* Bytes behind the end of a name would make keys differ. */
	__builtin_memset(key->comm, 0, sizeof(key->comm));
	bpf_probe_read_kernel_str(key->comm, sizeof(key->comm), settings->thread_names ? task->comm : leader->comm);
}

static long hash_kernel_frame(u32 index, void *context)
{
	struct unwind_state *state = find_scratch();
	u64 frame;

	if (!state || index >= MAX_KERNEL_FRAMES)
		return 1;
	frame = state->frames[index];
	/* The innermost frame is exact, the others are return addresses. */
	if (index) {
		frame -= 1;
		state->frames[index] = frame;
	}
	unwind_hash(state, frame);
	return 0;
}

static __always_inline void collect_kernel_frames(struct unwind_state *state, struct bpf_perf_event_data *event)
{
	long bytes = bpf_get_stack(event, state->frames, MAX_KERNEL_FRAMES * sizeof(u64), 0);
	u32 count;

	if (bytes <= 0)
		return;
	count = (u32)bytes / sizeof(u64);
	state->record.kernel_frames = count;
	state->first_frame = count;
	bpf_loop(count, hash_kernel_frame, 0, 0);
}

static long unwind_user_frame(u32 index, void *context)
{
	struct unwind_state *state = find_scratch();

	return state ? unwind_step(state) : 1;
}

/* Requests the page of a word of the stack that looks like an address in the mapping of the current frame. */
static __always_inline void request_page_of_word(struct unwind_state *state, u64 word)
{
	u64 file_address = word - 1 - state->mapping.bias;

	if (word <= state->mapping.start || word > state->mapping.end || file_address > FRAME_FILE_ADDRESS_MASK)
		return;
	state->page.page = (u32)(file_address >> PAGE_SHIFT_ROWS);
	if (!unwind_find_page(state))
		request_page(state, word, 0);
}

static long scan_stack(u32 index, void *context)
{
	struct unwind_state *state = find_scratch();

	if (!state)
		return 1;
	if (unwind_read(state->words, SCANNED_WORDS * sizeof(u64),
			state->registers[REGISTER_RSP] + (u64)index * SCANNED_WORDS * sizeof(u64)))
		return 1;
	for (u32 word = 0; word < SCANNED_WORDS; word++)
		request_page_of_word(state, state->words[word]);
	return 0;
}

static __always_inline void set_registers(struct unwind_state *state)
{
	u64 *saved = state->words;
	u64 *registers = state->registers;

	registers[0] = saved[USER_RAX];
	registers[1] = saved[USER_RDX];
	registers[2] = saved[USER_RCX];
	registers[3] = saved[USER_RBX];
	registers[4] = saved[USER_RSI];
	registers[5] = saved[USER_RDI];
	registers[6] = saved[USER_RBP];
	registers[7] = saved[USER_RSP];
	registers[8] = saved[USER_R8];
	registers[9] = saved[USER_R9];
	registers[10] = saved[USER_R10];
	registers[11] = saved[USER_R11];
	registers[12] = saved[USER_R12];
	registers[13] = saved[USER_R13];
	registers[14] = saved[USER_R14];
	registers[15] = saved[USER_R15];
	state->ip = saved[USER_RIP];
}

static __always_inline void collect_user_frames(struct unwind_state *state, struct task_struct *task)
{
	void *saved;

	state->end = STACK_COMPLETE;
	/* Threads of the kernel, also those that work for a process, and exited processes. */
	if (task->flags & (PF_KTHREAD | PF_IO_WORKER) || !task->mm)
		return;
	state->end = STACK_NO_REGISTERS;
	/* The registers of user mode are at the top of the kernel stack, in either mode. */
	saved = bpf_task_pt_regs(task);
	if (!saved || bpf_probe_read_kernel(state->words, USER_REGISTER_COUNT * sizeof(u64), saved))
		return;
	set_registers(state);
	if (!state->ip || state->ip >= USER_ADDRESS_END)
		return;
	if ((state->words[USER_CS] & 0xffff) == CODE_SEGMENT_32_BIT) {
		unwind_push(state, state->ip);
		state->end = STACK_UNSUPPORTED_RULE;
		return;
	}
	state->stack_start = READ_KERNEL(task->mm, start_stack);
	unwind_begin(state);
	bpf_loop(MAX_USER_FRAMES + 1, unwind_user_frame, 0, 0);
	/* A large file has many pages, and each sample would find one more that is missing. Return addresses further up
	 * the stack tell which ones the next sample needs. */
	if (state->end == STACK_ROWS_NOT_LOADED)
		bpf_loop(MAX_STACK_SCANS, scan_stack, 0, 0);
}

/* Completes the hash of the key. */
static __always_inline void seal_key(struct unwind_state *state)
{
	struct stack_record *record = &state->record;

	record->key.end = state->end;
	unwind_hash(state, (u64)record->kernel_frames << 32 | (u64)record->user_frames << 16 | state->end);
	record->key.hash[0] = state->hash[0] ^ state->hash[0] >> 32;
	record->key.hash[1] = state->hash[1];
}

static __always_inline long send_frames(struct unwind_state *state)
{
	u64 frames = state->record.kernel_frames + state->record.user_frames;
	u64 size = sizeof(struct stack_record) + (frames & (FRAME_SLOTS - 1)) * sizeof(u64);
	u64 waiting = bpf_ringbuf_query(&stacks, BPF_RB_AVAIL_DATA);
	u64 capacity = bpf_ringbuf_query(&stacks, BPF_RB_RING_SIZE);
	u64 flags = waiting > capacity / 2 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;

	return bpf_ringbuf_output(&stacks, &state->record, size, flags);
}

static __always_inline u32 add_to_count(void *counts, struct stack_key *key, u64 nanos)
{
	struct stack_count *count = bpf_map_lookup_elem(counts, key);

	if (!count)
		return 0;
	__sync_fetch_and_add(&count->samples, 1);
	__sync_fetch_and_add(&count->nanos, nanos);
	return 1;
}

/* Adds the sample to the counts of a side. Returns LOST_REASON_COUNT on success, else the reason. */
static __always_inline u32 count_stack(void *counts, struct unwind_state *state, u64 nanos)
{
	struct stack_key *key = &state->record.key;
	struct stack_count first = { .samples = 1, .nanos = nanos };
	long error;

	if (add_to_count(counts, key, nanos))
		return LOST_REASON_COUNT;
	if (send_frames(state))
		return LOST_RING_FULL;
	error = bpf_map_update_elem(counts, key, &first, BPF_NOEXIST);
	if (!error || (error == -EEXIST && add_to_count(counts, key, nanos)))
		return LOST_REASON_COUNT;
	return LOST_COUNTS_FULL;
}

static __always_inline u32 take_sample(struct unwind_state *state, struct control *settings,
				       struct task_struct *task, struct bpf_perf_event_data *event, u32 side)
{
	u64 nanos = event->sample_period * settings->nanos_factor[side] >> FACTOR_SHIFT;
	u64 ip = event->registers[USER_RIP];

	state->hash[0] = 0x2d358dccaa6c78a5ull;
	state->hash[1] = 0x8bb84b93962eacc9ull;
	state->first_frame = 0;
	state->record.kernel_frames = 0;
	state->record.user_frames = 0;
	state->record.reserved = 0;
	if (settings->with_kernel_frames && (s64)ip < 0)
		collect_kernel_frames(state, event);
	collect_user_frames(state, task);
	seal_key(state);
	if (side)
		return count_stack(&counts_1, state, nanos);
	return count_stack(&counts_0, state, nanos);
}

/* Work between the marks of entry and exit. */
static __always_inline void run_inside(struct cpu_state *cpu, struct control *settings,
				       struct bpf_perf_event_data *event)
{
	struct unwind_state *state = find_scratch();
	struct task_struct *task = bpf_get_current_task_btf();
	u64 window = READ_ONCE(settings->window);
	u32 side = window & 1;
	u64 threshold = settings->threshold[side];
	u32 result;

	if (READ_ONCE(settings->is_stopped))
		return;
	if (state) {
		state->record.window = window;
		identify(state, settings, task);
		if (settings->pid_filter && settings->pid_filter != state->record.key.pid)
			return;
	}
	if (threshold < ALL_SAMPLES && bpf_get_prandom_u32() >= threshold) {
		cpu->thinned += 1;
		return;
	}
	cpu->taken += 1;
	if (!state) {
		cpu->lost[LOST_SCRATCH] += 1;
		return;
	}
	result = take_sample(state, settings, task, event, side);
	if (result < LOST_REASON_COUNT) {
		cpu->lost[result] += 1;
		return;
	}
	cpu->delivered += 1;
	cpu->ends[state->end & 15] += 1;
}

SEC("perf_event")
int on_cpu_clock(struct bpf_perf_event_data *event)
{
	u32 zero = 0;
	u32 cpu_number = bpf_get_smp_processor_id();
	struct cpu_state *cpu = bpf_map_lookup_elem(&cpu_states, &cpu_number);
	struct control *settings = bpf_map_lookup_elem(&control, &zero);
	u64 started_at;
	u64 entries;

	if (!cpu || !settings)
		return 0;
	if (bpf_get_current_pid_tgid() >> 32 == 0) {
		cpu->idle += 1;
		return 0;
	}
	started_at = bpf_ktime_get_ns();
	/* The mark is visible before the window is read: user space that switched the window sees either the mark, or
	 * that this program took the new side. An atomic operation whose result is used is fully ordered. */
	entries = __sync_fetch_and_add(&cpu->entries, 1);
	barrier_var(entries);
	run_inside(cpu, settings, event);
	entries = __sync_fetch_and_add(&cpu->entries, 1);
	barrier_var(entries);
	cpu->run_nanos += bpf_ktime_get_ns() - started_at;
	return 0;
}
