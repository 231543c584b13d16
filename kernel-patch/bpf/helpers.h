/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel's helper functions, by number, and fields of its structures that are found by name
 * when the program is loaded (CO-RE). In place of libbpf's headers, which a system may not have.
 */
#ifndef RDDP_HELPERS_H
#define RDDP_HELPERS_H

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name
#define __array(name, value) typeof(value) *name[]

static void *(*const map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const skb_load)(const void *skb, __u32 offset, void *to, __u32 len) =
	(void *)BPF_FUNC_skb_load_bytes;
static __s64 (*const csum_diff)(const void *from, __u32 from_len, const void *to, __u32 to_len, __u32 seed) =
	(void *)BPF_FUNC_csum_diff;
static long (*const csum_level)(struct __sk_buff *skb, __u64 what) = (void *)BPF_FUNC_csum_level;
static struct bpf_sock *(*const sk_lookup)(void *ctx, struct bpf_sock_tuple *tuple, __u32 len, __u64 netns,
					   __u64 flags) = (void *)BPF_FUNC_sk_lookup_tcp;
static long (*const sk_release)(void *sk) = (void *)BPF_FUNC_sk_release;
static struct tcp_sock *(*const to_tcp_sock)(void *sk) = (void *)BPF_FUNC_skc_to_tcp_sock;
static long (*const loop)(__u32 count, void *each, void *context, __u64 flags) = (void *)BPF_FUNC_loop;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct tcp_options_received {
	__u32 ts_recent;
};
struct rb_root {
	void *rb_node;
};
struct backlog {
	int len;
};
struct sock {
	struct backlog sk_backlog;
};
struct inet_sock {
	struct sock sk;
};
struct inet_connection_sock {
	struct inet_sock icsk_inet;
};
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct rb_root out_of_order_queue;
	__u32 rcv_nxt;
	__u32 rcv_wnd;
	__u32 rcv_wup;
	__u32 copied_seq;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 max_window;
	struct tcp_options_received rx_opt;
};
#pragma clang attribute pop

/* Makes the verifier forget what it knows of a number, so that the bound that follows is the one it
 * goes by: Linux 6.1 loses bounds that the compiler has folded into earlier ones. */
#define FORGET(number) asm volatile("" : "+r"(number))

#endif
