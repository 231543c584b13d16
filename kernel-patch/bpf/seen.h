/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Which octets of the stream have come by: once, again, or not at all. Of those that have come once
 * TCP has what has been placed, if it has them at all: there was no other segment to take them
 * from. Of those that have come again it may have others (IP, TCP or a filter has dropped the
 * segment that was placed), and those that have not come it has by another way. Segments that
 * follow each other need no words; user space is told of all others: of octets that come again, and
 * of holes.
 *
 * User space is told of a segment before TCP gets it, and before anything of it is recorded.
 */
#ifndef RDDP_SEEN_H
#define RDDP_SEEN_H

/* Processors that may have segments of one connection at the same time, with which this one gets
 * into each other's way. */
#define TRIES 4

/* Tells user space that it cannot be told: any octets may have come again, or not at all. */
static __always_inline void tell_nothing(struct connection *connection)
{
	__sync_fetch_and_add(&connection->told_head, TOLD + 1);
}

/* Tells user space of the octets between a segment that begins at `seq` and `other`: from `seq` up
 * to `other` they come again, or from `other` up to `seq` there is a hole. */
static __always_inline void tell(struct connection *connection, __u32 seq, __u32 other)
{
	__u64 number = __sync_fetch_and_add(&connection->told_head, 1);

	if (number - *(volatile __u64 *)&connection->told_tail < TOLD)
		__sync_lock_test_and_set(&connection->told[number & (TOLD - 1)], (__u64)seq << 32 | other);
	else
		tell_nothing(connection);
}

/* Notes octets that TCP takes in no order that could be known: those that have come before come
 * again. */
static __always_inline void note_again(struct connection *connection, __u32 seq, __u32 end)
{
	__u32 top = *(volatile __u32 *)&connection->top;

	if (is_before(seq, top))
		tell(connection, seq, is_before(end, top) ? end : top);
}

/* Notes the octets of a segment that has come by, in the window or not far behind it. */
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
			if (seq != top)
				tell(connection, seq, top);
			return;
		}
	}
	tell_nothing(connection);
}

#endif
