/* What can be tested without a daemon: layouts, arena, rings, frames, addresses. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arena.h"
#include "frames.h"
#include "hash.h"
#include "queue.h"
#include "segment.h"
#include "vma.h"

#include <rds/rds.h>

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); exit(1); } } while (0)

static const struct shm_params defaults = {SHM_DEFAULT_SUB_ENTRIES, SHM_DEFAULT_EVENT_ENTRIES, SHM_DEFAULT_MAX_MSGS, SHM_DEFAULT_MAX_RX,
	SHM_DEFAULT_SLOTS, SHM_DEFAULT_CELLS, SHM_DEFAULT_SEND_WINDOWS, SHM_DEFAULT_RECV_WINDOWS};

static void test_segment(void)
{
	struct rdsi_segment s;
	struct shm_params bad = defaults;
	uint64_t size = SHM_DEFAULT_SEGMENT_SIZE;
	CHECK(rdsi_segment_size(&defaults) == SHM_DEFAULT_SEGMENT_SIZE && rdsi_table_size(&defaults) == SHM_DEFAULT_TABLE_SIZE);
	uint8_t *mem = aligned_alloc(4096, size);
	memset(mem, 0, size);
	CHECK(rdsi_segment_open(&s, mem, size, &defaults));
	uint32_t head[2] = {SHM_MAGIC, SHM_VERSION};
	memcpy(mem, head, sizeof head);
	memcpy(mem + SHM_OFF_SIZE, &size, sizeof size);
	memcpy(mem + SHM_OFF_PARAMS, &defaults, sizeof defaults);
	CHECK(!rdsi_segment_open(&s, mem, size, &defaults));
	CHECK(rdsi_segment_open(&s, mem, size - 1, &defaults));
	CHECK(s.sub.ring.entries == mem + SHM_OFF_SUBMISSION_RING && s.event.ring.entries == mem + SHM_OFF_EVENT_RING);
	CHECK(s.send_ret.ring.entries == mem + SHM_OFF_SEND_RETURN_RING && s.recv_ret.ring.entries == mem + SHM_OFF_RECEIVE_RETURN_RING);
	CHECK(s.want_cells == mem + SHM_OFF_WANT_CELLS && s.want_slots == mem + SHM_OFF_WANT_SLOTS);
	CHECK(!rdsi_params_check(&defaults));
	bad.max_rx = 3;
	CHECK(!strcmp(rdsi_params_check(&bad), "MaxRx"));
	bad = defaults;
	bad.cells = 0;
	CHECK(!strcmp(rdsi_params_check(&bad), "Cells"));
	free(mem);
}

static void test_ring(void)
{
	static _Alignas(64) uint64_t mem[8 * 4];
	static rdsi_index head, tail;
	struct rdsi_ring r = {(uint8_t *)mem, 4, 64, &head, &tail};
	struct rdsi_producer p = {.ring = r};
	struct rdsi_consumer c = {.ring = r};
	uint64_t e[8] = {0};
	for (uint64_t round = 0; round < 100; round++) {
		for (uint64_t i = 0; i < 4; i++) {
			uint64_t *to = rdsi_reserve(&p);
			CHECK(to);
			*to = round * 4 + i;
		}
		CHECK(!rdsi_reserve(&p) && !rdsi_take(&c, e));
		CHECK(rdsi_publish(&p) && !rdsi_publish(&p));
		for (uint64_t i = 0; i < 4; i++)
			CHECK(rdsi_take(&c, e) && e[0] == round * 4 + i);
		CHECK(!rdsi_take(&c, e) && !rdsi_free_at_least(&p, 1));
		rdsi_release(&c);
		CHECK(rdsi_free_at_least(&p, 4) && !rdsi_free_at_least(&p, 5));
	}
	for (int i = 0; i < 2; i++)
		rdsi_reserve(&p);
	CHECK(rdsi_publish(&p) && rdsi_take(&c, e) && rdsi_take(&c, e) && !rdsi_free_at_least(&p, 3));
	rdsi_release(&c);
	CHECK(rdsi_free_at_least(&p, 3)); /* more than a quarter, which is not looked for unless asked */
	head = 1000; /* more than was published */
	for (int i = 0; i < 4; i++)
		rdsi_reserve(&p);
	CHECK(!rdsi_reserve(&p) && p.bad);
	tail = c.head + 5; /* more than the ring holds */
	CHECK(!rdsi_take(&c, e) && c.bad && !rdsi_take(&c, e));
}

/* test_arena allocates and frees at random, and checks that nothing overlaps. */
static void test_arena(void)
{
	enum { WINDOWS = 2, CHUNKS = 600 };
	struct { uint32_t chunk; size_t n; uint8_t mark; } have[CHUNKS] = {{0, 0, 0}};
	struct rdsi_arena a;
	uint8_t *mem = malloc(WINDOWS * SHM_WINDOW_SIZE);
	rdsi_arena_init(&a);
	for (size_t i = 0; i < WINDOWS; i++)
		CHECK(!rdsi_arena_add(&a, mem + i * SHM_WINDOW_SIZE));
	srand(1);
	for (int i = 0; i < 50000; i++) {
		int k = rand() % CHUNKS;
		if (have[k].n) {
			uint8_t *p = rdsi_arena_mem(&a, have[k].chunk);
			CHECK(p[0] == have[k].mark && p[have[k].n - 1] == have[k].mark);
			rdsi_arena_release(&a, have[k].chunk, have[k].n);
			have[k].n = 0;
			continue;
		}
		size_t n = 1 + (size_t)rand() % (rand() % 20 ? 3000 : 300000);
		if (!rdsi_arena_alloc(&a, n, &have[k].chunk))
			continue;
		CHECK(rdsi_chunk_valid(WINDOWS, have[k].chunk, n));
		have[k].n = n;
		have[k].mark = (uint8_t)i;
		memset(rdsi_arena_mem(&a, have[k].chunk), (uint8_t)i, n);
	}
	for (int k = 0; k < CHUNKS; k++)
		if (have[k].n)
			rdsi_arena_release(&a, have[k].chunk, have[k].n);
	CHECK(a.in_use == 0);
	uint32_t c;
	for (int i = 0; i < 8; i++)
		CHECK(rdsi_arena_alloc(&a, ABI_MAX_MESSAGE, &c)); /* nothing is cut up */
	CHECK(!rdsi_arena_alloc(&a, 1, &c) && !rdsi_arena_alloc(&a, 0, &c) && !rdsi_arena_alloc(&a, ABI_MAX_MESSAGE + 1, &c));
	CHECK(!rdsi_chunk_valid(1, 65535, 65) && rdsi_chunk_valid(1, 65535, 64) && !rdsi_chunk_valid(1, 65536, 1));
	rdsi_arena_free_all(&a);
	free(mem);
}

static void test_frames(void)
{
	_Alignas(4) uint8_t b[16] = {5, 0, 0, 0, 'h', 'e', 'l', 'l', 'o'};
	size_t n;
	CHECK(rdsi_frame_next(b, 12, &n) == 12 && n == 5);
	CHECK(rdsi_frame_next(b, 11, &n) == 0 && rdsi_frame_next(b, 3, &n) == 0);
	memset(b, 0xff, 4);
	CHECK(rdsi_frame_next(b, 16, &n) == 0);
	uint64_t s = rdsi_run_append(rdsi_run_append(0, 5), 0);
	CHECK(rdsi_run_len(s) == 16 && rdsi_run_datagrams(s) == 2 && rdsi_run_payload(s) == 5);
}

static void test_queue(void)
{
	struct rdsi_queue q = {0};
	int v;
	for (int i = 0; i < 5000; i++)
		CHECK(rdsi_queue_push(&q, &i, sizeof i));
	rdsi_queue_remove(&q, 10, &v, sizeof v);
	CHECK(v == 10 && q.n == 4999);
	for (int i = 0; i < 5000; i++) {
		if (i == 10)
			continue;
		rdsi_queue_pop(&q, &v, sizeof v);
		CHECK(v == i);
	}
	CHECK(q.n == 0);
	rdsi_queue_end(&q);
}

static void test_hash(void)
{
	struct rdsi_hash h = {0};
	static struct rdsi_node nodes[1000];
	uint32_t at = 0, n = 0;
	for (uint64_t i = 0; i < 1000; i++) {
		CHECK(!rdsi_hash_reserve(&h));
		rdsi_hash_add(&h, &nodes[i], rdsi_mix(i / 2, 7)); /* two of each hash */
	}
	for (uint64_t i = 0; i < 500; i++) {
		struct rdsi_node *x = rdsi_hash_first(&h, rdsi_mix(i, 7));
		CHECK(x && rdsi_hash_next(x) && !rdsi_hash_next(rdsi_hash_next(x)));
	}
	for (struct rdsi_node *x; (x = rdsi_hash_any(&h, &at)); n++)
		rdsi_hash_del(&h, x);
	CHECK(n == 1000 && h.count == 0);
	rdsi_hash_end(&h);
}

static void test_addr(void)
{
	static const char *const good[] = {"10.0.0.1:4000", "[fd00::1]:65535", "[fd00::2]:0", "255.1.2.3:0"};
	static const char *const bad[] = {"", "10.0.0.1:", "10.0.0.1:65536", "10.0.0:1", "[fd00::1", "[fd00::1]x", "host:1", "1.2.3.4:x"};
	struct rds_addr a, b;
	struct sockaddr_storage sa;
	char text[RDS_ADDR_TEXT];
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		CHECK(!rds_addr_parse(good[i], &a) && !strcmp(rds_addr_format(&a, text, sizeof text), good[i]));
		CHECK(!rds_addr_from((struct sockaddr *)&sa, rds_addr_to(&a, &sa), &b) && !memcmp(&a.ip, &b.ip, 16) && a.port == b.port);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		CHECK(rds_addr_parse(bad[i], &a));
	CHECK(!rds_addr_parse("fd00::1", &a) && a.port == 0 && !rds_addr_parse("10.0.0.1", &a));
}

/* find_vma finds the mapping at p or behind it, by the kernel's answers or in its text. */
static bool find_vma(const void *p, bool text, struct rdsi_vma *v)
{
	struct rdsi_vmas m;
	memset(v, 0, sizeof *v);
	CHECK(!rdsi_vmas_open(&m, (uintptr_t)p));
	m.text = text;
	bool found = rdsi_vmas_next(&m, v);
	rdsi_vmas_close(&m);
	return found;
}

/* test_vmas: both ways to learn of mappings say the same, and what was mapped. */
static void test_vmas(void)
{
	enum { PAGE = 4096, PAGES = 7 };
	struct rdsi_vma v, t;
	char here;
	int fd = memfd_create("test_vmas", MFD_CLOEXEC);
	char *p = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(fd >= 0 && !ftruncate(fd, PAGES * PAGE) && p != MAP_FAILED);
	CHECK(mmap(p + PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 3 * PAGE) == p + PAGE);
	CHECK(mmap(p + 3 * PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_FIXED, fd, 0) == p + 3 * PAGE);
	CHECK(!munmap(p + 5 * PAGE, PAGE));
	struct stat st;
	CHECK(!fstat(fd, &st) && find_vma(p + PAGE, false, &v));
	CHECK(v.start == (uintptr_t)p + PAGE && v.end == v.start + 2 * PAGE && v.shared && v.off == 3 * PAGE && v.prot == (PROT_READ | PROT_WRITE));
	CHECK(v.inode == st.st_ino && v.dev == st.st_dev);
	char *const at[] = {p, p + PAGE, p + 2 * PAGE, p + 3 * PAGE, p + 4 * PAGE, p + 5 * PAGE, &here, (char *)(uintptr_t)test_vmas, (char *)&defaults, 0};
	for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
		CHECK(find_vma(at[i], false, &v) && find_vma(at[i], true, &t));
		CHECK(v.start == t.start && v.end == t.end && v.prot == t.prot && v.shared == t.shared && v.off == t.off);
		CHECK(v.dev == t.dev && v.inode == t.inode && (v.inode || !strcmp(v.path, t.path)));
	}
	CHECK(find_vma(&here, false, &v) && !strcmp(v.path, "[stack]"));
	CHECK(!find_vma((void *)(UINTPTR_MAX - PAGE), false, &v) && !find_vma((void *)(UINTPTR_MAX - PAGE), true, &v));
	munmap(p, PAGES * PAGE);
	close(fd);
}

static void test_errors(void)
{
	const char *text = rds_error_text(-ECONNRESET);
	CHECK(strstr(text, "rds_reopen") && text == rds_error_text(ECONNRESET));
	struct rds_completion c = {.status = RDS_REMOTE_ERROR, .err = EACCES};
	CHECK(strstr(rds_completion_text(&c), "remote error: ") && strstr(rds_completion_text(&c), "is not granted to this socket's port"));
	c.status = RDS_OTHER_ERROR;
	CHECK(!strncmp(rds_completion_text(&c), "other error: ", 13) && strlen(rds_completion_text(&c)) > 13);
	c = (struct rds_completion){.status = RDS_DROPPED, .err = ECONNREFUSED};
	CHECK(!strcmp(rds_completion_text(&c), "dropped: no socket"));
	c = (struct rds_completion){.status = 77, .err = -1};
	CHECK(*rds_completion_text(&c) && (c.status = RDS_SUCCESS, c.err = 0, !strcmp(rds_completion_text(&c), "success")));
	CHECK(!strcmp(rds_error_text(0), "success") && *rds_error_text(-ENOTTY) && *rds_error_text(-12345) && *rds_refusal() == 0);
}

int main(void)
{
	test_errors();
	test_segment();
	test_ring();
	test_arena();
	test_frames();
	test_queue();
	test_hash();
	test_addr();
	test_vmas();
	return 0;
}
