/* wire.h - the header at the start of each datagram between two endpoints. Both hosts have the same byte order. */
#ifndef RFI_WIRE_H
#define RFI_WIRE_H

#include <stdint.h>

enum {
	WIRE_MAGIC = 0x4672, /* also tells the byte order and the version */
	EAGER_MAX = 65536,   /* payload of the longest message that is sent without having been asked for */
	CHUNK = 131072       /* payload of a piece of a longer one */
};

enum wire_kind {
	W_MSG = 1, /* message with its payload */
	W_RTS,     /* announces a message; tag, data, len */
	W_CTS,     /* asks for len bytes of the announced message id; addr: id of the receive */
	W_DATA,    /* payload at offset addr of receive id */
	W_WRITE,   /* payload for address addr of key; the last piece has W_LAST */
	W_READ,    /* asks for len bytes at addr of key */
	W_PART,    /* payload at offset addr of the result of operation id; the region's place as in W_ACK */
	W_ATOMIC,  /* len elements; err: type, operation and form */
	W_ACK,     /* operation id has ended with err; data, tag: the region's cookie, unless 0, and its base */
	W_OFF,     /* the receiver has no room for more unexpected messages: announce them, whatever their length */
	W_ON,      /* it has again */
	W_WROTE,   /* a write of len bytes was carried out ahead of this message; data */
	W_PROBE,   /* asks nothing: that its socket is gone is what the sender wants to learn */
	W_KINDS
};

/* Flags of a header. */
enum {
	W_LAST = 1,     /* last piece */
	W_CQ_DATA = 2,  /* data is for the receiver's completion queue */
	W_DELIVERY = 4, /* the sender waits for W_ACK */
	W_TAGGED = 8
};

struct wire {
	uint16_t magic;
	uint8_t kind;
	uint8_t flags;
	uint32_t err; /* positive errno of fi_errno.h */
	uint64_t id;
	uint64_t len;
	uint64_t tag; /* or key */
	uint64_t data;
	uint64_t addr;
};

#endif
