/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The decisions that need no kernel: sequence numbers, and what the octets of a segment say.
 * `src/segment.rs` has the same in Rust, and the tests hold one against the other.
 */
#ifndef RDDP_SEGMENT_H
#define RDDP_SEGMENT_H

/* Octets in front of the payload of an FPDU (RFC 5044 §4.1): the length, and a Tagged DDP header
 * (RFC 5041 §4.2: control octets, STag, Tagged Offset) or an Untagged one (§4.3: control octets, a
 * word of the ULP, QN, MSN, MO). */
#define TAGGED_FRONT 16u
#define UNTAGGED_FRONT 20u
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

/* What an FPDU carries. */
enum kind {
	NOTHING,  /* no payload for registered memory */
	WRITE,    /* a segment of an RDMA Write */
	RESPONSE, /* of an RDMA Read Response */
	SEND,     /* of a Send of any type */
};

/* The front of an FPDU. */
struct front {
	__u64 to;       /* of what is tagged */
	__u32 stag;
	__u32 msn;      /* of a Send */
	__u32 mo;
	__u32 len;      /* of the payload */
	__u32 front_len;
	__u32 is_last;
};

static __always_inline enum kind read_tagged(const __u8 *octets, struct front *front)
{
	front->stag = octets32(octets + 4);
	front->to = octets64(octets + 8);
	switch (octets[3] & 0xcf) {
	case 0x40:
		return WRITE;
	case 0x42:
		return RESPONSE;
	default:
		return NOTHING;
	}
}

static __always_inline enum kind read_untagged(const __u8 *octets, struct front *front)
{
	__u8 type = octets[3] & 0xcf;

	front->msn = octets32(octets + 12);
	front->mo = octets32(octets + 16);
	return type >= 0x43 && type <= 0x46 && !octets32(octets + 8) ? SEND : NOTHING;
}

/* Says what these octets, UNTAGGED_FRONT of them, begin: of DDP version 1 (RFC 5041 §4.1), RDMAP
 * version 1 and an opcode of RFC 5040 §4.1, with payload. Reserved bits are not looked at. */
static __always_inline enum kind read_front(const __u8 *octets, struct front *front)
{
	__u32 ulpdu_len = octets16(octets), is_tagged = octets[2] & 0x80;

	front->front_len = is_tagged ? TAGGED_FRONT : UNTAGGED_FRONT;
	if ((octets[2] & 3) != 1 || ulpdu_len + LENGTH_LEN <= front->front_len)
		return NOTHING;
	front->len = ulpdu_len + LENGTH_LEN - front->front_len;
	front->is_last = octets[2] & 0x40;
	return is_tagged ? read_tagged(octets, front) : read_untagged(octets, front);
}

/* Says whether `len` octets from `to` on lie in the `size` octets from `base` on, none of them
 * behind octet 2^64 - 1 (RFC 5041 §7.1). */
static __always_inline int is_inside(__u64 base, __u64 size, __u64 to, __u32 len)
{
	return to >= base && len <= size && to - base <= size - len;
}

#endif
