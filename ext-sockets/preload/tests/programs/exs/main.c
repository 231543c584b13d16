/* The ES-API as rddp/exs.h tells it. Arguments: "caller" or "threads", as RDDP_PROGRESS says; then
 * "ddp" for sockets in DDPMODE, "sdp" for those that speak SDP; then
 * "lent" for sends whose memory the peer reads. */
#include "exs_test.h"

#include <dirent.h>

static int ddpmode;

int tcp(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (ddpmode)
        IS(setsockopt(fd, SOL_DDP, DDPMODE, &ddpmode, sizeof ddpmode), 0);
    return fd;
}

int listening(struct sockaddr_in *addr) {
    int fd = tcp();
    listen_somewhere(fd, addr);
    return fd;
}

void connection(int ends[2]) {
    struct sockaddr_in addr;
    int listener = listening(&addr);
    ends[0] = tcp();
    IS(connect(ends[0], (void *)&addr, sizeof addr), 0);
    ends[1] = accept(listener, NULL, NULL);
    IS(ends[1] >= 0, 1);
    IS(close(listener), 0);
}

void send_buffer(int fd, int octets) { IS(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &octets, sizeof octets), 0); }

unsigned char octet_at(size_t place) { return (unsigned char)(place * 2654435761u >> 13); }

void fill(unsigned char *octets, size_t from, size_t count) {
    for (size_t i = 0; i < count; i++)
        octets[i] = octet_at(from + i);
}

int is_filled(const unsigned char *octets, size_t from, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (octets[i] != octet_at(from + i))
            return 0;
    return 1;
}

exs_event_t next_at(int line, exs_qhandle_t queue, int type, int error, size_t length, uintptr_t handle) {
    exs_event_t event = {0};
    const char *of = "next event";
    is_so(of, line, "their number", exs_qdequeue(queue, &event, 1, LONG_TIME), 1);
    is_so(of, line, "its type", event.exs_evt_type, type);
    is_so(of, line, "its errno", event.exs_evt_errno, error);
    is_so(of, line, "its handle", (long)event.exs_evt_ahandle, (long)handle);
    is_so(of, line, "its length", event.exs_evt_union.exs_evt_xfer.exs_xfer_length, length);
    return event;
}

int no_events(exs_qhandle_t queue) {
    exs_event_t event;
    return exs_qdequeue(queue, &event, 1, NO_TIME) == 0;
}

int threads(void) {
    int count = -2; /* . and .. */
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks) != NULL)
        count++;
    closedir(tasks);
    return count;
}

/* There is one pair of threads whatever the number of sockets, or none. The thread that serves
 * closed sockets ends by itself. */
static void threads_are(int wanted) {
#ifdef __SANITIZE_THREAD__ /* has one of its own, at times */
    (void)wanted;
#else
    for (int waited = 0; threads() > wanted && waited < 5000; waited++)
        usleep(1000);
    IS(threads(), wanted);
#endif
}

int main(int argc, char **argv) {
    int by_threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    if (argc > 2 && strcmp(argv[2], "tcp") != 0)
        ddpmode = strcmp(argv[2], "sdp") == 0 ? DDPMODE_SDP : 1;
    alarm(120); /* a hang is a failure */
    if (argc > 3) {
        lending();
        puts("all is so");
        return 0;
    }
    arguments();
    queues();
    memory();
    many();
    netperf();
    files();
    connecting();
    polling();
    cancelling();
    closing();
    ends();
    timeouts();
    forking();
    interrupted();
    threads_are(by_threads ? 3 : 1);
    descriptor();
    everything();
    puts("all is so");
    return 0;
}
