/* wire.h - the header at the start of each datagram between two endpoints. Both hosts have the same byte order. */
#ifndef RFI_WIRE_H
#define RFI_WIRE_H

#include <stdint.h>

enum {
	WIRE_MAGIC = 0x4671, /* also tells the byte order and the version */
	EAGER_MAX = 65536,   /* payload of the longest message that is sent without having been asked for */
	CHUNK = 131072       /* payload of a piece of a longer one */
};

enum wire_kind {
	W_MSG = 1, /* message with its payload */
	W_TMSG,    /* the same, tagged */
	W_RTS,     /* announces a long message; tag, data, len */
	W_TRTS,
	W_CTS,     /* asks for len bytes of the announced message id; addr: id of the receive */
	W_DATA,    /* payload at offset addr of receive id */
	W_FIN,     /* message id is in the receiver's memory, or err */
	W_WRITE,   /* payload for address addr of key; the last piece has W_LAST */
	W_READ,    /* asks for len bytes at addr of key */
	W_PART,    /* payload at offset addr of the result of operation id */
	W_ATOMIC,  /* len elements; err: type, operation and form */
	W_ACK,     /* operation id has ended with err */
	W_OFF,     /* the receiver has no room for more unexpected messages */
	W_ON,      /* it has again */
	W_LOOK,    /* asks where the region of key is */
	W_KEY,     /* it has cookie data, and len bytes from address addr on; data 0: only its owner can use it */
	W_WROTE,   /* a write of len bytes was carried out ahead of this message; data */
	W_PROBE    /* asks nothing: that its socket is gone is what the sender wants to learn */
};

/* Flags of a header. */
enum {
	W_LAST = 1,     /* last piece */
	W_CQ_DATA = 2,  /* data is for the receiver's completion queue */
	W_DELIVERY = 4  /* the sender waits for W_FIN */
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
