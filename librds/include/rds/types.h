/* rds/types.h - what all headers of rds/rds.h share: handles, limits, addresses. */
#ifndef RDS_TYPES_H
#define RDS_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RDS_API __attribute__((visibility("default")))
#else
#define RDS_API
#endif

/* RDS_MAX_MESSAGE is the longest payload, and RDS_MAX_TRANSFER the longest operation, in bytes. */
#define RDS_MAX_MESSAGE (1u << 20)
#define RDS_MAX_TRANSFER (1u << 30)
/* RDS_MAX_RDMA is the most bytes of an operation that go to the other host in one piece. The
 * daemon cuts a longer operation into pieces. It is still one operation: see rds_rdma. */
#define RDS_MAX_RDMA (1u << 20)
/* RDS_MAX_SEGMENTS is the most local segments of one operation. */
#define RDS_MAX_SEGMENTS 1024

typedef struct rds_client rds_client; /* an attachment to the daemon */
typedef struct rds_socket rds_socket; /* a bound socket */
typedef struct rds_buffer rds_buffer; /* memory shared with the daemon */
typedef struct rds_region rds_region; /* a part of a buffer that peers may use */

/*
 * An rds_addr is an address and a port in host order. An IPv4 address is v4-mapped
 * (::ffff:a.b.c.d). The address :: stands for no address: the connected destination in a
 * send, several destinations in a notice.
 */
struct rds_addr {
	uint8_t ip[16];
	uint16_t port;
};

/* rds_addr_parse reads "10.0.0.1:4000", "[fd00::1]:4000" or an address alone, whose port is
 * 0. It returns 0 or -EINVAL. */
RDS_API int rds_addr_parse(const char *text, struct rds_addr *addr);

/* rds_addr_format writes addr as rds_addr_parse reads it, cut off at size - 1 bytes. It
 * returns text. RDS_ADDR_TEXT bytes are enough. */
#define RDS_ADDR_TEXT 64
RDS_API const char *rds_addr_format(const struct rds_addr *addr, char *text, size_t size);

/* rds_addr_from reads a sockaddr_in or sockaddr_in6 of len bytes. It returns 0, or -EINVAL
 * for another family, a short length or a scoped address. */
RDS_API int rds_addr_from(const struct sockaddr *sa, socklen_t len, struct rds_addr *addr);

/* rds_addr_to writes addr as a sockaddr_in if it is IPv4, else as a sockaddr_in6. It returns
 * the length. */
RDS_API socklen_t rds_addr_to(const struct rds_addr *addr, struct sockaddr_storage *sa);

#ifdef __cplusplus
}
#endif

#endif
