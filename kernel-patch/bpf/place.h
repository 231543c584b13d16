/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Placing: the FPDUs of a segment, where the payload of each belongs, and the copy. */
#ifndef RDDP_PLACE_H
#define RDDP_PLACE_H

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
	__u32 piece = to / PIECE_LEN, block = to % PIECE_LEN / BLOCK_LEN, offset = to % BLOCK_LEN;
	void *inner, *octets;

	if (from + len > skb->len) /* `skb_load` would clear the octets */
		return 0;
	inner = map_lookup(&pieces, &piece);
	if (!inner)
		return 0;
	octets = map_lookup(inner, &block);
	if (!octets)
		return 0;
	FORGET(len);
	len = ((len - 1) & 0xffff) + 1;
	FORGET(offset);
	offset &= BLOCK_LEN - 1;
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
	if ((entry->start + (target->to - entry->base)) % BLOCK_LEN + len > BLOCK_LEN)
		return ACROSS_BLOCKS;
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

/* Places the payload of an FPDU at `at`, and records that. `entry` is pinned. Returns why it does
 * not count; 0 if it does. */
static __always_inline int place_at(struct walk *walk, struct connection *connection, const struct front *front,
				    const struct entry *entry, __u64 at)
{
	__u64 head = connection->head;
	__u32 number = head;
	struct record *record = &connection->records[number & (RECORDS - 1)];
	__u32 crc_at = walk->at + fpdu_len(front->front_len + front->len - LENGTH_LEN) - CRC_LEN, what = 0;

	/* FPDUs with payload are at least as long as the fronts of untagged ones. */
	if (skb_load(walk->skb, walk->at, record->front, UNTAGGED_FRONT) ||
	    skb_load(walk->skb, crc_at, &record->crc, CRC_LEN))
		return NO_PAYLOAD;
	record->seq = walk->seq;
	record->len = front->len;
	record->at = at;
	record->opening = entry->opening;
	/* Whoever looks from here on knows that these octets change. */
	__sync_lock_test_and_set(&connection->head, head + 1);
	if (copy(walk->skb, walk->at + front->front_len, at, front->len))
		what = RECORD_PLACED | (walk->behind ? RECORD_BEHIND : 0);
	__sync_lock_test_and_set(&record->stamp, (number + 1) << 3 | what);
	if (!what)
		return NOT_WHOLE;
	connection->fpdus++;
	connection->octets += front->len;
	if (walk->behind)
		connection->octets_behind += front->len;
	return 0;
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
		why = place_at(walk, connection, front, entry, entry->start + (target.to - entry->base));
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

#endif
