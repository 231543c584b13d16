// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Places payload when its segment arrives, also behind a hole in the stream: of RDMA Writes, of the
 * Responses to this end's Reads, and of Sends for which a receive is posted.
 *
 * Runs at tc ingress, where every segment passes before TCP sees it. Lets every segment go on
 * unchanged: a segment that is not placed here is placed by the engine in user space, and one that
 * is gets checked there against the stream before it counts. docs/kernel-placement.md says why each
 * condition stands where it does; their order is part of it.
 */
#include <linux/bpf.h>

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#include "helpers.h"
#include "segment.h"
#include "shared.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define GO_ON (-1) /* TCX_NEXT and TC_ACT_UNSPEC */

#define ETH_LEN 14u
#define IPV4_LEN 20u
#define IPV6_LEN 40u
#define TCP_LEN 20u
#define TCP 6 /* the protocol's number */
/* The third word of an IPv4 address that is written as IPv6 has it. */
#define MAPPED __builtin_bswap32(0xffffu)
#define TIMESTAMP_FIRST 0x0101080au /* NOP, NOP, timestamps: kind 8, 10 octets (RFC 7323 §3.2) */
#define ESTABLISHED 1u
#define SUM_CHUNK 512u /* what `csum_diff` takes at a time */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(key_size, sizeof(struct tuple));
	__uint(value_size, sizeof(__u32));
	__uint(max_entries, CONNECTIONS);
} tuples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct connection));
	__uint(max_entries, CONNECTIONS);
	__uint(map_flags, BPF_F_MMAPABLE);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct entry));
	__uint(max_entries, STAGS);
	__uint(map_flags, BPF_F_MMAPABLE);
} stags SEC(".maps");

struct piece {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, PIECE_LEN + PIECE_PADDING);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
	__uint(max_entries, 1024);
	__array(values, struct piece);
} pieces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, SUM_CHUNK + 8);
	__uint(max_entries, 1);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct answer));
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
} answers SEC(".maps");

/* A TCP segment: where it is in the frame, and what its headers say. */
struct segment {
	struct tuple tuple;
	__u32 tcp_at;      /* offset of the TCP header in the frame */
	__u32 tcp_len;     /* octets of header and payload, as IP has them */
	__u32 payload_at;  /* offset of the payload in the frame */
	__u32 payload_len;
	__u32 seq;
	__u8 flags;
	__u8 has_timestamp;
	__u8 is_v6;
	__u8 is_fragment;
	__u8 is_whole;     /* the headers are as expected, and all of the payload is in the frame */
	__u32 timestamp;
	__u16 checksum;    /* in network order */
};

/* Reads the header of IPv4. Says whether TCP's follows it. */
static __always_inline int parse_v4(struct __sk_buff *skb, struct segment *seg)
{
	__u8 ip[IPV4_LEN];
	__u32 len;

	if (skb_load(skb, ETH_LEN, ip, sizeof(ip)) || ip[0] >> 4 != 4 || ip[9] != TCP)
		return 0;
	/* The ports of a fragment other than the first are none. */
	if (octets16(ip + 6) & 0x1fff)
		return 0;
	len = (ip[0] & 15) * 4;
	if (len < IPV4_LEN)
		return 0;
	seg->is_fragment = octets16(ip + 6) >> 13 & 1;
	seg->tcp_at = ETH_LEN + len;
	seg->tcp_len = octets16(ip + 2) - len;
	if (octets16(ip + 2) < len)
		seg->tcp_len = 0;
	seg->tuple.peer_addr[2] = seg->tuple.own_addr[2] = MAPPED;
	__builtin_memcpy(&seg->tuple.peer_addr[3], ip + 12, 4);
	__builtin_memcpy(&seg->tuple.own_addr[3], ip + 16, 4);
	return 1;
}

static __always_inline int is_mapped(const __u32 *addr)
{
	return !addr[0] && !addr[1] && addr[2] == MAPPED;
}

/* Reads the header of IPv6. Says whether TCP's follows it: with other headers between them, among
 * which are those of fragments, a segment is left to user space. */
static __always_inline int parse_v6(struct __sk_buff *skb, struct segment *seg)
{
	__u8 ip[IPV6_LEN];

	if (skb_load(skb, ETH_LEN, ip, sizeof(ip)) || ip[0] >> 4 != 6 || ip[6] != TCP)
		return 0;
	seg->is_v6 = 1;
	seg->tcp_at = ETH_LEN + IPV6_LEN;
	seg->tcp_len = octets16(ip + 4);
	__builtin_memcpy(seg->tuple.peer_addr, ip + 8, 16);
	__builtin_memcpy(seg->tuple.own_addr, ip + 24, 16);
	/* Such an address is none on the wire, and would be the name of a connection over IPv4. */
	return !is_mapped(seg->tuple.peer_addr) && !is_mapped(seg->tuple.own_addr);
}

/* Reads the headers of a TCP segment. Says whether it is one. */
static __always_inline int parse(struct __sk_buff *skb, struct segment *seg)
{
	__u8 type[2], tcp[TCP_LEN], option[8];
	__u32 header_len;

	/* IP drops what is for another host. */
	if (skb->pkt_type || skb_load(skb, ETH_LEN - sizeof(type), type, sizeof(type)))
		return 0;
	if (octets16(type) == 0x0800) {
		if (!parse_v4(skb, seg))
			return 0;
	} else if (octets16(type) != 0x86dd || !parse_v6(skb, seg)) {
		return 0;
	}
	if (skb_load(skb, seg->tcp_at, tcp, sizeof(tcp)))
		return 0;
	__builtin_memcpy(&seg->tuple.peer_port, tcp, 2);
	__builtin_memcpy(&seg->tuple.own_port, tcp + 2, 2);
	seg->seq = octets32(tcp + 4);
	seg->flags = tcp[13];
	__builtin_memcpy(&seg->checksum, tcp + 16, 2);

	/* The length is IP's own: short frames have padding behind it. A frame with a VLAN tag is one
	 * of the VLAN's own interface, where it comes by once more. */
	header_len = (tcp[12] >> 4) * 4;
	seg->is_whole = !seg->is_fragment && !skb->vlan_present && header_len >= TCP_LEN &&
			seg->tcp_len > header_len && seg->tcp_at + seg->tcp_len <= skb->len;
	if (!seg->is_whole)
		return 1;
	seg->payload_at = seg->tcp_at + header_len;
	seg->payload_len = seg->tcp_len - header_len;
	seg->has_timestamp = 0;
	if (header_len >= TCP_LEN + 12 && !skb_load(skb, seg->tcp_at + TCP_LEN, option, sizeof(option))) {
		seg->has_timestamp = octets32(option) == TIMESTAMP_FIRST;
		seg->timestamp = octets32(option + 4);
	}
	return 1;
}

/* What TCP knows of a connection. */
struct tcp_state {
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 window_end;
	__u32 ts_recent;
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
		found = 1;
	}
	sk_release(sk);
	return found;
}

/* A sum of a segment's octets in progress. */
struct sum {
	struct __sk_buff *skb;
	__u32 at;
	__u32 left;
	__u32 sum;
	__u32 failed;
};

static int sum_chunk(__u32 index, struct sum *sum)
{
	__u32 zero = 0, len = sum->left;
	__u8 *chunk = map_lookup(&scratch, &zero);

	if (!chunk || !len)
		return 1;
	if (len > SUM_CHUNK)
		len = SUM_CHUNK;
	FORGET(len);
	len = ((len - 1) & (SUM_CHUNK - 1)) + 1;
	if (skb_load(sum->skb, sum->at, chunk, len)) {
		sum->failed = 1;
		return 1;
	}
	sum->at += len;
	sum->left -= len;
	/* An odd end counts as if zeros followed; only the last chunk has one. */
	chunk[len] = chunk[len + 1] = chunk[len + 2] = 0;
	sum->sum = csum_diff(0, 0, chunk, (len + 3) & ~3u, sum->sum);
	return 0;
}

static __always_inline __u32 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Says whether the TCP checksum is right (RFC 9293 §3.1). A segment whose checksum is wrong passes
 * here before TCP drops it. */
static __always_inline int is_sound(struct __sk_buff *skb, const struct segment *seg)
{
	__u8 pseudo[40] = {};
	struct sum sum = {};

	/* The interface has checked it, or GRO. */
	if (csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0)
		return 1;
	/* The pseudo-header of IPv6 (RFC 8200 §8.1). IPv4's has the same sum: the ffff in front of its
	 * addresses is nothing in one's complement. */
	__builtin_memcpy(pseudo, seg->tuple.peer_addr, 16);
	__builtin_memcpy(pseudo + 16, seg->tuple.own_addr, 16);
	pseudo[34] = seg->tcp_len >> 8;
	pseudo[35] = seg->tcp_len;
	pseudo[39] = TCP;
	sum.skb = skb;
	sum.at = seg->tcp_at;
	sum.left = seg->tcp_len;
	sum.sum = csum_diff(0, 0, pseudo, sizeof(pseudo), 0);
	/* Several segments in one, which GRO has checked before it joined them, or which have not been
	 * cut yet on this machine: the checksum is that of the pseudo-header alone, and TCP takes it. */
	if (skb->gso_segs > 1)
		return fold(sum.sum) == seg->checksum;
	loop(65536 / SUM_CHUNK, sum_chunk, &sum, 0);
	if (sum.failed || sum.left)
		return 0;
	return fold(sum.sum) == 0xffff;
}

/* A walk over the FPDUs of a segment. */
struct walk {
	struct __sk_buff *skb;
	__u32 at;      /* offset of the next FPDU in the frame */
	__u32 end;     /* offset behind the last */
	__u32 seq;     /* sequence number of the octet at `at` */
	__u32 connection;
	__u32 behind;  /* the segment lies behind a hole */
};

static int check_fpdu(__u32 index, struct walk *walk)
{
	__u8 length[LENGTH_LEN];
	__u32 len;

	if (walk->at >= walk->end || skb_load(walk->skb, walk->at, length, sizeof(length)))
		return 1;
	len = fpdu_len(octets16(length));
	if (len > walk->end - walk->at)
		return 1;
	walk->at += len;
	return 0;
}

/* Copies `len` octets of the frame to their place. Says whether it did. */
static __always_inline int copy(struct __sk_buff *skb, __u32 from, __u64 to, __u32 len)
{
	__u32 piece = to / PIECE_LEN, offset = to % PIECE_LEN, zero = 0;
	void *inner, *octets;

	if (from + len > skb->len) /* `skb_load` would clear the octets */
		return 0;
	inner = map_lookup(&pieces, &piece);
	if (!inner)
		return 0;
	octets = map_lookup(inner, &zero);
	if (!octets)
		return 0;
	FORGET(len);
	len = ((len - 1) & 0xffff) + 1;
	FORGET(offset);
	offset &= PIECE_LEN - 1;
	return !skb_load(skb, from, octets + offset, len);
}

/* Where a payload belongs, as its header says and what this end has asked for. */
struct target {
	__u64 to;
	__u32 stag;
	__u32 right;
};

/* Takes a look at memory that this end has opened for a message, of which user space closes none
 * while the gate is busy. What the slot says is read behind a barrier, and so not older than its
 * name. */
static __always_inline void open_slot(struct slot *slot, struct target *target)
{
	__sync_fetch_and_or(&slot->name, 0);
	target->to = slot->to;
	target->stag = slot->stag;
	target->right = RIGHT_OWN;
}

/* Finds the sink that a segment of a Read Response is for (RFC 5040 §5.2). */
static __always_inline int find_sink(struct connection *connection, const struct front *front, struct target *target)
{
	__u32 number;

	for (number = 0; number < SINKS; number++) {
		struct slot *sink = &connection->sinks[number];

		if (!*(volatile __u64 *)&sink->name || sink->stag != front->stag ||
		    !is_inside(sink->to, sink->len, front->to, front->len))
			continue;
		open_slot(sink, target);
		target->to = front->to;
		/* Once more: a look from before the barrier tells nothing. */
		if (target->stag != front->stag || !is_inside(sink->to, sink->len, front->to, front->len))
			continue;
		return 1;
	}
	return 0;
}

/* Finds the receive that a segment of a Send is for: that of its message (RFC 5041 §5.3). */
static __always_inline int find_receive(struct connection *connection, const struct front *front,
					struct target *target)
{
	struct slot *receive = &connection->receives[front->msn & (RECEIVES - 1)];

	if (*(volatile __u64 *)&receive->name != ((__u64)front->msn << 32 | SLOT_OPEN))
		return 0;
	open_slot(receive, target);
	target->to += front->mo;
	return is_inside(0, receive->len, front->mo, front->len);
}

/* Finds out where a payload belongs. Returns why it is not placed; 0 if it may be. */
static __always_inline int aim(struct connection *connection, enum kind kind, const struct front *front,
			       struct target *target)
{
	if (kind == RESPONSE)
		return find_sink(connection, front, target) ? 0 : NOT_AWAITED;
	if (kind == SEND)
		return find_receive(connection, front, target) ? 0 : NOT_AWAITED;
	if (connection->flags & NO_WRITES)
		return REFUSED;
	if (front->is_last && !(connection->flags & PLACE_LAST))
		return LAST_OF_WRITE;
	target->to = front->to;
	target->stag = front->stag;
	target->right = RIGHT_WRITE;
	return 0;
}

/* Says why a payload may not be placed; 0 if it may. `entry` is pinned. */
static __always_inline int refusal(const struct entry *entry, const struct connection *connection,
				   const struct target *target, __u32 len)
{
	if (entry->pd != connection->pd || (entry->qp && entry->qp != connection->qp) ||
	    !(entry->rights & target->right))
		return REFUSED;
	if (!is_inside(entry->base, entry->len, target->to, len))
		return REFUSED;
	if ((entry->start + (target->to - entry->base)) % PIECE_LEN + len > PIECE_LEN)
		return ACROSS_PIECES;
	return 0;
}

/* Counts a holder of an STag if it is open for all of `stag`'s 32 bits. */
static __always_inline int pin(struct entry *entry, __u32 stag)
{
	__u64 state = *(volatile __u64 *)&entry->state;

	if ((state & ~(__u64)(STAG_WRITING - 1)) != ((__u64)stag << 32 | STAG_OPEN))
		return 0;
	return __sync_val_compare_and_swap(&entry->state, state, state + 1) == state;
}

/* Places the payload of an FPDU at `at`, and records that. `entry` is pinned. */
static __always_inline void place_at(struct walk *walk, struct connection *connection, const struct front *front,
				     __u64 at)
{
	__u64 head = connection->head;
	__u32 number = head;
	struct record *record = &connection->records[number & (RECORDS - 1)];
	int placed;

	/* FPDUs with payload are at least as long as the fronts of untagged ones. */
	if (skb_load(walk->skb, walk->at, record->front, UNTAGGED_FRONT) ||
	    skb_load(walk->skb, walk->at + fpdu_len(front->front_len - LENGTH_LEN + front->len) - sizeof(record->tail),
		     record->tail, sizeof(record->tail)))
		return;
	record->seq = walk->seq;
	record->len = front->len;
	record->at = at;
	/* Whoever looks from here on knows that these octets change. */
	__sync_lock_test_and_set(&connection->head, head + 1);
	placed = copy(walk->skb, walk->at + front->front_len, at, front->len);
	__sync_lock_test_and_set(&record->stamp, (number + 1) << 1 | placed);
	if (placed) {
		connection->fpdus++;
		connection->octets += front->len;
		if (walk->behind)
			connection->octets_behind += front->len;
	}
}

/* Places the payload of an FPDU where it belongs. Returns why it does not; 0 if it does. */
static __always_inline int place(struct walk *walk, struct connection *connection, enum kind kind,
				 const struct front *front)
{
	struct target target = {};
	struct entry *entry;
	__u32 slot;
	int why;

	why = aim(connection, kind, front, &target);
	if (why)
		return why;
	slot = (target.stag >> 8) & (STAGS - 1);
	entry = map_lookup(&stags, &slot);
	if (!entry)
		return REFUSED;
	if (connection->head - *(volatile __u64 *)&connection->tail >= RECORDS)
		return FULL;
	if (!pin(entry, target.stag))
		return REFUSED;
	why = refusal(entry, connection, &target, front->len);
	if (!why)
		place_at(walk, connection, front, entry->start + (target.to - entry->base));
	__sync_fetch_and_sub(&entry->state, 1);
	return why;
}

static int place_fpdu(__u32 index, struct walk *walk)
{
	__u32 number = walk->connection, len;
	struct connection *connection = map_lookup(&connections, &number);
	__u8 octets[UNTAGGED_FRONT];
	struct front front = {};
	enum kind kind = NOTHING;
	int why = NO_PAYLOAD;

	if (!connection || walk->at >= walk->end)
		return 1;
	if (skb_load(walk->skb, walk->at, octets, LENGTH_LEN))
		return 1;
	len = fpdu_len(octets16(octets));
	/* What is shorter has no payload. */
	if (len >= UNTAGGED_FRONT + CRC_LEN && !skb_load(walk->skb, walk->at, octets, sizeof(octets)))
		kind = read_front(octets, &front);
	if (kind != NOTHING)
		why = place(walk, connection, kind, &front);
	if (why)
		connection->outcomes[why & 15]++;
	walk->at += len;
	walk->seq += len;
	return 0;
}

/* Says whether a segment lies behind a hole. TCP takes no segments while a program is in a call on
 * the socket: they wait in a queue, and what follows one of them is in order, too. If a segment
 * counts as in order that is not (TCP drops the one before it, or somebody else made it), more is
 * left to user space, and that is all. */
static __always_inline int is_behind_hole(const struct segment *seg, struct connection *connection, __u32 rcv_nxt)
{
	if (seg->seq != rcv_nxt && seg->seq != connection->next)
		return 1;
	connection->next = seg->seq + seg->payload_len;
	return 0;
}

/* Says why a segment of a connection is left to user space, before its octets are looked at; -1 if
 * it is not. */
static __always_inline int turned_away(struct __sk_buff *skb, const struct segment *seg,
				       struct connection *connection, __u32 *behind)
{
	struct tcp_state tcp = {};
	__u32 end;

	if (!seg->is_whole)
		return NOT_WHOLE;
	if (!ask_tcp(skb, seg, &tcp))
		return NO_SOCKET;
	end = seg->seq + seg->payload_len;
	if (is_before(tcp.window_end, end))
		return OUT_OF_WINDOW;
	if (is_before(connection->top, end))
		connection->top = end;
	if (is_before(seg->seq, tcp.rcv_nxt))
		return OUT_OF_WINDOW;
	if ((seg->flags & 0x37) != 0x10) /* URG, ACK, RST, SYN, FIN: only ACK */
		return FLAGS;
	/* TCP drops a segment of before the sequence numbers wrapped. A connection without timestamps
	 * has no such check in TCP either. */
	if (tcp.ts_recent && (!seg->has_timestamp || is_before(seg->timestamp, tcp.ts_recent)))
		return OLD_TIMESTAMP;
	*behind = is_behind_hole(seg, connection, tcp.rcv_nxt);
	if (!*behind && !(connection->flags & PLACE_ALL))
		return IN_ORDER;
	return -1;
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
	answer->found = 1;
	return GO_ON;
}
