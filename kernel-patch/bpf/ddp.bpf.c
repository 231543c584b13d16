// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Places payload when its segment arrives, also behind a hole in the stream: of RDMA Writes, of the
 * Responses to this end's Reads, and of Sends for which a receive is posted.
 *
 * Runs at tc ingress, where every segment passes before TCP sees it. Lets every segment go on
 * unchanged. What is not placed here the engine in user space places; what is placed counts there
 * if TCP has taken the same octets. docs/kernel-placement.md says why each condition stands where
 * it does; their order is part of it.
 */
#include <linux/bpf.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#include "helpers.h"
#include "segment.h"
#include "shared.h"

#include "maps.h"

#include "headers.h"
#include "seen.h"
#include "place.h"
#include "sound.h"
#include "tcp.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define GO_ON (-1) /* TCX_NEXT and TC_ACT_UNSPEC */
#define MOST_WINDOW (1u << 30) /* RFC 7323 §2.3 */

/* Says whether a segment follows the last one that came in order. TCP takes no segments while a
 * program is in a call on the socket: they wait in a queue, and what follows one of them is in
 * order, too. If a segment counts as in order that is not (TCP drops the one before it, or somebody
 * else made it), more is left to user space, or looked at. */
static __always_inline int follows(const struct segment *seg, struct connection *connection)
{
	__u32 end = seg->seq + seg->payload_len;

	/* No further than a window: sequence numbers have an order only if they are near each other. */
	if (seg->seq != connection->next || end - (__u32)(connection->gate >> 32) > MOST_WINDOW)
		return 0;
	connection->next = end;
	return 1;
}

/* Says why a segment of a connection is left to user space, before its octets are looked at; -1 if
 * it is not. */
static __always_inline int turned_away(struct __sk_buff *skb, const struct segment *seg,
				       struct connection *connection, __u32 *behind)
{
	__u32 end = seg->seq + seg->payload_len;
	struct tcp_state tcp = {};
	int in_order, found;

	if (seg->is_fragment)
		tell_nothing(connection);
	if (seg->is_fragment || !seg->payload_len)
		return NOT_WHOLE;
	in_order = seg->is_whole && follows(seg, connection);
	if (in_order && !(connection->flags & PLACE_ALL)) {
		/* The usual case, in which TCP need not be asked. */
		note(connection, seg->seq, end);
		return IN_ORDER;
	}
	found = ask_tcp(skb, seg, &tcp);
	/* TCP may take what begins in its window, and in no other state more than before. */
	if (!found)
		note_again(connection, seg->seq, end);
	else if (is_before(seg->seq, tcp.window_end) && is_before(tcp.rcv_nxt, end))
		note(connection, seg->seq, end);
	if (!seg->is_whole)
		return NOT_WHOLE;
	if (!found)
		return NO_SOCKET;
	if (is_before(tcp.window_end, end) || is_before(seg->seq, tcp.rcv_nxt))
		return OUT_OF_WINDOW;
	/* TCP drops what acknowledges octets that were never sent, or of long ago (RFC 5961 §5.2). */
	if (is_before(tcp.last_ack, seg->ack) || is_before(seg->ack, tcp.first_ack))
		return OUT_OF_WINDOW;
	if ((seg->flags & 0x37) != 0x10) /* URG, ACK, RST, SYN, FIN: only ACK */
		return FLAGS;
	/* TCP drops a segment of before the sequence numbers wrapped. A connection without timestamps
	 * has no such check in TCP either. */
	if (tcp.ts_recent && (!seg->has_timestamp || is_before(seg->timestamp, tcp.ts_recent)))
		return OLD_TIMESTAMP;
	if (seg->seq == tcp.rcv_nxt) {
		connection->next = end;
		in_order = 1;
	}
	*behind = !in_order;
	return in_order && !(connection->flags & PLACE_ALL) ? IN_ORDER : -1;
}

static __always_inline int is_same(const struct tuple *a, const struct tuple *b)
{
	const __u32 *left = (const __u32 *)a, *right = (const __u32 *)b;
	__u32 number, differ = 0;

	for (number = 0; number < sizeof(*a) / sizeof(*left); number++)
		differ |= left[number] ^ right[number];
	return !differ;
}

/* Places what a segment of this connection has. Returns the outcome, or -1 if FPDUs were placed or
 * counted one by one. */
static __always_inline int place_segment(struct __sk_buff *skb, const struct segment *seg,
					 struct connection *connection, __u32 number)
{
	struct walk walk = {};
	__u64 gate;
	int why;

	why = turned_away(skb, seg, connection, &walk.behind);
	if (why >= 0)
		return why;
	walk.skb = skb;
	walk.connection = number;
	walk.at = seg->payload_at;
	walk.end = seg->payload_at + seg->payload_len;
	loop(MOST_FPDUS, check_fpdu, &walk, 0);
	if (walk.at != walk.end)
		return UNALIGNED;
	if (!(connection->flags & TRUST_LINK) && !is_sound(skb, seg))
		return BAD_CHECKSUM;

	gate = *(volatile __u64 *)&connection->gate;
	if (is_before(seg->seq, gate >> 32))
		return STALE;
	if ((gate & (GATE_OPEN | GATE_BUSY)) != GATE_OPEN ||
	    __sync_val_compare_and_swap(&connection->gate, gate, gate | GATE_BUSY) != gate)
		return CONTENDED;
	walk.at = seg->payload_at;
	walk.seq = seg->seq;
	/* User space may have given the place to another connection since it was looked up. */
	if (is_same(&connection->tuple, &seg->tuple))
		loop(MOST_FPDUS, place_fpdu, &walk, 0);
	__sync_fetch_and_and(&connection->gate, ~(__u64)GATE_BUSY);
	return -1;
}

SEC("classifier")
int place_ingress(struct __sk_buff *skb)
{
	struct segment seg = {};
	struct connection *connection;
	__u32 *number;
	int outcome;

	if (!parse(skb, &seg))
		return GO_ON;
	number = map_lookup(&tuples, &seg.tuple);
	if (!number)
		return GO_ON;
	connection = map_lookup(&connections, number);
	if (!connection)
		return GO_ON;
	__sync_fetch_and_add(&connection->segments, 1);
	connection->interface = skb->ifindex;
	outcome = place_segment(skb, &seg, connection, *number);
	if (outcome >= 0)
		__sync_fetch_and_add(&connection->outcomes[outcome & 15], 1);
	return GO_ON;
}

/* Run by user space on a made-up segment: says what TCP knows of its connection. This is how user
 * space learns which sequence number belongs to the octet that it reads next. */
SEC("classifier")
int ask(struct __sk_buff *skb)
{
	struct segment seg = {};
	struct tcp_state tcp = {};
	struct answer *answer;
	__u32 zero = 0;

	answer = map_lookup(&answers, &zero);
	if (!answer)
		return GO_ON;
	answer->found = 0;
	if (!parse(skb, &seg) || !ask_tcp(skb, &seg, &tcp))
		return GO_ON;
	answer->copied_seq = tcp.copied_seq;
	answer->rcv_nxt = tcp.rcv_nxt;
	answer->window_end = tcp.window_end;
	answer->ts_recent = tcp.ts_recent;
	answer->last_ack = tcp.last_ack;
	answer->has_more = tcp.has_more;
	answer->found = 1;
	return GO_ON;
}
