/*
 * One flow of messages to a port that may be over its hard limit: REFUSED,
 * notices that hold back acks, the congestion map, RESUME, and a connection that
 * breaks while any of these is on its way.
 *
 * Code: conn/stops.go, conn/recv.go (preDeliver, verdict), conn/notices.go
 * (recvNotice), conn/ack.go (ackValue), conn/send.go (head), conn/hello.go
 * (sendHello), conn/settle.go (resume, checkGate).
 *
 * The two directions of a connection are two channels that keep the order. A
 * break loses what the channels hold. The receiving side may have taken any part
 * of the rest before.
 *
 * HELLO's ack is exact, so nothing is ever received twice. The receiver checks
 * for duplicates only because a peer may break the protocol. Here that check is
 * an assertion.
 *
 * Safety: messages are delivered once and in order, and a message settles as
 *   accepted only if it was delivered.
 * Liveness: in the end everything is delivered and settled, with a bounded number
 *   of sequence numbers. So nothing is sent again for ever.
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
#define SEQS 15          /* sequence numbers of messages, and of notices */

mtype = { Queued, Unacked, Rtx, Refused, Held, Done };
mtype = { Ack, Notice, Map };

/* The sender. */
mtype st[N + 1] = Queued;    /* messages are 1..N in the order of the flow */
byte seq[N + 1];
bool flagged[N + 1];         /* RETRANSMITTED */
byte nextTx = 1, ackMax;
byte gate, noticesIn;        /* the last notice that HELLO named; the last one taken */
bool settling, stopped, released, remoteFull;

/* The receiver. */
byte rxLast, delivered;      /* messages 1..delivered were accepted */
bool isFull, mapDirty, mapTold, refusing;
byte about[SEQS + 1];        /* by a notice's sequence: that of the message it is about */
byte noticeTop, noticePosted;
byte fulls, breaks;

chan data = [N] of { byte, byte, bool, bool };   /* message, sequence, flagged, resume */
chan back = [3] of { mtype, byte, byte };        /* kind, ack, notice's sequence or the map's bit */

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

/* pick chooses the next message: first retransmissions, then the queue. */
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
			settleTo(about[x] - 1);      /* notices come in order: the others before it were accepted */
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
	/* As Conn.pump orders them: the map, notices, an ack of its own. */
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

/* The application at the destination stops reading, and reads again. */
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
		/* down() clears the map */
		remoteFull = false;
		/* resume(): HELLO has the ack rxLast and the notice noticeTop */
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
		/* the peer's resume() does not send the notices again that the sender has taken */
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
