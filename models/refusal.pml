/*
 * One flow of messages to a port that may be over its hard limit: REFUSED,
 * the notices' hold on acks, the congestion map, RESUME, and connections that
 * break with any part of it on its way.
 *
 * Code: conn/stops.go, conn/recv.go (preDeliver, verdict, recvNotice),
 * conn/send.go (ackValue, head), conn/hello.go (sendHello, resume, checkGate).
 *
 * The two directions of a connection are two channels in order. A break loses
 * what is in them: the receiving side may have taken any part of it before.
 *
 * HELLO's ack is exact, so nothing is ever received twice: the receiver's check
 * for duplicates is only for peers that break the protocol, and asserts here.
 *
 * Safety: delivered once and in order; settled as accepted only if delivered.
 * Liveness: everything is delivered and settled in the end, with a bounded
 *   number of sequences: nothing is sent again and again.
 */

#ifndef N
#define N 3              /* messages */
#endif
#ifndef BREAKS
#define BREAKS 2
#endif
#ifndef FULLS
#define FULLS 1          /* times the port becomes full */
#endif
#define SEQS 15          /* sequences, either way */

mtype = { Queued, Unacked, Rtx, Refused, Held, Done };
mtype = { Ack, Notice, Map };

/* The sender. */
mtype st[N + 1] = Queued;    /* messages are 1..N in the order of the flow */
byte seq[N + 1];
bool flagged[N + 1];         /* RETRANSMITTED */
byte nextTx = 1, ackMax;
byte gate, noticesIn;        /* HELLO's notice; the last notice taken */
bool settling, stopped, released, remoteFull;

/* The receiver. */
byte rxLast, delivered;      /* messages 1..delivered were accepted */
bool isFull, mapDirty, mapTold, refusing;
byte about[SEQS + 1];        /* of the receiver's notices, by their own sequence */
byte noticeTop, noticePosted;
byte fulls, breaks;

chan data = [N] of { byte, byte, bool, bool };   /* message, sequence, flagged, resume */
chan back = [3] of { mtype, byte, byte };        /* what, ack, notice's sequence or the map's bit */

byte i, m;                   /* scratch, zero between steps */

inline settleTo(upTo) {
	for (i : 1 .. N) {
		if
		:: st[i] == Unacked && seq[i] <= upTo ->
			assert(i <= delivered);
			st[i] = Done
		:: else
		fi
	}
	i = 0
}

inline settle() {
	if
	:: !settling -> settleTo(ackMax)
	:: else
	fi
}

inline checkGate() {
	if
	:: settling && noticesIn >= gate -> settling = false; settle()
	:: else
	fi
}

/* The message whose turn it is: retransmissions, then the queue. */
inline pick() {
	m = 0;
	for (i : 1 .. N) {
		if
		:: m == 0 && st[i] == Rtx -> m = i
		:: else
		fi
	}
	for (i : 1 .. N) {
		if
		:: m == 0 && st[i] == Queued -> m = i
		:: else
		fi
	}
	i = 0
}

#ifdef BROKEN_RELEASE_EARLY
#define inflight false
#else
#define inflight (st[1] == Unacked || st[1] == Rtx || st[2] == Unacked || st[2] == Rtx || \
	st[N] == Unacked || st[N] == Rtx)
#endif
#define waiting (st[1] == Queued || st[1] == Rtx || st[2] == Queued || st[2] == Rtx || \
	st[N] == Queued || st[N] == Rtx)

proctype Send() {
	bool resume;
end:	do
	:: atomic { waiting && nfull(data) ->
		pick();
		if
		:: st[m] == Queued && stopped -> st[m] = Held
		:: else ->
			if
			:: seq[m] == 0 -> seq[m] = nextTx; nextTx++; assert(nextTx < SEQS)
			:: else
			fi;
			resume = (st[m] == Queued && released);
			if
			:: st[m] == Queued -> released = false
			:: else
			fi;
			st[m] = Unacked;
#ifdef BROKEN_RESUME_UNFLAGGED
			resume = false;
#endif
			data!m, seq[m], flagged[m], resume
		fi; m = 0; resume = false }
	:: atomic { stopped && !inflight && !remoteFull ->
		stopped = false; released = true;
		for (i : 1 .. N) {
			if
			:: st[i] == Refused || st[i] == Held -> st[i] = Queued
			:: else
			fi
		}
		i = 0 }
	od
}

proctype TakeBack() {
	mtype what; byte ack, x;
end:	do
	:: atomic { back?what, ack, x ->
		if
		:: what == Map -> remoteFull = x
		:: what == Notice && x > noticesIn ->
			noticesIn = x;
			settleTo(about[x] - 1);      /* notices come in order */
			for (i : 1 .. N) {
				if
				:: st[i] == Unacked && seq[i] == about[x] ->
					st[i] = Refused; seq[i] = 0; flagged[i] = false;
					stopped = true; released = false
				:: else
				fi
			}
			i = 0;
			checkGate()
		:: else
		fi;
		if
		:: ack > ackMax -> ackMax = ack; settle()
		:: else
		fi; what = 0; ack = 0; x = 0 }
	od
}

#ifdef BROKEN_ACK_COVERS
#define ackValue rxLast
#else
#define ackValue (noticePosted < noticeTop -> about[noticePosted + 1] - 1 : rxLast)
#endif

inline refuse(n) {
	refusing = true;
	noticeTop++; assert(noticeTop < SEQS);
	about[noticeTop] = n
}

proctype Take() {
	byte x, n; bool old, resume;
end:	do
	:: atomic { data?x, n, old, resume ->
		assert(n > rxLast);
		if
#ifndef BROKEN_REFUSES_ONE
		:: refusing && !resume -> refuse(n)
		:: !(refusing && !resume) && isFull -> refuse(n)
		:: !(refusing && !resume) && !isFull ->
#else
		:: isFull -> refuse(n)
		:: !isFull ->
#endif
			refusing = false;
			assert(x == delivered + 1);        /* once, in order */
			delivered = x
		fi;
		rxLast = n; x = 0; n = 0; old = false; resume = false }
	od
}

proctype Answer() {
end:	do
	/* In the order of Conn.pump: the map, notices, an ack by itself. */
	:: atomic { nfull(back) && mapDirty ->
		mapDirty = false; mapTold = mapTold || isFull;
		back!Map, ackValue, isFull }
	:: atomic { nfull(back) && !mapDirty && noticePosted < noticeTop ->
		noticePosted++;
		back!Notice, ackValue, noticePosted }
	:: atomic { nfull(back) && !mapDirty && ackValue > ackMax && empty(back) ->
		back!Ack, ackValue, 0 }
	od
}

/* The destination's application stops reading, and reads again. */
proctype Reader() {
	do
	:: atomic { !isFull && fulls < FULLS -> fulls++; isFull = true; mapDirty = true }
	:: atomic { isFull -> isFull = false; mapDirty = true }
	:: !isFull && fulls == FULLS -> break
	:: !isFull -> break
	od
}

/* The connection breaks, both sides drain, and HELLO goes each way. */
proctype Breaks() {
	mtype what; byte x, y; bool b, c;
	do
	:: atomic { breaks < BREAKS ->
		breaks++;
		do
		:: data?x, y, b, c
		:: empty(data) -> break
		od;
		do
		:: back?what, x, y
		:: empty(back) -> break
		od;
		what = 0; x = 0; y = 0; b = false; c = false;
		/* down(): the map is forgotten */
		remoteFull = false;
		/* resume(), with HELLO's ack and notice noticeTop */
		for (i : 1 .. N) {
			if
			:: st[i] == Unacked && seq[i] > rxLast -> st[i] = Rtx; flagged[i] = true
			:: st[i] == Rtx && seq[i] <= rxLast -> st[i] = Unacked
			:: else
			fi
		}
		i = 0;
		ackMax = (rxLast > ackMax -> rxLast : ackMax);
		gate = noticeTop;
#ifdef BROKEN_NO_GATE
		settle();
#else
		settling = true;
		checkGate();
#endif
		/* the peer's resume(): what the sender has taken is not sent again */
		noticePosted = noticesIn;
#ifndef BROKEN_MAP_NOT_AGAIN
		mapDirty = (mapTold || isFull)
#else
		mapDirty = false
#endif
		}
	:: break
	od
}

#define allDelivered (delivered == N)
#define allDone (st[1] == Done && st[2] == Done && st[N] == Done)

init {
	atomic { run Send(); run TakeBack(); run Take(); run Answer(); run Reader(); run Breaks() }
	timeout -> assert(allDelivered && allDone)
}

ltl settles { <>[] (allDelivered && allDone) }
