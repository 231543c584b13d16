/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* CRC32c of an FPDU (RFC 5044 §4.4), of eight octets at a time by tables. */
#ifndef RDDP_CRC_H
#define RDDP_CRC_H

#define CRC_WORD 8u
#define CRC_BLOCK (8 * CRC_WORD)
#define MOST_PAYLOAD 65536u

/* A CRC in progress: over `octets`, which are in a piece. */
struct crc {
	const struct crc_tables *tables;
	const __u8 *octets;
	__u32 value;
};

static __always_inline __u32 crc_octet(const struct crc_tables *tables, __u32 crc, __u8 octet)
{
	__u32 index = crc ^ octet;

	FORGET(index);
	return tables->of[index & 0xff][0] ^ crc >> 8;
}

static __always_inline __u32 crc_word(const struct crc_tables *tables, __u32 crc, __u64 word)
{
	word ^= crc;
	return tables->of[word & 0xff][7] ^ tables->of[word >> 8 & 0xff][6] ^ tables->of[word >> 16 & 0xff][5] ^
	       tables->of[word >> 24 & 0xff][4] ^ tables->of[word >> 32 & 0xff][3] ^
	       tables->of[word >> 40 & 0xff][2] ^ tables->of[word >> 48 & 0xff][1] ^ tables->of[word >> 56][0];
}

static int crc_block(__u32 index, struct crc *crc)
{
	const struct crc_tables *tables = crc->tables;
	__u32 number, value = crc->value;
	const __u64 *words;

	FORGET(index);
	index &= MOST_PAYLOAD / CRC_BLOCK - 1;
	words = (const void *)crc->octets + index * CRC_BLOCK;
#pragma unroll
	for (number = 0; number < CRC_BLOCK / CRC_WORD; number++) {
		value = crc_word(tables, value, words[number]);
		/* One word behind the other: for all at once there is no stack. */
		asm volatile("" : "+r"(value) : : "memory");
	}
	crc->value = value;
	return 0;
}

static int crc_rest(__u32 index, struct crc *crc)
{
	FORGET(index);
	index &= CRC_BLOCK - 1;
	crc->value = crc_octet(crc->tables, crc->value, crc->octets[index]);
	return 0;
}

/* Says whether the CRC of an FPDU fits its front, the payload in its place, and its pad. `tail` are
 * its last eight octets. */
static __always_inline int fits_crc(const __u8 *octets, const struct front *front, const __u8 *fpdu_front,
				    const __u8 *tail)
{
	__u32 zero = 0, number, pad = -(front->front_len + front->len) & 3;
	struct crc crc = {.octets = octets, .value = ~0u};

	crc.tables = map_lookup(&crc_tables, &zero);
	if (!crc.tables)
		return 0;
	for (number = 0; number < TAGGED_FRONT; number++)
		crc.value = crc_octet(crc.tables, crc.value, fpdu_front[number]);
	for (; number < UNTAGGED_FRONT; number++)
		if (number < front->front_len)
			crc.value = crc_octet(crc.tables, crc.value, fpdu_front[number]);
	loop(front->len / CRC_BLOCK, crc_block, &crc, 0);
	crc.octets += front->len / CRC_BLOCK * CRC_BLOCK & (MOST_PAYLOAD - 1);
	loop(front->len % CRC_BLOCK, crc_rest, &crc, 0);
	for (number = 1; number < CRC_LEN; number++)
		if (number >= CRC_LEN - pad)
			crc.value = crc_octet(crc.tables, crc.value, tail[number]);
	return ~crc.value == *(const __u32 *)(tail + CRC_LEN);
}

#endif
