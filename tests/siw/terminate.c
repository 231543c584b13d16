/* Finds Terminates in the kernel's log: siw does not report those that it received to its user. */

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"

static int log_file = -1;

/* watch_terminates: only later lines of the log count. */
void watch_terminates(void)
{
	log_file = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	if (log_file < 0)
		fail("cannot open /dev/kmsg");
	lseek(log_file, 0, SEEK_END);
}

/*
 * received_terminate: returns the code, as 0xLECC, of the first Terminate since; -1 if none came in
 * that time. siw takes the low half of the first octet for the layer, and sends it there; RFC 5040
 * section 4.8 has it in the high half.
 */
int received_terminate(bool rfc_order, int milliseconds)
{
	static const char known[] = "siw: got TERMINATE. ";
	char record[1024];

	for (;;) {
		ssize_t length = read(log_file, record, sizeof record - 1);
		unsigned layer, type, code;
		const char *text;

		if (length < 0) {
			struct pollfd fd = { .fd = log_file, .events = POLLIN };

			if (poll(&fd, 1, milliseconds) <= 0)
				return -1;
			continue;
		}
		record[length] = 0;
		text = strstr(record, known);
		if (text && sscanf(text + strlen(known), "layer %u, type %u, code %u", &layer, &type, &code) == 3)
			return rfc_order ? type << 12 | layer << 8 | code : layer << 12 | type << 8 | code;
	}
}
