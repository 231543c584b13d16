/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Which octets of the stream have come by once. Of those TCP has what has been placed, if it has
 * them at all: it took them from that segment, since there was no other. Of those that have come by
 * again it may have others (IP, TCP or a filter has dropped the segment that was placed), and user
 * space looks before it takes their placement for done.
 *
 * Whoever tells of octets does so before TCP gets them, and before anything of them is recorded.
 */
#ifndef RDDP_AGAIN_H
#define RDDP_AGAIN_H

/* Processors that may have segments of one connection at the same time, with which this one gets
 * into each other's way. */
#define TRIES 4

/* Tells user space that octets may have come by more than once: from `seq` up to `end`. */
static __always_inline void tell(struct connection *connection, __u32 seq, __u32 end)
{
	__u64 number = __sync_fetch_and_add(&connection->again_head, 1);

	/* If there is no space, the number alone says that something is missing. */
	if (number - *(volatile __u64 *)&connection->again_tail < AGAIN)
		__sync_lock_test_and_set(&connection->again[number & (AGAIN - 1)], (__u64)seq << 32 | end);
}

/* Tells user space that any octets may have come by more than once. */
static __always_inline void note_unknown(struct connection *connection)
{
	__sync_fetch_and_add(&connection->again_head, AGAIN + 1);
}

/* Notes octets that TCP takes from elsewhere, or may take: those that have come by before have come
 * by again. */
static __always_inline void note_again(struct connection *connection, __u32 seq, __u32 end)
{
	__u32 top = *(volatile __u32 *)&connection->top;

	if (is_before(seq, top))
		tell(connection, seq, is_before(end, top) ? end : top);
}

/* Notes the octets of a segment that has come by. */
static __always_inline void note(struct connection *connection, __u32 seq, __u32 end)
{
	__u32 top, number;

	for (number = 0; number < TRIES; number++) {
		top = *(volatile __u32 *)&connection->top;
		if (!is_before(top, end)) {
			tell(connection, seq, end);
			return;
		}
		if (__sync_val_compare_and_swap(&connection->top, top, end) == top) {
			if (is_before(seq, top))
				tell(connection, seq, top);
			return;
		}
	}
	note_unknown(connection);
}

#endif
