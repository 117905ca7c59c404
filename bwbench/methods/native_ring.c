/* A ring all-reduce on sockets of its own: what ring.py does by gloo for fp32, in the same order of summation. */
#ifdef __linux__
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#endif

#include "native.h"

#if defined(FOR_THIS_PROCESSOR) && defined(__linux__)

/* What bw_ring returns, or an errno below zero; native.py has the same. */
enum { DONE = 0, SILENT = 1, GONE = 2 };

/* Bytes handed to the kernel at a time: more would keep it from the other direction. */
#define MOST_AT_ONCE (1 << 20)

typedef struct {
    i64 begin, bytes; /* of a chunk, in bytes */
} span;

static span chunk_of(i64 n, int size, int number)
{
    i64 chunk = ((i64)number % size + size) % size, begin = n * chunk / size;
    return (span){4 * begin, 4 * (n * (chunk + 1) / size - begin)};
}

static i64 now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (i64)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void add(float *sum, const float *values, i64 n)
{
    for (i64 i = 0; i < n; i++)
        sum[i] += values[i];
}

static void add_and_divide(float *sum, const float *values, i64 n, float by)
{
    for (i64 i = 0; i < n; i++)
        sum[i] = (sum[i] + values[i]) / by;
}

/* Ends of a peer that was there. */
static int lost(ssize_t count) { return count < 0 && (errno == ECONNRESET || errno == EPIPE || errno == ESHUTDOWN); }
static int again(ssize_t count) { return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR); }

/* The mean of `x` over all ranks, in place: chunk `place` leaves first, and in hop h arrives chunk `place` - 1 - h as a
 * sum, up to hop `size` - 2, after which this rank has the mean of a chunk; then means come round. What has arrived of
 * a hop leaves with the next one at once, byte for byte.
 *
 * to, from: connected sockets, to the next rank and from the one before.
 * room: memory for what is to be added, `room_bytes` of it, aligned as a float is.
 * limit_ms: without a byte in either direction, however often a signal comes meanwhile.
 * adding_ns: what was spent on sums.
 */
EXPORT int bw_ring(int to, int from, float *x, i64 n, int place, int size, char *room, i64 room_bytes, int limit_ms,
                   i64 *adding_ns)
{
    const int hops = 2 * (size - 1), completing = size - 2;
    char *bytes = (char *)x;
    int leaving = 0, arriving = 0;        /* hops */
    i64 left = 0, arrived = 0, held = 0;  /* bytes of those; of a float that is not whole, in `room` */

    i64 progress = now_ns();

    *adding_ns = 0;
    for (;;) {
        span out = {0, 0}, in = {0, 0};
        i64 ready = 0;
        while (leaving < hops && left == (out = chunk_of(n, size, place - leaving)).bytes) {
            leaving++;
            left = 0;
        }
        while (arriving < hops && arrived == (in = chunk_of(n, size, place - 1 - arriving)).bytes) {
            arriving++;
            arrived = 0;
        }
        if (leaving == hops && arriving == hops)
            return DONE;
        if (leaving < hops) /* of a hop what has arrived with the one before */
            ready = leaving == 0 || arriving >= leaving ? out.bytes : arriving == leaving - 1 ? arrived : 0;

        struct pollfd ends[2] = {{arriving < hops ? from : -1, POLLIN, 0}, {ready > left ? to : -1, POLLOUT, 0}};
        i64 rest_ms = limit_ms - (now_ns() - progress) / 1000000;
        int found = rest_ms > 0 ? poll(ends, 2, (int)rest_ms) : 0;
        if (found == 0)
            return SILENT;
        if (found < 0 && errno != EINTR)
            return -errno;
        if (found < 0)
            continue;
        if ((ends[0].revents | ends[1].revents) & POLLNVAL)
            return -EBADF;

        if (ends[1].revents) {
            ssize_t count = send(to, bytes + out.begin + left, (size_t)least(ready - left, MOST_AT_ONCE),
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
            if (!again(count) && count <= 0)
                return lost(count) ? GONE : -errno;
            if (count > 0) {
                left += count;
                progress = now_ns();
            }
        }
        if (ends[0].revents) {
            int adds = arriving <= completing;
            char *target = adds ? room + held : bytes + in.begin + arrived;
            i64 wanted = adds ? least(in.bytes - arrived, room_bytes) - held : least(in.bytes - arrived, MOST_AT_ONCE);
            ssize_t count = recv(from, target, (size_t)wanted, MSG_DONTWAIT);
            if (count == 0 || lost(count))
                return GONE;
            if (count < 0 && !again(count))
                return -errno;
            if (count < 0)
                continue;
            progress = now_ns();
            if (!adds) {
                arrived += count;
                continue;
            }
            i64 whole = (held + count) / 4;
            float *sum = (float *)(bytes + in.begin + arrived);
            if (arriving == completing)
                add_and_divide(sum, (float *)room, whole, (float)size);
            else
                add(sum, (float *)room, whole);
            held += count - 4 * whole;
            memmove(room, room + 4 * whole, (size_t)held);
            arrived += 4 * whole;
            *adding_ns += now_ns() - progress;
        }
    }
}

#else

EXPORT int bw_ring(void) { return -1; }

#endif

#ifdef FOR_THIS_PROCESSOR
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC reset_options
#endif
#endif
