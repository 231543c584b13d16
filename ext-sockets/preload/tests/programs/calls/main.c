/* Makes every call that librddp_sockets.so sees first, with good and bad arguments, on descriptors
 * that are not in DDPMODE.
 *
 * Prints one line a call: its name, its result, its errno, and what it gave. Nothing printed
 * differs from run to run, so that the lines with and without the library can be compared; what the
 * kernel chooses (ports, cookies) is left out.
 */
#include "calls.h"

static int in_ddpmode;
void *volatile BAD = (void *)8;
char buf[4096];
struct iovec pieces[3] = {{buf, 2}, {buf + 100, 0}, {buf + 200, 5}};
struct iovec bad_pieces[1] = {{(void *)8, 5}};

void show(const char *what, const void *octets, size_t count) {
    printf("  %s:", what);
    for (size_t i = 0; i < count; i++)
        printf(" %02x", ((const unsigned char *)octets)[i]);
    printf("\n");
}

void clear(void) { memset(buf, '.', sizeof buf); }

struct sockaddr_in loopback(int port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return addr;
}

void connection(int ends[2]) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = loopback(0);
    socklen_t len = sizeof addr;
    if (bind(listener, (void *)&addr, len) || listen(listener, 1) ||
        getsockname(listener, (void *)&addr, &len))
        abort();
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&addr, len))
        abort();
    ends[1] = accept(listener, NULL, NULL);
    if (ends[1] < 0)
        abort();
    close(listener);
}

void exchange(int ends[2]) {
    for (int i = 0; i < 2; i++)
        if (write(ends[i], "x", 1) != 1 || recv(ends[!i], buf, 1, MSG_WAITALL) != 1)
            abort();
}

void arrived(int fd) {
    struct pollfd one = {fd, POLLIN, 0};
    if (poll(&one, 1, in_ddpmode ? 200 : 10000) != 1 && !in_ddpmode)
        abort();
}

/* Results of calls made before the constructors of any library had run. */
static long early_results[6];

static void early(int argc, char **argv, char **envp) {
    (void)argc, (void)argv, (void)envp;
    int ends[2];
    early_results[0] = pipe(ends);
    early_results[1] = write(ends[1], "early", 5);
    early_results[2] = read(ends[0], buf, 9);
    early_results[3] = fcntl(ends[0], F_GETFL);
    early_results[4] = close(ends[0]) + close(ends[1]);
    early_results[5] = close(ends[0]) == -1 ? errno : 0;
}

__attribute__((section(".preinit_array"), used)) static void (*const run_early)(int, char **, char **) = early;

/* With an argument all sockets are in DDPMODE, where a pointer to nowhere is found out only if it
 * is null. */
int main(int argc, char **argv) {
    (void)argv;
    in_ddpmode = argc > 1;
    if (in_ddpmode) {
        BAD = NULL;
        bad_pieces[0].iov_base = NULL;
    }
    if (write(1, "", 0) != 0)
        return 1;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    for (unsigned i = 0; i < sizeof early_results / sizeof *early_results; i++)
        printf("early %u: %ld\n", i, early_results[i]);
    umask(0);
    making();
    connecting();
    moving();
    fortified();
    printing();
    within_kernel();
    numbers_in_a_child();
    options();
    waiting();
    ends_of_streams();
    numbered();
    children();
    return 0;
}
