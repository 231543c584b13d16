/* Names for programs to print. */
#include "raw.h"

#define SAYS(text, wanted) IS(strcmp(text, wanted), 0)

/* The names of what a connection tells that ends with a Terminate: a Read behind the region's end
 * (RFC 5040, section 4.8). */
static void of_a_refused_read(void) {
    struct pair *pair = connected(0);
    struct end *active = &pair->active;
    struct ddp_sge into = piece(active, 0, 8);
    struct ddp_work read = {.op = DDP_READ, .list = &into, .count = 1, .stag = pair->passive.stag};
    read.to = (uintptr_t)pair->passive.memory + SIZE;
    IS(post(active, read), 1);
    struct ddp_event refused = event(active, DDP_READ, EREMOTEIO);
    SAYS(ddp_kind_name(refused.kind), "RDMA Read");
    SAYS(ddp_strerror(refused.kind, refused.status), "the peer refused the Read or atomic");
    struct ddp_event end = event(active, DDP_CLOSED, EREMOTEIO);
    SAYS(ddp_kind_name(end.kind), "closed");
    SAYS(ddp_strerror(end.kind, end.status), "the peer sent a Terminate");
    IS(end.terminate, 0x0101);
    SAYS(ddp_terminate_name(end.terminate), "RDMAP remote protection error: base or bounds violation");
}

void names(void) {
    of_a_refused_read();
    SAYS(ddp_kind_name(DDP_CONNECTED), "connected");
    SAYS(ddp_kind_name(99), "unknown event");
    SAYS(ddp_strerror(DDP_SEND, 0), "success");
    SAYS(ddp_strerror(DDP_CLOSED, EHOSTUNREACH), strerror(EHOSTUNREACH));
    IS(strlen(ddp_strerror(99, -1)) > 0, 1);
    SAYS(ddp_terminate_name(0x1203), "DDP untagged buffer error: invalid MSN, MSN range is not valid");
    SAYS(ddp_terminate_name(0x2002), "MPA error: MPA CRC error");
    SAYS(ddp_terminate_name(-1), "none");
    IS(ddp_version()[0] >= '0' && ddp_version()[0] <= '9' && strchr(ddp_version(), '.') != NULL, 1);
}
