/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* TCP's own view of a connection. */
#ifndef RDDP_TCP_H
#define RDDP_TCP_H

#define ESTABLISHED 1u

/* What TCP knows of a connection. */
struct tcp_state {
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 window_end;
	__u32 ts_recent;
	__u32 first_ack; /* of what a segment may acknowledge, and the last */
	__u32 last_ack;
	__u32 has_more;  /* segments that are not in order, or wait for TCP to look at them */
};

static __always_inline struct bpf_sock *find_v4(struct __sk_buff *skb, const struct tuple *tuple)
{
	struct bpf_sock_tuple wanted = {};

	wanted.ipv4.saddr = tuple->peer_addr[3];
	wanted.ipv4.daddr = tuple->own_addr[3];
	wanted.ipv4.sport = tuple->peer_port;
	wanted.ipv4.dport = tuple->own_port;
	return sk_lookup(skb, &wanted, sizeof(wanted.ipv4), BPF_F_CURRENT_NETNS, 0);
}

static __always_inline struct bpf_sock *find_v6(struct __sk_buff *skb, const struct tuple *tuple)
{
	struct bpf_sock_tuple wanted = {};

	__builtin_memcpy(wanted.ipv6.saddr, tuple->peer_addr, 16);
	__builtin_memcpy(wanted.ipv6.daddr, tuple->own_addr, 16);
	wanted.ipv6.sport = tuple->peer_port;
	wanted.ipv6.dport = tuple->own_port;
	return sk_lookup(skb, &wanted, sizeof(wanted.ipv6), BPF_F_CURRENT_NETNS, 0);
}

static __always_inline int ask_tcp(struct __sk_buff *skb, const struct segment *seg, struct tcp_state *state)
{
	struct tcp_sock *tcp;
	struct bpf_sock *sk;
	int found = 0;

	sk = seg->is_v6 ? find_v6(skb, &seg->tuple) : find_v4(skb, &seg->tuple);
	if (!sk)
		return 0;
	/* A listening socket is also found, and has no sequence numbers. */
	if (sk->state == ESTABLISHED && (tcp = to_tcp_sock(sk))) {
		state->rcv_nxt = tcp->rcv_nxt;
		state->copied_seq = tcp->copied_seq;
		state->window_end = tcp->rcv_wup + tcp->rcv_wnd;
		state->ts_recent = tcp->rx_opt.ts_recent;
		state->first_ack = tcp->snd_una - tcp->max_window;
		state->last_ack = tcp->snd_nxt;
		state->has_more = tcp->out_of_order_queue.rb_node || tcp->inet_conn.icsk_inet.sk.sk_backlog.len;
		found = 1;
	}
	sk_release(sk);
	return found;
}

#endif
