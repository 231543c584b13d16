/* Memory that the library allocates, and placement in the kernel where nobody has named an
 * interface: kernel.c has what happens where one is named. */
#include "raw.h"

#define RIGHTS (DDP_LOCAL_WRITE | DDP_REMOTE_WRITE)

void allocated(void) {
    void *begin = NULL;
    uint32_t stag = 0;
    FAILS(ddp_allocate(0, 0, RIGHTS, &begin, &stag), EINVAL);
    FAILS(ddp_allocate(99, SIZE, RIGHTS, &begin, &stag), EINVAL);
    FAILS(ddp_allocate(0, SIZE, 2048, &begin, &stag), EINVAL);
    FAILS(ddp_allocate(0, SIZE, DDP_REMOTE_WRITE, &begin, &stag), EINVAL);
    FAILS(ddp_allocate(0, SIZE, RIGHTS, NULL, &stag), EFAULT);
    FAILS(ddp_allocate(0, SIZE, RIGHTS, &begin, NULL), EFAULT);
    FAILS(ddp_allocate(0, (size_t)1 << 60, RIGHTS, &begin, &stag), ENOMEM);
    IS(begin == NULL && stag == 0, 1);

    struct pair *pair = connected(0);
    int zero_based[] = {0, DDP_ZERO_BASED};
    for (int i = 0; i < 2; i++) {
        IS(ddp_allocate(0, SIZE, RIGHTS | DDP_POPULATE | zero_based[i], &begin, &stag), 0);
        char *octets = begin;
        IS(octets[0] == 0 && octets[SIZE - 1] == 0, 1);
        uint64_t to = i == 0 ? (uintptr_t)begin : 0;
        struct ddp_sge hello = {.to = (uintptr_t)"hello", .length = 5};
        struct ddp_work write = {.op = DDP_WRITE, .flags = DDP_INLINE | DDP_QUIET, .list = &hello, .count = 1,
                                 .stag = stag, .to = to + 7};
        IS(receive(&pair->passive, 0, 8, 1), 1);
        IS(post(&pair->active, write), 1);
        IS(post(&pair->active, (struct ddp_work){.op = DDP_SEND}), 1);
        event(&pair->active, DDP_SEND, 0);
        event(&pair->passive, DDP_RECEIVE, 0);
        IS(memcmp(octets + 7, "hello", 5), 0);
        IS(ddp_deregister(stag), 0);
        FAILS(ddp_deregister(stag), EINVAL);
    }
    disconnected(pair);
}

void placement(void) {
    void *begin;
    uint32_t stag;
    struct ddp_placement_info info;
    socklen_t len = sizeof info;
    FAILS(ddp_allocate(0, SIZE, RIGHTS | DDP_KERNEL, &begin, &stag), EOPNOTSUPP);
    FAILS(ddp_register(0, &info, sizeof info, RIGHTS | DDP_KERNEL, &stag), EINVAL);
    int fd = raw_socket();
    FAILS(set(fd, DDP_PLACEMENT, DDP_PLACEMENT_AUTO), EOPNOTSUPP);
    FAILS(set(fd, DDP_PLACEMENT, DDP_PLACEMENT_KERNEL), EOPNOTSUPP);
    FAILS(set(fd, DDP_PLACEMENT, 3), EINVAL);
    FAILS(set(fd, DDP_PLACEMENT_INFO, 0), ENOPROTOOPT);
    /* What the environment asks for holds for sockets that do not choose, whether or not it can be
     * had. */
    IS(get(fd, DDP_PLACEMENT), getenv("RDDP_PLACEMENT") == NULL ? DDP_PLACEMENT_USER : DDP_PLACEMENT_AUTO);
    IS(set(fd, DDP_PLACEMENT, DDP_PLACEMENT_USER), 0);
    IS(get(fd, DDP_PLACEMENT), DDP_PLACEMENT_USER);
    IS(close(fd), 0);
    struct pair *pair = connected(0);
    FAILS(set(pair->active.fd, DDP_PLACEMENT, DDP_PLACEMENT_USER), EINVAL);
    memset(&info, 1, sizeof info);
    IS(getsockopt(pair->passive.fd, SOL_DDP, DDP_PLACEMENT_INFO, &info, &len), 0);
    IS(len, sizeof info);
    IS(memcmp(&info, &(struct ddp_placement_info){0}, sizeof info), 0);
    disconnected(pair);
}
