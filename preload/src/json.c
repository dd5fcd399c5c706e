#include "json.h"

#include <string.h>

enum { DEPTH = 64 };

static void blank(struct json *j)
{
	while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r'))
		j->p++;
}

/* peek is the next byte that is no blank, 0 at the end. */
static char peek(struct json *j)
{
	blank(j);
	return !j->bad && j->p < j->end ? *j->p : 0;
}

static bool take(struct json *j, char c)
{
	if (peek(j) != c)
		return false;
	j->p++;
	return true;
}

void json_open(struct json *j, char bracket)
{
	if (!take(j, bracket))
		j->bad = true;
}

/* after reads what is between two elements, or the bracket that ends them. */
static bool after(struct json *j, char bracket)
{
	if (take(j, bracket))
		return false;
	take(j, ',');
	if (!peek(j))
		j->bad = true;
	return !j->bad;
}

bool json_item(struct json *j) { return after(j, ']'); }

bool json_key(struct json *j, char *key, size_t size)
{
	if (!after(j, '}'))
		return false;
	json_string(j, key, size);
	if (!take(j, ':'))
		j->bad = true;
	return !j->bad;
}

/* Escapes are skipped: none of the strings that matter has any. */
void json_string(struct json *j, char *to, size_t size)
{
	size_t n = 0;
	if (size)
		to[0] = 0;
	if (!take(j, '"')) {
		j->bad = true;
		return;
	}
	while (j->p < j->end && *j->p != '"') {
		if (*j->p == '\\' && ++j->p == j->end)
			break;
		if (n + 1 < size)
			to[n++] = *j->p;
		j->p++;
	}
	if (size)
		to[n] = 0;
	if (!take(j, '"'))
		j->bad = true;
}

uint64_t json_number(struct json *j)
{
	uint64_t n = 0;
	const char *from = (blank(j), j->p);
	while (j->p < j->end && *j->p >= '0' && *j->p <= '9')
		n = n * 10 + (uint64_t)(*j->p++ - '0');
	if (j->p == from)
		j->bad = true;
	return n;
}

/* word skips a number, true, false or null. */
static void word(struct json *j)
{
	const char *from = j->p;
	while (j->p < j->end && !strchr(",]} \n\t\r", *j->p))
		j->p++;
	if (j->p == from)
		j->bad = true;
}

void json_skip(struct json *j)
{
	int depth = 0;
	do {
		switch (peek(j)) {
		case '{':
		case '[':
			depth++;
			j->p++;
			break;
		case '}':
		case ']':
			depth--;
			j->p++;
			break;
		case ',':
		case ':':
			j->p++;
			break;
		case '"':
			json_string(j, NULL, 0);
			break;
		default:
			word(j);
		}
	} while (!j->bad && depth > 0 && depth <= DEPTH);
	if (depth)
		j->bad = true;
}
