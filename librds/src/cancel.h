/*
 * No call of librds is a cancellation point: a thread that ended within one would leave locks held,
 * and those who wait without a leader. Each file is compiled with this header, which makes none of
 * the C library's cancellation points that librds uses either.
 */
#ifndef RDSI_CANCEL_H
#define RDSI_CANCEL_H

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RDSI_UNCANCELLED(call)                                            \
	__extension__({                                                   \
		int rdsi_was, rdsi_off;                                   \
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &rdsi_was); \
		__typeof__(call) rdsi_got = (call);                       \
		pthread_setcancelstate(rdsi_was, &rdsi_off);              \
		rdsi_got;                                                 \
	})

#define connect(...) RDSI_UNCANCELLED((connect)(__VA_ARGS__))
#define nanosleep(...) RDSI_UNCANCELLED((nanosleep)(__VA_ARGS__))
#define open(...) RDSI_UNCANCELLED((open)(__VA_ARGS__))
#define poll(...) RDSI_UNCANCELLED((poll)(__VA_ARGS__))
#define ppoll(...) RDSI_UNCANCELLED((ppoll)(__VA_ARGS__))
#define pread(...) RDSI_UNCANCELLED((pread)(__VA_ARGS__))
#define pthread_cond_timedwait(...) RDSI_UNCANCELLED((pthread_cond_timedwait)(__VA_ARGS__))
#define pthread_cond_wait(...) RDSI_UNCANCELLED((pthread_cond_wait)(__VA_ARGS__))
#define pthread_join(...) RDSI_UNCANCELLED((pthread_join)(__VA_ARGS__))
#define pwritev2(...) RDSI_UNCANCELLED((pwritev2)(__VA_ARGS__))
#define read(...) RDSI_UNCANCELLED((read)(__VA_ARGS__))
#define recv(...) RDSI_UNCANCELLED((recv)(__VA_ARGS__))
#define recvmsg(...) RDSI_UNCANCELLED((recvmsg)(__VA_ARGS__))
#define send(...) RDSI_UNCANCELLED((send)(__VA_ARGS__))
#define sendmsg(...) RDSI_UNCANCELLED((sendmsg)(__VA_ARGS__))
#define write(...) RDSI_UNCANCELLED((write)(__VA_ARGS__))
#ifndef close /* the preload library has its own */
#define close(...) RDSI_UNCANCELLED((close)(__VA_ARGS__))
#endif

#endif
