/*
 * The system calls of rddp's Sends and no more: what they can reach without the protocol above
 * them (see slices.h).
 *
 *   fpdus server ADDRESS LEN             LEN: octets that the longest FPDU has with its header and
 *   fpdus client ADDRESS PORT CONTROL LEN    CRC, at most
 *
 * A message is cut into FPDUs. Its sender writes as many as one call may take, each a header, a
 * piece of the message where it lies and a CRC, next to which the next header lies: both are one
 * piece. Its receiver has a call for each FPDU, which takes the rest of the piece to its place, the
 * CRC and the next header. CRCs are zeros. Both ends poll.
 */
#include "slices.h"

#include <fcntl.h>
#include <sys/uio.h>

/* Octets of a header: a length, and DDP's and RDMAP's part of an Untagged message. */
#define HEADER 20
#define TRAILER 4
/* Octets of a call, and its pieces of memory, as `train.rs` limits them. */
#define CALL ((size_t)1 << 20)
#define PIECES 100

/* What lies between two pieces of messages: the CRC of one, and the header of the next. */
struct between {
    char crc[TRAILER];
    struct {
        uint32_t len, is_last;
        char rest[HEADER - 8];
    } header;
};

static int stream;
static size_t most_payload;
static struct between between[PIECES];
/* Place in the present message of the FPDU that is being received, what has arrived of it, and of
 * what is behind it. */
static size_t offset, got, behind = TRAILER;
static struct between arrived;

/* Returns whether a call has moved octets; their number is `*count`. */
static int moved(ssize_t result, size_t *count, const char *what)
{
    if (result < 0 && errno != EAGAIN)
        check(-errno, what);
    if (result == 0)
        check(-EPIPE, what);
    *count = result < 0 ? 0 : (size_t)result;
    return result > 0;
}

/* Adds octets to a call, of which `*skip` have been sent before. */
static int add(struct iovec *vector, void *octets, size_t len, size_t *skip, size_t *total)
{
    size_t sent = *skip < len ? *skip : len;
    *skip -= sent;
    *total += len - sent;
    *vector = (struct iovec){(char *)octets + sent, len - sent};
    return sent < len;
}

/* Makes the vectors of the FPDUs from `at` octets of the stream on; returns their number. */
static int gather(size_t size, size_t at, struct iovec *vectors)
{
    size_t whole = HEADER + most_payload + TRAILER, first = at / whole, skip = at % whole, total = 0;
    int count = 0, number = 0;
    for (size_t from = first * most_payload; from < size && total < CALL && number < PIECES - 1; number++) {
        size_t len = size - from < most_payload ? size - from : most_payload;
        struct between *this = &between[number];
        this->header.len = (uint32_t)len;
        this->header.is_last = from + len == size;
        /* The first header has no CRC in front of it. */
        char *begin = number ? (char *)this : (char *)&this->header;
        count += add(&vectors[count], begin, (char *)(this + 1) - begin, &skip, &total);
        count += add(&vectors[count], out + from, len, &skip, &total);
        from += len;
    }
    count += add(&vectors[count], between[number].crc, TRAILER, &skip, &total);
    return count;
}

static size_t octets_of(size_t size)
{
    return size + (size + most_payload - 1) / most_payload * (HEADER + TRAILER);
}

static void send_message(size_t size)
{
    struct iovec vectors[2 * PIECES + 1];
    for (size_t at = 0, taken; at < octets_of(size); at += taken) {
        struct msghdr message = {.msg_iov = vectors, .msg_iovlen = gather(size, at, vectors)};
        moved(sendmsg(stream, &message, MSG_NOSIGNAL), &taken, "sendmsg");
    }
}

/* Receives by one call; returns whether a message is complete with it. */
static int receive(void)
{
    size_t len = behind == sizeof arrived ? arrived.header.len : 0, count;
    if (len == 0) {
        if (moved(recv(stream, (char *)&arrived + behind, sizeof arrived - behind, 0), &count, "recv"))
            behind += count;
        return 0;
    }
    struct between next;
    struct iovec vectors[2] = {{in + offset + got, len - got}, {(char *)&next, sizeof next}};
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = 2};
    if (!moved(recvmsg(stream, &message, 0), &count, "recvmsg"))
        return 0;
    got += count;
    if (got < len + TRAILER && got > len) {
        /* A CRC in part, which is rare: the rest is waited for. */
        size_t missing = len + TRAILER - got;
        while (missing > 0)
            if (moved(recv(stream, (char *)&next + TRAILER - missing, missing, 0), &count, "recv"))
                missing -= count;
        got = len + TRAILER;
    }
    if (got < len + TRAILER)
        return 0;
    int is_last = arrived.header.is_last;
    offset = is_last ? 0 : offset + len;
    behind = got - len;
    memcpy(&arrived, &next, behind);
    got = 0;
    return is_last;
}

static uint64_t send_for(size_t size, uint64_t ms)
{
    uint64_t end = now() + ms * 1000000, messages = 0;
    for (; now() < end; messages++)
        send_message(size);
    return messages;
}

static void ping(size_t size)
{
    send_message(size);
    while (!receive())
        ;
}

static void serve(const struct command *command)
{
    uint64_t received = 0, total = UINT64_MAX, turns = 0;
    while (received < total) {
        if (receive()) {
            received++;
            if (command->is_latency)
                send_message(command->size);
        } else if (total == UINT64_MAX && ++turns % 16 == 0 && !heard_total(&total)) {
            total = UINT64_MAX;
        }
    }
}

static void use(int fd, const char *fpdu)
{
    most_payload = (size_t)atoi(fpdu) - HEADER - TRAILER;
    stream = fd;
    check(fcntl(fd, F_SETFL, O_NONBLOCK), "fcntl");
}

int main(int argc, char **argv)
{
    make_memory();
    if (argc == 4 && strcmp(argv[1], "server") == 0) {
        int port, control_port;
        int listener = listen_on(argv[2], &port), control_listener = listen_on(argv[2], &control_port);
        printf("%d %d\n", port, control_port);
        fflush(stdout);
        control = accept_one(control_listener);
        use(accept_one(listener), argv[3]);
        serve_slices();
        return 0;
    }
    if (argc == 6 && strcmp(argv[1], "client") == 0) {
        control = connect_to(argv[2], argv[4]);
        use(connect_to(argv[2], argv[3]), argv[5]);
        return ask_slices();
    }
    fprintf(stderr, "usage: fpdus server ADDRESS LEN | fpdus client ADDRESS PORT CONTROL-PORT LEN\n");
    return 2;
}
