/*
 * Two sides that connect to each other at any time: crossing requests,
 * abandoned attempts, stale events, and a break that one side never hears of.
 *
 * Code: conn/request.go (HandleRequest, accept, reject), conn/connect.go
 * (HandleCM, abandon, fail, CQEmpty, down).
 *
 * Side 0 has the smaller address. A back-off may take any time.
 *
 * Safety:
 *   - A side changes its state only along the edges in conn/state.go.
 *   - A ready side has the HELLO of its own connection's other end, and not that
 *     of an earlier connection.
 * Liveness: the number of breaks is bounded, so in the end both sides are ready
 *   and stay ready.
 */

#ifndef BREAKS
#define BREAKS 2
#endif

#define SLOTS 5            /* queue pairs of a side that exist or that events name */
#define NONE  0            /* queue pairs are 1..2*SLOTS; the first half is side 0's */
#define side(q) (((q) - 1) / SLOTS)
#define other(s) (1 - (s))

mtype = { Down, Connecting, Up, Error };
mtype = { Request, Established, Rejected, Failed, Disconnected };

typedef QP {
	byte peer;       /* NONE until joined */
	byte refs;       /* events and kept requests that name it */
	bool used;       /* not destroyed */
	bool err;        /* in ERR: carries nothing more */
	bool told;       /* Disconnected was raised for it, or never will be */
	bool hello;      /* its owner has sent HELLO on it */
};
QP qps[2 * SLOTS + 1];

typedef Side {
	mtype state = Down;
	byte own;
	byte kept;       /* a request that waits until the old queue pair has emptied */
	bool dialled, seen, ready, wants;
};
Side s[2];

chan events[2] = [12] of { mtype, byte };
byte breaks;
bool silent;       /* one break may go unnoticed at one end */

inline raise(to, ev, about) {
	assert(nfull(events[to]));
	qps[about].refs++;
	events[to]!ev, about
}

/* become is setState with the table in conn/state.go. */
inline become(me, next) {
	assert((s[me].state == Down && next == Connecting) ||
	       (s[me].state == Connecting && (next == Up || next == Down)) ||
	       (s[me].state == Up && next == Error) ||
	       (s[me].state == Error && next == Down));
	s[me].state = next
}

inline breakQP(n) {
	qps[n].err = true;
	qps[qps[n].peer].err = true     /* index NONE is no queue pair */
}

inline prepare(me, asActive) {
	i = me * SLOTS + 1;
	do
	:: qps[i].used || qps[i].refs > 0 -> i++; assert(i <= (me + 1) * SLOTS)
	:: else -> break
	od;
	qps[i].used = true; qps[i].err = false; qps[i].told = false;
	qps[i].hello = false; qps[i].peer = NONE;
	s[me].own = i; s[me].dialled = asActive;
	become(me, Connecting)
}

inline closeQP(me) {
	breakQP(s[me].own);
	qps[s[me].own].used = false;
	qps[qps[s[me].own].peer].peer = NONE;
	qps[s[me].own].told = true;
	s[me].own = NONE; s[me].ready = false;
#ifndef BROKEN_HELLO_KEPT
	s[me].seen = false
#endif
}

inline abandon(me) { closeQP(me); become(me, Down) }

inline reject(n) {
	if
	:: qps[n].used -> raise(side(n), Rejected, n)
	:: else
	fi
}

inline accept(me, n) {
	prepare(me, false);
	if
	:: !qps[n].used || qps[n].err -> raise(me, Failed, s[me].own)
	:: else ->
		qps[n].peer = s[me].own; qps[s[me].own].peer = n;
		raise(me, Established, s[me].own);
		raise(side(n), Established, n)
	fi
}

inline fail(me) {
	become(me, Error);
	breakQP(s[me].own);
	qps[s[me].own].told = true;
	s[me].ready = false
}

inline keep(me, n) {
#ifndef BROKEN_KEPT_FORGOTTEN
	s[me].kept = n; qps[n].refs++
#else
	skip
#endif
}

inline dropKept(me) {
	if
	:: s[me].kept != NONE -> reject(s[me].kept); qps[s[me].kept].refs--; s[me].kept = NONE
	:: else
	fi
}

#if defined(BROKEN_BOTH_REJECT)
#define ours(me) (s[me].dialled)
#elif defined(BROKEN_BOTH_YIELD)
#define ours(me) (false)
#else
#define ours(me) (s[me].dialled && me == 0)
#endif

inline handleRequest(me, n) {
	if
	:: s[me].state == Down -> accept(me, n)
	:: s[me].state == Connecting && ours(me) -> reject(n)
	:: s[me].state == Connecting && !ours(me) -> abandon(me); accept(me, n)
	:: s[me].state == Up && ours(me) && !s[me].ready -> reject(n)
#ifdef BROKEN_UP_REJECTS
	:: s[me].state == Up && !(ours(me) && !s[me].ready) -> reject(n)
#else
	:: s[me].state == Up && !(ours(me) && !s[me].ready) -> keep(me, n); fail(me)
#endif
	:: s[me].state == Error -> dropKept(me); keep(me, n)
	fi
}

inline broken(me) {
	if
	:: s[me].state == Connecting -> abandon(me)
	:: s[me].state == Up -> fail(me)
	:: else
	fi
}

#ifdef BROKEN_STALE_EVENTS
#define stale(me, n) (s[me].own == NONE)
#else
#define stale(me, n) (s[me].own != n)
#endif

inline handleCM(me, what, n) {
	if
	:: stale(me, n)                  /* of an earlier queue pair */
	:: !stale(me, n) && what != Established -> broken(me)
	:: !stale(me, n) && what == Established && s[me].state == Connecting ->
		become(me, Up);
		qps[s[me].own].hello = true;
		s[me].ready = s[me].seen
	:: !stale(me, n) && what == Established && s[me].state != Connecting
	fi
}

#define mine (s[me].own)
#define his  (qps[mine].peer)
#define cut  (mine != NONE && qps[mine].err)

/* Fairness is between processes. So each activity that must not wait for ever
 * for another one is a process of its own. */

proctype Conn(byte me) {
	mtype what; byte q, i;
end:	do
	:: atomic { events[me]?what, q ->
		qps[q].refs--;
		if
		:: what == Request -> handleRequest(me, q)
		:: else -> handleCM(me, what, q)
		fi; what = 0; q = 0; i = 0 }
	od
}

/* Something is to be sent, or the back-off has ended. */
proctype Dial(byte me) {
	byte i;
end:	do
	:: atomic { s[me].state == Down && s[me].wants ->
		prepare(me, true);
		raise(other(me), Request, s[me].own); i = 0 }
	od
}

proctype Provider(byte me) {
	byte q, i;
end:	do
	/* HELLO arrives, before or after our own Established. */
	:: atomic { mine != NONE && his != NONE && !cut && qps[his].hello && !s[me].seen &&
			(s[me].state == Up || s[me].state == Connecting) ->
		s[me].seen = true;
		s[me].ready = (s[me].state == Up) }
	/* The end of a connection is reported sooner or later. */
	:: atomic { cut && !qps[mine].told -> qps[mine].told = true; raise(me, Disconnected, mine) }
	/* The queue pair has emptied: down(). */
	:: atomic { s[me].state == Error ->
		closeQP(me); become(me, Down);
		if
		:: s[me].kept != NONE ->
			q = s[me].kept; s[me].kept = NONE; qps[q].refs--;
			accept(me, q)
		:: else
		fi; q = 0; i = 0 }
	od
}

/* The handshake's deadline. It fires only where nothing else would end the handshake. */
proctype Deadline(byte me) {
end:	do
	:: atomic { cut && qps[mine].told && empty(events[me]) &&
			(s[me].state == Connecting || s[me].state == Up && !s[me].ready) -> broken(me) }
	od
}

/* A connection may break at any time. One break may go unnoticed at one end, if
 * both ends want to connect. Attempts to connect may fail, too. */
active proctype Faults() {
	byte v;
end:	do
	:: atomic { breaks < BREAKS ->
		if
		:: v = 0
		:: v = 1
		fi;
		if
		:: s[v].own != NONE && !qps[s[v].own].err && qps[s[v].own].peer != NONE ->
			breaks++;
			breakQP(s[v].own);
			if
			:: !silent && s[0].wants && s[1].wants && s[v].state == Up && s[v].ready ->
				silent = true; qps[s[v].own].told = true
			:: true
			fi
		:: s[v].state == Connecting -> breaks++; abandon(v)
		:: else
		fi; v = 0 }
	:: break
	od
}

init {
	atomic {
		if
		:: s[0].wants = true
		:: s[1].wants = true
		:: s[0].wants = true; s[1].wants = true
		fi;
		run Conn(0); run Dial(0); run Provider(0); run Deadline(0);
		run Conn(1); run Dial(1); run Provider(1); run Deadline(1)
	}
}

#define bothReady (s[0].ready && s[1].ready)
#define alive(x) (s[x].own != NONE && !qps[s[x].own].err)
#define greeted(x) (!(s[x].ready && alive(x)) || qps[qps[s[x].own].peer].hello)

/* A ready side has the HELLO of the very queue pair at the other end. */
ltl hello { [] (greeted(0) && greeted(1)) }
/* If both ends are ready, they belong to the same connection. */
ltl paired { [] (!(bothReady && alive(0) && alive(1)) || qps[s[0].own].peer == s[1].own) }
ltl connects { <>[] (bothReady && qps[s[0].own].peer == s[1].own) }
