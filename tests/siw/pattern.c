/* The data of SCENARIOS.md: every octet follows from seed, end, item and position. */

#include <string.h>

#include "peer.h"

static uint64_t word(uint64_t seed, enum end end, uint32_t item, uint32_t number)
{
	uint64_t v = seed * 0x9E3779B97F4A7C15 + ((uint64_t)end << 62 | (uint64_t)item << 32 | number);

	v = (v ^ v >> 30) * 0xBF58476D1CE4E5B9;
	v = (v ^ v >> 27) * 0x94D049BB133111EB;
	return v ^ v >> 31;
}

static uint32_t piece(uint8_t *to, uint32_t length, uint64_t value)
{
	uint32_t octets = length < 8 ? length : 8;

	for (uint32_t p = 0; p < octets; p++)
		to[p] = value >> 8 * p;
	return octets;
}

void put_pattern(uint8_t *to, uint32_t length, uint64_t seed, enum end end, uint32_t item)
{
	for (uint32_t p = 0; p < length; p += 8)
		piece(to + p, length - p, word(seed, end, item, p / 8));
}

bool is_pattern(const uint8_t *data, uint32_t length, uint64_t seed, enum end end, uint32_t item)
{
	uint8_t wanted[8];

	for (uint32_t p = 0; p < length; p += 8) {
		uint32_t octets = piece(wanted, length - p, word(seed, end, item, p / 8));

		if (memcmp(data + p, wanted, octets))
			return false;
	}
	return true;
}

bool is_fill(const uint8_t *data, uint64_t length)
{
	for (uint64_t p = 0; p < length; p++)
		if (data[p] != FILL)
			return false;
	return true;
}
