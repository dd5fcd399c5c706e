/* A port is bound anew, by this process and by others that get a socket in every way there is. What is sent
 * then arrives there, though the sender has sent to the port's former socket and has heard nothing of its end. */
#include <sys/wait.h>

#include "check.h"

static int sender;

/* tells sends text to the port of a. */
static void tells(const struct sockaddr_in *a, const char *text)
{
	CHECK(sendto(sender, text, strlen(text), 0, (const struct sockaddr *)a, sizeof *a) == (ssize_t)strlen(text));
}

/* takes binds fd at a, says so, and gets a message. */
static void takes(int fd, const struct sockaddr_in *a, int says)
{
	CHECK(bind(fd, (const struct sockaddr *)a, sizeof *a) == 0);
	CHECK(says < 0 || write(says, "b", 1) == 1);
	if (says < 0)
		tells(a, "anew");
	gets_text(fd, "anew");
	CHECK(close(fd) == 0);
}

/* in_child has a child take a message: with a socket of its own, an inherited one, one that it is sent, or as a new program. */
static void in_child(const struct sockaddr_in *a, char how)
{
	int says[2], through[2], status, inherited = socket(RDS, SOCK_SEQPACKET, 0);
	char b, text[3][12] = {{how}};
	CHECK(pipe(says) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, through) == 0);
	pid_t pid = fork();
	if (pid == 0 && how == 'x') {
		snprintf(text[0], sizeof text[0], "%d", inherited);
		snprintf(text[1], sizeof text[1], "%d", says[1]);
		snprintf(text[2], sizeof text[2], "%d", ntohs(a->sin_port));
		execl("/proc/self/exe", "anew", address, text[0], text[1], text[2], (char *)NULL);
		_exit(1);
	} else if (pid == 0) {
		takes(how == 'o' ? socket(RDS, SOCK_SEQPACKET, 0) : how == 'i' ? inherited : take(through[0]), a, says[1]);
		_exit(0);
	}
	if (how == 's') {
		int given = socket(RDS, SOCK_SEQPACKET, 0);
		hand(through[1], given);
		close(given);
	}
	CHECK(pid > 0 && close(says[1]) == 0 && read(says[0], &b, 1) == 1);
	tells(a, "anew");
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(says[0]);
	close(through[0]);
	close(through[1]);
	close(inherited);
}

int main(int argc, char **argv)
{
	address = argc > 1 ? argv[1] : address;
	if (argc > 4) { /* after exec */
		struct sockaddr_in a = at((uint16_t)atoi(argv[4]));
		takes(atoi(argv[2]), &a, atoi(argv[3]));
		return 0;
	}
	sender = bound(0);
	if (argc > 3) { /* for each byte of its input, one message to another host */
		struct sockaddr_in to = at((uint16_t)atoi(argv[3]));
		char b;
		CHECK(inet_pton(AF_INET, argv[2], &to.sin_addr) == 1);
		while (read(0, &b, 1) == 1) {
			tells(&to, "anew");
			CHECK(write(1, "sent\n", 5) == 5);
		}
		return 0;
	}
	int first = bound(0);
	struct sockaddr_in a = name_of(first);
	tells(&a, "first");
	gets_text(first, "first");
	CHECK(close(first) == 0);
	for (int i = 0; i < 5; i++)
		takes(socket(RDS, SOCK_SEQPACKET, 0), &a, -1);
	for (const char *how = "oisx"; *how; how++)
		for (int i = 0; i < 3; i++)
			in_child(&a, *how);
	return 0;
}
