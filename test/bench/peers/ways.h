#ifndef WAYS_H
#define WAYS_H

#include <stddef.h>
#include <stdint.h>

// A way to send messages between two processes, over a library that a program polls. One thread uses it.
typedef struct way {
	void *of;      // the library's part
	uint8_t *buf;  // what send sends
	size_t size;   // its length
	uint8_t *got;  // the message that came last
	size_t got_len;
	uint8_t name[4096]; // the own address
	size_t name_len;
	int (*meet)(struct way *, const void *name, size_t len); // send sends to name from now on
	int (*send)(struct way *, const void *buf, size_t size); // waits until the library has taken the message
	int (*recv)(struct way *);                               // waits; how many messages have come, or an error
	const char *(*text)(int error);                          // errors are below 0
} way;

// way_open opens a way of a library for messages of size bytes.
int way_open(way *, const char *library, size_t size);

// way_text is the text of an error of way w.
const char *way_text(way *w, int error);

// way_has says whether the program has the library.
int way_has(const char *library);

int ofi_open(way *);
int ucx_open(way *);

// The roles. They return only with an error, but for way_hello and way_ping.
int way_hello(way *, const void *server, size_t len);
int way_echo(way *, uint64_t *count);
int way_ping(way *);
int way_sink(way *, uint64_t *count);
int way_source(way *, uint64_t *count);

#endif
