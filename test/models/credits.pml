/*
 * Receive credits between two sides that send whenever they can. Every SEND uses
 * a credit. Every receive buffer that is posted again returns one. The last credit
 * is only for a frame that returns credits.
 *
 * Code: conn/credits.go (canSend, creditsDue), conn/send.go (pump), conn/ack.go
 * (piggyback), conn/recv.go (recvFrames).
 *
 * Safety: no SEND comes without a receive buffer for it, and a side never has more
 *   credits than its peer has buffers.
 * Liveness: everything is sent, and then both sides fall silent.
 */

#ifndef C0
#define C0 4             /* receive buffers of side 0; MinCredits */
#endif
#ifndef C1
#define C1 4
#endif
#ifndef LOAD
#define LOAD 6           /* messages each side may want to send */
#endif

#define other(s) (1 - (s))
#define grants(s) ((s) == 0 -> C0 : C1)
#define half(s) (grants(s) / 2)

#if defined(BROKEN_DUE_ONE)
#define due(s) 1
#elif defined(BROKEN_DUE_ALL)
#define due(s) grants(s)
#else
#define due(s) (half(s) > 2 -> half(s) : 2)
#endif

#ifdef BROKEN_LAST_CREDIT
#define canSend(s) (credits[s] > 0)
#else
#define canSend(s) (credits[s] > 1 || credits[s] == 1 && owed[s] > 0)
#endif

typedef Line { chan c = [C0 + C1 + 1] of { byte, bit } };   /* credits returned, ack asked for */
Line to[2];

byte credits[2];   /* SENDs the peer has room for */
byte owed[2];      /* buffers posted again and not yet returned as credits */
byte granted[2];   /* SENDs the peer may still post */
byte todo[2];
bool ackNow[2];

inline frame(me, ask) {
	assert(credits[me] > 0);
	credits[me]--;
	granted[me] = granted[me] + owed[me];
	to[other(me)].c!owed[me], ask;
#ifndef BROKEN_RETURNED_TWICE
	owed[me] = 0;
#endif
	ackNow[me] = false
}

proctype Side(byte me) {
	byte n; bit ask;
end:	do
	:: atomic { todo[me] > 0 && canSend(me) ->
		todo[me]--;
		if
		:: frame(me, 0)
		:: frame(me, 1)
		fi }
	:: atomic { todo[me] == 0 && (ackNow[me] || owed[me] >= due(me)) && canSend(me) -> frame(me, 0) }
	:: atomic { to[me].c?n, ask ->
		assert(granted[me] > 0);
		granted[me]--;
		owed[me]++;
		credits[me] = credits[me] + n;
		assert(credits[me] <= grants(other(me)));
		ackNow[me] = ackNow[me] || ask;
		n = 0; ask = 0 }
	od
}

#define allSent (todo[0] == 0 && todo[1] == 0)
#define silent (len(to[0].c) == 0 && len(to[1].c) == 0)

init {
	atomic {
		credits[0] = C1; credits[1] = C0;
		granted[0] = C0; granted[1] = C1;
		do
		:: todo[0] < LOAD -> todo[0]++
		:: todo[1] < LOAD -> todo[1]++
		:: break
		od;
		run Side(0); run Side(1)
	}
	timeout -> assert(allSent)   /* no process can go on */
}

ltl sent { <>[] allSent }
ltl silence { <>[] silent }
