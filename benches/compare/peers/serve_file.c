/*
 * Serves files over plain TCP, as the baseline of benches/compare/files --ways:
 *
 *   serve_file server ADDRESS read|crc|sendfile FOLDER     prints its port; serves one by one
 *   serve_file client ADDRESS PORT read|crc|sendfile NAME DESTINATION
 *
 * A connection carries one file: its name and a zero go there; its length, its octets and, with
 * `crc`, the CRC-32C of each piece of 512 KiB come back. `read` and `crc` read pieces into memory
 * and write them to the socket; the client writes what has come to the destination.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <nmmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)512 << 10)

static char piece[PIECE];

static long check(long result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

static uint32_t crc32c(const char *octets, size_t len)
{
    uint64_t crc = ~0u;

    for (; len >= 8; octets += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, octets, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    while (len--)
        crc = _mm_crc32_u8(crc, *octets++);
    return ~(uint32_t)crc;
}

/* Returns false at the end of the connection. */
static int receive(int fd, void *to, size_t len)
{
    return check(recv(fd, to, len, MSG_WAITALL), "recv") == (ssize_t)len;
}

static void send_all(int fd, const char *from, size_t len, int flags)
{
    while (len) {
        size_t sent = check(send(fd, from, len, MSG_NOSIGNAL | flags), "send");
        from += sent;
        len -= sent;
    }
}

static void serve(int fd, const char *way)
{
    char name[256];
    size_t len = 0;
    struct stat stat;
    uint64_t left;
    int file;

    do {
        if (len == sizeof name || !receive(fd, &name[len], 1))
            return;
    } while (name[len++]);
    file = check(open(name, O_RDONLY), name);
    check(fstat(file, &stat), "fstat");
    left = stat.st_size;
    send_all(fd, (char *)&left, sizeof left, MSG_MORE);
    while (left) {
        size_t now = left < PIECE ? left : PIECE;
        if (!strcmp(way, "sendfile")) {
            now = check(sendfile(fd, file, NULL, left), "sendfile");
        } else {
            now = check(read(file, piece, now), "read");
            send_all(fd, piece, now, 0);
        }
        if (!now)
            exit(1);
        if (!strcmp(way, "crc")) {
            uint32_t crc = crc32c(piece, now);
            send_all(fd, (char *)&crc, sizeof crc, 0);
        }
        left -= now;
    }
    close(file);
}

static void get(int fd, const char *way, const char *name, const char *destination)
{
    int file = check(open(destination, O_WRONLY | O_CREAT | O_TRUNC, 0644), destination);
    uint64_t left;

    send_all(fd, name, strlen(name) + 1, 0);
    if (!receive(fd, &left, sizeof left))
        exit(1);
    while (left) {
        size_t now = left < PIECE ? left : PIECE;
        if (!receive(fd, piece, now))
            exit(1);
        if (!strcmp(way, "crc")) {
            uint32_t crc;
            if (!receive(fd, &crc, sizeof crc) || crc != crc32c(piece, now))
                exit(1);
        }
        check(write(file, piece, now), "write");
        left -= now;
    }
}

int main(int count, char **words)
{
    int is_server = count > 1 && !strcmp(words[1], "server"), fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = { .sin_family = AF_INET };
    socklen_t len = sizeof addr;

    if (count != (is_server ? 5 : 7) || inet_pton(AF_INET, words[2], &addr.sin_addr) != 1) {
        fprintf(stderr, "serve_file server ADDRESS WAY FOLDER | client ADDRESS PORT WAY NAME DESTINATION\n");
        return 2;
    }
    if (!is_server) {
        addr.sin_port = htons(atoi(words[3]));
        check(connect(fd, (struct sockaddr *)&addr, sizeof addr), "connect");
        get(fd, words[4], words[5], words[6]);
        return 0;
    }
    check(chdir(words[4]), words[4]);
    check(bind(fd, (struct sockaddr *)&addr, sizeof addr), "bind");
    check(listen(fd, 16), "listen");
    check(getsockname(fd, (struct sockaddr *)&addr, &len), "getsockname");
    printf("%d\n", ntohs(addr.sin_port));
    fflush(stdout);
    for (;;) {
        int peer = check(accept(fd, NULL, NULL), "accept");
        serve(peer, words[3]);
        close(peer);
    }
}
