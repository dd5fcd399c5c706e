/*
 * Operations, each an RDMA and the message behind it. The connection may break
 * at any point, and the peer may restart or stay away. The model checks when the
 * high-water mark (HWM) passes operations, how they settle, and that none runs
 * twice.
 *
 * Code: conn/ops.go (postOp), conn/post.go (complete, completeAll),
 * conn/connect.go (fail, CQEmpty, down), conn/settle.go (resume, forget,
 * settleExpired), barrier.Mark.
 *
 * In ERR a queue pair is not dead. A posted operation may still run, and touch
 * its local buffer, until it has completed or the queue pair is destroyed.
 *
 * Safety:
 *   - No local buffer is touched once the HWM has passed its operation.
 *   - An operation runs at most once.
 *   - Its message is delivered only when its data is there.
 *   - An operation has one status. SUCCESS means that its message was delivered,
 *     and DROPPED that it was not.
 * Liveness:
 *   - Every posted operation becomes locally complete, so the HWM passes it, even
 *     if the peer never comes back.
 *   - Every posted operation gets its status, or the connection is up again.
 */

#ifndef N
#define N 2
#endif
#ifndef BREAKS
#define BREAKS 2
#endif

mtype = { Queued, Posted, Settled };
mtype = { None, Success, Dropped, Unknown };
mtype = { Up, Error, Down };

mtype conn = Up;
mtype st[N + 1] = Queued;
mtype status[N + 1] = None;
bool onQP[N + 1];            /* posted on the current queue pair */
bool done[N + 1];           /* locally complete */
byte hwm, ackMax;
byte posted;                 /* operations are posted, and numbered, in order */
bool late;                   /* the settle timer runs */

/* The send queue: operations in the order in which they were posted. */
chan sq = [N] of { byte };
bool ran[N + 1];             /* its RDMA has run on the current queue pair */
byte runs[N + 1];            /* how often its RDMA has run on all queue pairs */
chan acks = [N + 1] of { byte };

/* The peer. */
byte rxLast, received;
bool accepted[N + 1], data[N + 1];
byte instance, met, breaks;
bool deaf;                   /* the peer's end of the connection is gone */
#ifndef RESTARTS
#define RESTARTS 1
#endif

byte i;

inline raise() {
	do
	:: hwm < N && done[hwm + 1] -> hwm++
	:: else -> break
	od
}

inline finish(n, what) {
	assert(status[n] == None);
	assert(what != Success || accepted[n]);
	assert(what != Dropped || !accepted[n]);
	status[n] = what;
	st[n] = Settled
}

inline settleTo(ack) {
	for (i : 1 .. N) {
		if
		:: st[i] == Posted && i <= ack -> finish(i, Success)
		:: else
		fi
	}
	i = 0
}

inline endPosted(what) {
	for (i : 1 .. N) {
		if
		:: st[i] == Posted -> finish(i, what)
		:: else
		fi
	}
	i = 0
}

inline run_(n) {
	assert(hwm < n);             /* the application may not yet use its local buffer */
	ran[n] = true; runs[n]++; data[n] = true;
	assert(runs[n] <= 1)
}

/* The initiator posts the operations in order. */
proctype Post() {
end:	do
	:: atomic { conn == Up && posted < N && nfull(sq) ->
		posted++;
		st[posted] = Posted; onQP[posted] = true;
		sq!posted }
	od
}

/* The provider and the peer behind it: first the RDMA, then the SEND, then the
 * completion. In Error they may still go on for a while. */
proctype Provider() {
	byte n;
end:	do
	:: atomic { conn != Down && nempty(sq) ->
		sq?<n>;
		if
		:: !ran[n] -> run_(n)
#ifndef BROKEN_NO_ORDER
		:: ran[n] ->
#else
		:: true ->
#endif
			sq?n;
			/* the peer takes the message, unless its end of the connection is gone */
			if
			:: !deaf ->
				assert(data[n]);
				assert(!accepted[n] && status[n] == None);
				accepted[n] = true;
				rxLast = n;
				if
				:: conn == Up && nfull(acks) -> acks!n
				:: true
				fi
			:: conn == Error -> deaf = true
			:: conn == Up && deaf
			fi;
			/* the completion */
#ifdef BROKEN_SUCCESS_AT_COMPLETION
			if
			:: st[n] == Posted -> finish(n, Success)
			:: else
			fi;
#endif
			done[n] = true; raise()
		fi; n = 0 }
	od
}

proctype TakeAck() {
	byte n;
end:	do
	:: atomic { acks?n ->
		ackMax = (n > ackMax -> n : ackMax);
		settleTo(ackMax); n = 0 }
	od
}

inline flush() {
	/* the queue pair is destroyed: nothing on it can run any more */
	do
	:: sq?x -> ran[x] = false
	:: empty(sq) -> break
	od;
	do
	:: acks?x
	:: empty(acks) -> break
	od;
	x = 0; deaf = false
}

inline localAll() {
	for (i : 1 .. N) {
		if
		:: onQP[i] -> done[i] = true; onQP[i] = false
		:: else
		fi
	}
	i = 0;
	raise()
}

/* CQEmpty and down(): the queue pair has emptied and is destroyed. */
proctype Drain() {
	byte x;
end:	do
	:: atomic { conn == Error ->
#ifndef BROKEN_NO_DRAIN
		flush();
#endif
#ifndef BROKEN_HWM_AT_RECONNECT
		localAll();
#endif
		late = true;
		conn = Down }
	od
}

/* HELLO both ways. It may never come, because the peer may stay away. */
proctype Reconnect() {
	byte x;
	do
	:: atomic { conn == Down ->
#ifdef BROKEN_HWM_AT_RECONNECT
		localAll();
#endif
		if
		:: met == instance ->
			ackMax = (rxLast > ackMax -> rxLast : ackMax);
			settleTo(rxLast);
#ifdef BROKEN_REPLAY
			for (i : 1 .. N) {
				if
				:: st[i] == Posted -> done[i] = false; sq!i
				:: else
				fi
			}
			i = 0;
#else
			endPosted(Dropped);
#endif
#ifdef BROKEN_INSTANCE_IGNORED
		:: met != instance -> met = instance; settleTo(rxLast); endPosted(Dropped)
#else
		:: met != instance -> met = instance; endPosted(Unknown)
#endif
		fi;
		late = false;
		conn = Up }
	:: break
	od
}

/* The settle timer. */
proctype Settle() {
end:	do
	:: atomic { late && conn == Down -> late = false; endPosted(Unknown) }
	od
}

proctype Faults() {
	do
	:: atomic { breaks < BREAKS && conn == Up ->
		breaks++;
#ifdef BROKEN_HWM_EARLY
		localAll();
#endif
		conn = Error }
	/* The peer's daemon restarts. That ends the connection, too. */
	:: atomic { instance < RESTARTS && conn != Down ->
		instance++;
		rxLast = 0; deaf = true;
		if
		:: conn == Up -> conn = Error
		:: else
		fi }
	:: break
	od
}

init {
	atomic { run Post(); run Provider(); run TakeAck(); run Drain(); run Reconnect(); run Settle(); run Faults() }
}

#define posts1 (st[1] == Posted)
#define posts2 (st[2] == Posted)

ltl mark { [] ((posts1 -> <> done[1]) && (posts2 -> <> done[2])) }
ltl statuses { [] ((posts1 -> <> (status[1] != None || conn == Up)) && (posts2 -> <> (status[2] != None || conn == Up))) }
