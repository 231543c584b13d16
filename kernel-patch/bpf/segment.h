/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The decisions that need no kernel: sequence numbers, and what the octets of a segment say.
 * `src/segment.rs` has the same in Rust, and the tests hold one against the other.
 */
#ifndef RDDP_SEGMENT_H
#define RDDP_SEGMENT_H

/* Octets in front of the payload of an FPDU with a Tagged DDP Segment (RFC 5044 §4.1, RFC 5041
 * §4.2): length, control octets, STag, Tagged Offset. */
#define TAGGED_FRONT 16u
#define TAGGED_HEADER 14u
#define CRC_LEN 4u
#define LENGTH_LEN 2u
/* FPDUs that are looked for in one segment. */
#define MOST_FPDUS 64u

static __always_inline __u32 octets16(const __u8 *from)
{
	return (__u32)from[0] << 8 | from[1];
}

static __always_inline __u32 octets32(const __u8 *from)
{
	return octets16(from) << 16 | octets16(from + 2);
}

static __always_inline __u64 octets64(const __u8 *from)
{
	return (__u64)octets32(from) << 32 | octets32(from + 4);
}

/* Says whether sequence number `a` is before `b` (RFC 9293 §3.4). */
static __always_inline int is_before(__u32 a, __u32 b)
{
	return (__s32)(a - b) < 0;
}

/* Octets of an FPDU with that ULPDU_Length: length field, ULPDU, pad and CRC (RFC 5044 §4.1). */
static __always_inline __u32 fpdu_len(__u32 ulpdu_len)
{
	return ((LENGTH_LEN + ulpdu_len + 3) & ~3u) + CRC_LEN;
}

/* The front of an FPDU that carries a segment of an RDMA Write. */
struct write_front {
	__u64 to;
	__u32 stag;
	__u32 len; /* of the payload */
	__u32 is_last;
};

/* Says whether these octets begin an FPDU with a segment of an RDMA Write that has payload: Tagged,
 * DDP version 1 (RFC 5041 §4.1), RDMAP version 1, opcode 0 (RFC 5040 §4.1). */
static __always_inline int is_write(const __u8 *front, struct write_front *write)
{
	__u32 ulpdu_len = octets16(front);

	if (ulpdu_len <= TAGGED_HEADER)
		return 0;
	if ((front[2] & 0x83) != 0x81 || (front[3] & 0xcf) != 0x40)
		return 0;
	write->len = ulpdu_len - TAGGED_HEADER;
	write->stag = octets32(front + 4);
	write->to = octets64(front + 8);
	write->is_last = front[2] & 0x40;
	return 1;
}

/* Says whether `len` octets from `to` on lie in the `size` octets from `base` on, none of them
 * behind octet 2^64 - 1 (RFC 5041 §7.1). */
static __always_inline int is_inside(__u64 base, __u64 size, __u64 to, __u32 len)
{
	return to >= base && len <= size && to - base <= size - len;
}

#endif
