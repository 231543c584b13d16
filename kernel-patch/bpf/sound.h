/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Checksums: whether a segment is what was sent. */
#ifndef RDDP_SOUND_H
#define RDDP_SOUND_H

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

#endif
