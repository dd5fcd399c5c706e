//go:build ofi || ucx

#include "ways.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	int (*open)(way *);
} libraries[] = {
#ifdef WITH_OFI
	{"ofi", ofi_open},
#endif
#ifdef WITH_UCX
	{"ucx", ucx_open},
#endif
};

int way_open(way *w, const char *library, size_t size) {
	w->size = size;
	w->buf = calloc(1, size + 1);
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
		if (!strcmp(libraries[i].name, library))
			return libraries[i].open(w);
	return -1;
}

const char *way_text(way *w, int error) { return w->text(error); }

int way_has(const char *library) {
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
		if (!strcmp(libraries[i].name, library))
			return 1;
	return 0;
}

int way_hello(way *w, const void *server, size_t len) {
	int rc = w->meet(w, server, len);
	if (rc >= 0)
		rc = w->send(w, w->name, w->name_len);
	return rc < 0 ? rc : w->recv(w); // so that nothing else is sent before the server knows whom to answer
}

// greeted takes the first message, which has the client's address, and answers it.
static int greeted(way *w) {
	int rc = w->recv(w);
	if (rc >= 0)
		rc = w->meet(w, w->got, w->got_len);
	return rc < 0 ? rc : w->send(w, w->buf, w->size);
}

int way_echo(way *w, uint64_t *count) {
	int rc = greeted(w);
	while (rc >= 0 && (rc = w->recv(w)) >= 0) {
		int n = rc;
		for (int i = 0; i < n && rc >= 0; i++)
			rc = w->send(w, w->buf, w->size);
		__atomic_fetch_add(count, 2 * n, __ATOMIC_RELAXED);
	}
	return rc;
}

int way_ping(way *w) {
	int rc = w->send(w, w->buf, w->size);
	return rc < 0 ? rc : w->recv(w);
}

int way_sink(way *w, uint64_t *count) {
	int rc = greeted(w);
	while (rc >= 0 && (rc = w->recv(w)) >= 0)
		__atomic_fetch_add(count, rc, __ATOMIC_RELAXED);
	return rc;
}

int way_source(way *w, uint64_t *count) {
	int rc;
	while ((rc = w->send(w, w->buf, w->size)) >= 0)
		__atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
	return rc;
}
