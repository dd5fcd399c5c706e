/* A reader of the daemon's JSON answers. It goes forward only, and trusts nothing. */
#ifndef PRE_JSON_H
#define PRE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
	const char *p, *end;
	bool bad; /* it is no JSON, or not what was asked for; nothing more is read then */
};

/* json_open reads "{" or "[". json_key reads the next key of an object, cut off at size - 1 bytes,
 * and json_item says that there is another element in an array; both are false at the end, which
 * they read. */
void json_open(struct json *j, char bracket);
bool json_key(struct json *j, char *key, size_t size);
bool json_item(struct json *j);
void json_string(struct json *j, char *to, size_t size);
uint64_t json_number(struct json *j);
void json_skip(struct json *j);

#endif
