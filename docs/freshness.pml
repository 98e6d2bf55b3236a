/*
 * The protocol behind "certainly absent" (freshness.md), for the model checker spin.
 *
 * A creates orders, B is asked for them, Redis keeps the change log. spin tries every
 * order of their steps, every delay and loss of a message, and the faults that are
 * switched on. It looks for one thing: that B answers Absent for an order although its
 * client had been told of it before B was asked. tests/model_test.go runs every
 * configuration, and every mutation (M_...): each leaves out one rule of the protocol,
 * and has to be found out.
 *
 *	spin -a -DFLUSH -DIDS=2 freshness.pml
 *	gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c
 *	./pan -m1000000
 *
 * Configurations, which may be combined:
 *
 *	FAILOVER  a replica that lags takes over, once; the old master is dead
 *	SPLIT     as FAILOVER, but the old master goes on, and either may be asked
 *	FLUSH     all data of Redis is lost, once
 *	DELETE    one of its keys is lost, once
 *	CLOCK     its clock is set back by up to D ticks, once
 *	CRASH     A dies, or takes its leave, and starts again under its name, once
 *	REMOVE    a member that lapsed R ticks ago is taken for gone
 *	RESTART   B starts again, from a snapshot or from nothing, once
 *	IDS       how many orders are created, 1 or 2
 *	P         how many entries there are in a page
 *
 * Time is in ticks. A lease of L is over when more than L ticks have passed, that is
 * after T = L + 1. What several ordergates do that create, or that are asked, is left
 * out: each of them answers only for itself.
 */

#ifndef IDS
#define IDS 1
#endif
#ifndef P
#define P 9
#endif
#ifndef T
#define T 2	/* ticks after which a lease is over */
#endif
#ifndef R
#define R 2	/* ticks after which a member that lapsed is taken for gone */
#endif
#ifndef N
#define N 6	/* entries that a log has room for */
#endif
#ifdef CLOCK
#define D 2	/* ticks that the clock is set back by, at most */
#define G 1	/* ticks between two pages of B for which it is sure of the clock */
#define MARGIN G
#else
#define D 0
#define MARGIN 0
#endif
#if defined(FAILOVER) || defined(SPLIT)
#define SERVERS 2
#else
#define SERVERS 1
#endif
#define NEVER (T + D)	/* the age of a base that grants nothing any more */

/* An entry of the log is an order, counted from 1, or a doubt. Its nonce is the server
 * that wrote it, which tells it from others with its number. 0 was deleted. */
#define DOUBT 3
#define ENTRY(s, what) (4*(s) + (what))
#define WHAT(e) ((e) & 3)

typedef Redis {
	bool alive;
	byte epoch;	/* of the log; 0: it has none */
	byte era;
	bool termed;	/* meta.term is the name of the server's history */
	byte log[N];
	byte seq;	/* of its last entry */
	bool member;	/* A is one, ... */
	byte which;	/* ... in this incarnation */
	short left;	/* ticks until its lease is over */
	byte gone;	/* ticks since it is over */
	bool knowsB;	/* B is a member too */
	short ahead	/* of the clock, to meta.now */
}
Redis redis[SERVERS];
byte epochs, eras;	/* how many there were: none is given twice */
#define HISTORY(s) (1 + 4*redis[s].epoch + s)
#define SERVER(history) (((history)-1) & 3)

/* 0: nobody has heard of the order. 1: the backend has committed it, and answered. It
 * is being appended. 2: that took too long, or is done, and the answer waits. 3: the
 * client was told. 4: A ended before. */
byte order[IDS];
#define NEW 0
#define APPENDED 1
#define WAITING 2
#define TOLD 3
#define DEAD 4

/* What A sent to Redis. It may be on its way for ever. What Redis answers is lost or
 * comes at once: an answer that comes late only makes A wait longer. */
bool append[2*IDS];	/* by 2*order + server */
#define PAGE 0
#define JOIN 1
#define LEAVE 2
typedef Request {
	bool on;
	byte what;
	byte to;
	byte which;	/* incarnation of A */
	byte era;	/* of the base */
	short base;	/* age of the base, by the server's clock */
	byte sent	/* ticks ago; for REMOVE */
}
Request asked, stray;	/* by A, and by its last incarnation */

/* What A knows. */
byte aAt;		/* the server that it asks */
byte aWhich;
bool aJoined, aEver;	/* it is a member; this incarnation was one before */
byte aHistory, aEra;	/* of the last reply, which is the base of the next renewal */
short aBase;		/* its age, by the server's clock */
byte aGrants;		/* ticks until a lease that is counted from it is certainly over */
byte aLease[SERVERS];	/* ticks until the lease there is certainly over */
byte aFence;		/* ticks until A may be taken for gone */
bool owes[IDS];
byte ackIn[IDS];	/* the history that has the order, 0: none for certain */

/* What B knows. */
byte bAt, bServer;	/* the server that it asks; that of the last page */
bool has[IDS];		/* the filter */
byte bEpoch, bPos, bLast;
bool bFresh;		/* it begins with whatever log there is */
bool doubted;
bool reading, stale;	/* the source is read; since before the last doubt */
bool found[IDS];
bool bKnows, bMisses;	/* A as a member */
byte chain, since;	/* ticks: without a gap in its pages; since the last */
byte lookup;		/* 0 none, 1 missed, 2 more pages are needed, 3 barrier done, 4 and the first of two last steps, 5 and the second */
byte wanted, goal;
bool sure;
#ifdef M_PAGE_BEFORE
bool lastSure;
#endif

/* B's snapshot, and which faults there were. */
bool kept, kHas[IDS], kDoubted, kFresh;
byte kEpoch, kPos, kLast;
bool frozen, promoted, lost, back, again, restarted;

/*** Redis ***/

inline put(s, what) {
	redis[s].log[redis[s].seq] = ENTRY(s, what);
	redis[s].seq++
}

/* Appends an order, unless the log has it: twice is as good as once. */
inline putOrder(s, i, n) {
	n = 0;
	do
	:: n < redis[s].seq && WHAT(redis[s].log[n]) != i+1 -> n++
	:: else -> break
	od;
	if
	:: n == redis[s].seq -> put(s, i+1)
	:: else
	fi;
	n = 0
}

inline lapse(s) {
	eras++;
	redis[s].era = eras;
	redis[s].left = 0;
	redis[s].gone = 0
}

#ifdef REMOVE
#define OVERDUE(s) (redis[s].member && redis[s].left <= 0 && redis[s].gone == R)
#else
#define OVERDUE(s) false
#endif
/* Is there room for what a script may append? The model ends where there is none. */
#define ROOM(s) (redis[s].seq + 2 < N)
#define ROOM_TO_READ(s) (redis[s].seq + 2 <= N || (redis[s].epoch != 0 && redis[s].termed && !OVERDUE(s)))

/* What every script begins with. */
inline enter(s) {
	if
	:: redis[s].epoch == 0 ->
		epochs++;
		redis[s].epoch = epochs;
		lapse(s);
		if
		:: redis[s].seq > 0 -> put(s, DOUBT)
		:: else
		fi
	:: else
	fi;
	if
	:: !redis[s].termed ->
		redis[s].termed = true;
#ifndef M_NO_LAPSE
		lapse(s);
#endif
#ifndef M_NO_TERM
		put(s, DOUBT);
#endif
	:: else
	fi;
#ifdef CLOCK
	if
	:: redis[s].ahead < 0 -> lapse(s)
	:: else
	fi;
	redis[s].ahead = 0;
#endif
	if
	:: OVERDUE(s) -> redis[s].member = false; put(s, DOUBT)
	:: else
	fi
}

#ifdef M_NO_ERA
#define IN_ERA(m, s) true
#else
#define IN_ERA(m, s) (m.era == redis[s].era)
#endif
#ifdef M_LEASE_FROM_NOW
#define LEASE(m) T
#else
#define LEASE(m) (T - m.base)
#endif

inline serve(m, s) {
	enter(s);
	if
	:: m.what == PAGE && redis[s].member && redis[s].which == m.which && m.base >= 0 && m.base < NEVER && IN_ERA(m, s) ->
		redis[s].left = LEASE(m);
		redis[s].gone = 0
	:: m.what == JOIN && (!redis[s].member || redis[s].which != m.which) ->
#ifndef M_NO_CRASH
		if
		:: redis[s].member -> put(s, DOUBT)
		:: else
		fi;
#endif
		redis[s].member = true;
		redis[s].which = m.which;
		redis[s].left = 0;
		redis[s].gone = 0
	:: m.what == LEAVE && redis[s].which == m.which ->
		redis[s].member = false
	:: else
	fi
}

/* From here on nothing can go wrong: B has all orders that there will be. */
#if defined(RESTART)
#define SETTLED restarted
#else
#define SETTLED true
#endif
#define KNOWN(i) (has[i] || order[i] == DEAD)
#if IDS > 1
#define OVER (SETTLED && KNOWN(0) && KNOWN(1))
#else
#define OVER (SETTLED && KNOWN(0))
#endif

inline clearRequest(m) {
	m.on = false; m.what = 0; m.to = 0; m.which = 0; m.era = 0; m.base = 0; m.sent = 0
}

/*** A ***/

#define PENDING(i) (order[i] == APPENDED || order[i] == WAITING)
#if IDS > 1
#define OWING (owes[0] || owes[1])
#define IDLE (!OWING && !PENDING(0) && !PENDING(1))
#else
#define OWING owes[0]
#define IDLE (!OWING && !PENDING(0))
#endif
#if SERVERS > 1
#define NO_LEASE (aLease[0] == 0 && aLease[1] == 0)
#define NO_LEASE_BUT_IN(h) (aLease[1-SERVER(h)] == 0)
#else
#define NO_LEASE (aLease[0] == 0)
#define NO_LEASE_BUT_IN(h) true
#endif

#ifdef M_NOT_JOINED
#define MAY_CREATE true
#else
#define MAY_CREATE aEver
#endif
#ifdef M_ANY_ACK
#define COUNTS(h) true
#else
#define COUNTS(h) ((h) == aHistory)
#endif
/* The log has it, and nobody can trust another one. */
#ifdef M_TWO_LEASES
#define LOGGED(i) (ackIn[i] != 0)
#else
#define LOGGED(i) (ackIn[i] != 0 && NO_LEASE_BUT_IN(ackIn[i]))
#endif
/* Nobody can trust any log, until A has appended what it owes. */
#ifdef M_NO_WAIT
#define WITHDRAWN true
#elif defined(REMOVE) && !defined(M_NO_FENCE)
#define WITHDRAWN (NO_LEASE && aFence > 0)
#else
#define WITHDRAWN NO_LEASE
#endif
#ifdef M_RENEW_OWING
#define MAY_RENEW (aJoined && aBase < NEVER)
#else
#define MAY_RENEW (aJoined && aBase < NEVER && !OWING)
#endif

#define CREATE(i) \
	:: d_step { order[i] == NEW && MAY_CREATE -> order[i] = APPENDED; append[2*i+aAt] = true } \
	:: d_step { order[i] == APPENDED -> order[i] = WAITING; owes[i] = true } \
	:: d_step { owes[i] && !append[2*i+aAt] -> append[2*i+aAt] = true } \
	:: d_step { order[i] == WAITING && (LOGGED(i) || WITHDRAWN) -> order[i] = TOLD }

inline runAppend(i, s) {
	append[2*i+s] = false;
	enter(s);
	putOrder(s, i, n)
}

inline acknowledged(i, s) {
	if
	:: COUNTS(HISTORY(s)) ->
		ackIn[i] = HISTORY(s);
		owes[i] = false;
		order[i] = (order[i] == APPENDED -> WAITING : order[i])
	:: else
	fi
}

#define APPEND(i, s) \
	:: d_step { append[2*i+s] && redis[s].alive && ROOM(s) -> runAppend(i, s) } \
	:: d_step { append[2*i+s] && redis[s].alive && ROOM(s) -> runAppend(i, s); acknowledged(i, s) }

/* Another history than the one that has the order may not have it. */
inline perhapsLost(i) {
	if
	:: ackIn[i] != 0 && ackIn[i] != aHistory ->
#ifndef M_NOT_AGAIN
		ackIn[i] = 0;
		owes[i] = true
#endif
	:: else
	fi
}

/* The reply of a server to a request that was sent some ticks ago. */
inline replied(s, ago) {
	aHistory = HISTORY(s);
	aEra = redis[s].era;
	aBase = 0;
	aGrants = T + MARGIN;
	aJoined = redis[s].member && redis[s].which == aWhich;
	aEver = aEver || aJoined;
	perhapsLost(0);
#if IDS > 1
	perhapsLost(1);
#endif
#ifdef REMOVE
	if
	:: aJoined && redis[s].left > 0 && ago < R && R - ago > aFence -> aFence = R - ago
	:: else
	fi;
#endif
	skip
}

#define REQUEST_COMES(m) (m.on && redis[m.to].alive && ROOM(m.to))

active proctype A() provided (!OVER) {
	byte n;
end:	do
	CREATE(0)
#if IDS > 1
	CREATE(1)
#endif
	APPEND(0, 0)
#if IDS > 1
	APPEND(1, 0)
#endif
#if SERVERS > 1
	APPEND(0, 1)
#if IDS > 1
	APPEND(1, 1)
#endif
	:: d_step { promoted && aAt == 0 -> aAt = 1 }
#ifdef SPLIT
	:: d_step { promoted && aAt == 1 -> aAt = 0 }
#endif
#endif
	/* It asks to be a member, or to have its lease renewed. If it asked before, that
	 * is lost. */
	:: d_step { !aJoined || MAY_RENEW ->
		clearRequest(asked);
		asked.on = true;
		asked.what = (aJoined -> PAGE : JOIN);
		asked.to = aAt;
		asked.which = aWhich;
		if
		:: aJoined ->
			asked.era = aEra;
			asked.base = aBase;
			aLease[aAt] = (aLease[aAt] > aGrants -> aLease[aAt] : aGrants)
		:: else
		fi
	   }
	:: d_step { REQUEST_COMES(asked) -> serve(asked, asked.to); clearRequest(asked) }
	:: d_step { REQUEST_COMES(asked) -> serve(asked, asked.to); replied(asked.to, asked.sent); clearRequest(asked) }
	/* It reads, and renews nothing. */
	:: d_step { redis[aAt].alive && ROOM(aAt) -> enter(aAt); replied(aAt, 0) }
#ifdef CRASH
	:: d_step { REQUEST_COMES(stray) -> serve(stray, stray.to); clearRequest(stray) }
#endif
	od
}

/*** B ***/

inline forgetLookup() { lookup = 0; wanted = 0; goal = 0; sure = false }

/* B has no log any more: it reads all that there is of the one that there is. */
inline startOver() {
	doubted = true;
	stale = true;
	bFresh = true;
	bEpoch = 0; bPos = 0; bLast = 0
}

/* Is A a member that Redis has forgotten? */
inline miss(s) {
	if
	:: redis[s].member -> bKnows = true; bMisses = false
#ifndef M_FORGETFUL
	:: !redis[s].member && bKnows && (bFresh || !redis[s].knowsB || s != bServer) -> bMisses = true
#endif
	:: else -> bKnows = bMisses
	fi;
	bServer = s;
	redis[s].knowsB = true
}

#if defined(CLOCK) && !defined(M_UNSTEADY)
#define STEADY (chain >= T + MARGIN)
#else
#define STEADY true
#endif
#ifdef M_IGNORE_LAPSED
#define LAPSED(s) false
#else
#define LAPSED(s) (redis[s].member && redis[s].left <= 0)
#endif
#define SURE(s) (!LAPSED(s) && !bMisses && STEADY)

/* Is the log not the one that was read so far? */
#define BROKEN(s) (redis[s].epoch != bEpoch || bPos > redis[s].seq || (bPos > 0 && redis[s].log[(bPos > 0 -> bPos-1 : 0)] != bLast))

inline readEntries(s, n) {
	do
	:: bPos < redis[s].seq && n < P ->
		bLast = redis[s].log[bPos];
		n++;
		if
		:: bLast == 0 && !bFresh -> startOver(); break
		:: bLast == 0 && bFresh
		:: WHAT(bLast) == DOUBT -> doubted = true; stale = true
		:: else -> has[WHAT(bLast)-1] = true
		fi;
		bPos++
	:: else -> n = 0; break
	od
}

/* One page: it is sent, answered and applied. While it is on its way nothing happens
 * here that could not happen before or after. */
inline readPage(s, n) {
	enter(s);
#ifdef CLOCK
	if
	:: since > G -> chain = 0
	:: else
	fi;
	since = 0;
#endif
	n = 0;
	if
	:: !bFresh && BROKEN(s) -> startOver(); n = 1
	:: else ->
		miss(s);
		if
		:: bFresh ->
			bEpoch = redis[s].epoch;
#ifndef M_READ_FIRST
			stale = true
#endif
		:: else
		fi;
		if
		:: lookup == 1 -> goal = redis[s].seq; sure = SURE(s)
#ifdef M_LAST_PAGE
		:: lookup == 2 -> sure = SURE(s)
#endif
		:: else
		fi;
		readEntries(s, n)
	fi;
#ifdef M_PAGE_BEFORE
	lastSure = (n == 0) && SURE(s);
#endif
	if
	:: n > 0 && (lookup == 1 || lookup == 2) -> forgetLookup()
	:: n == 0 && (lookup == 1 || lookup == 2) ->
		if
		:: bPos < goal -> lookup = 2
		:: bPos >= goal && sure -> lookup = 3; goal = 0; sure = false
		:: else -> forgetLookup()
		fi
	:: else
	fi;
	bFresh = (n > 0);
	n = 0
}

inline look() {
	if
	:: has[wanted] -> forgetLookup()
	:: else -> lookup++
	fi
}

inline readState() {
	if
	:: doubted -> forgetLookup()
	:: else -> lookup++
	fi
}

inline ask(i) {
	order[i] == TOLD && lookup == 0 && !has[i]
#ifdef M_STATE_EARLY
	&& !doubted
#endif
	-> wanted = i;
#ifdef M_PAGE_BEFORE
	lookup = (lastSure -> 3 : 1)
#else
	lookup = 1
#endif
}

active proctype B() provided (!OVER) {
	byte n;
end:	do
	/* B is asked for an order that its client was told of: it must not be absent. */
	:: d_step { ask(0) }
#if IDS > 1
	:: d_step { ask(1) }
#endif
	:: d_step { redis[bAt].alive && ROOM_TO_READ(bAt) -> readPage(bAt, n) }
	/* The last two steps, and Absent. */
#if defined(M_LOOK_FIRST)
	:: d_step { lookup == 3 -> look() }
	:: d_step { lookup == 4 -> readState() }
#elif defined(M_STATE_EARLY)
	:: d_step { lookup == 3 -> look(); lookup = (lookup == 4 -> 5 : lookup) }
#else
	:: d_step { lookup == 3 -> readState() }
	:: d_step { lookup == 4 -> look() }
#endif
	:: lookup == 5 -> assert(false)
	/* The source, which has what was committed when its reading began. */
	:: d_step { !reading && doubted ->
		reading = true;
		stale = false;
		found[0] = order[0] != NEW;
#if IDS > 1
		found[1] = order[1] != NEW
#endif
	   }
	:: d_step { reading ->
		has[0] = has[0] || found[0];
		found[0] = false;
#if IDS > 1
		has[1] = has[1] || found[1];
		found[1] = false;
#endif
		if
#ifdef M_OLD_READ
		:: !bFresh -> doubted = false
#else
		:: !bFresh && !stale -> doubted = false
#endif
		:: else
		fi;
		reading = false;
		stale = false
	   }
#if SERVERS > 1
	:: d_step { promoted && bAt == 0 -> bAt = 1 }
#ifdef SPLIT
	:: d_step { promoted && bAt == 1 -> bAt = 0 }
#endif
#endif
	od
}

/*** Time and faults ***/

inline older(age) {
	if
	:: age < NEVER -> age++
	:: else
	fi
}

/* A renewal that grants nothing any more may as well be lost. */
inline forgetOld(m) {
	if
	:: m.on && m.what == PAGE && m.base >= NEVER -> clearRequest(m)
	:: else
	fi
}

inline down(ticks) {
	if
	:: ticks > 0 -> ticks--
	:: else
	fi
}

inline up(ticks, most) {
	if
	:: ticks < most -> ticks++
	:: else
	fi
}

inline tick(s) {
#ifdef REMOVE
	if
	:: redis[s].member && redis[s].left <= 0 -> up(redis[s].gone, R)
	:: else
	fi;
#endif
	if
	:: redis[s].left > -D -> redis[s].left--
	:: else
	fi;
#ifdef CLOCK
	up(redis[s].ahead, D);
#endif
	down(aLease[s])
}

inline younger(age, ticks) {
	if
	:: age < NEVER -> age = age - ticks
	:: else
	fi
}

inline setBack(ticks) {
	redis[0].ahead = redis[0].ahead - ticks;
	redis[0].left = redis[0].left + ticks;
	younger(asked.base, ticks); younger(stray.base, ticks); younger(aBase, ticks)
}

inline copyToReplica() {
	redis[1].epoch = redis[0].epoch;
	redis[1].era = redis[0].era;
	do
	:: redis[1].seq < redis[0].seq ->
		redis[1].log[redis[1].seq] = redis[0].log[redis[1].seq];
		redis[1].seq++
	:: else -> break
	od;
	redis[1].member = redis[0].member;
	redis[1].which = redis[0].which;
	redis[1].left = redis[0].left;
	redis[1].gone = redis[0].gone;
	redis[1].knowsB = redis[0].knowsB
}

inline loseLog() {
	n = redis[0].seq;
	do
	:: n > 0 -> n--; redis[0].log[n] = 0
	:: else -> break
	od;
	n = 0
}

inline loseMeta() {
	redis[0].epoch = 0; redis[0].era = 0; redis[0].ahead = D;
	do
	:: redis[0].seq > 0 && redis[0].log[redis[0].seq-1] == 0 -> redis[0].seq--
	:: else -> break
	od;
	skip
}

inline loseMembers() {
	redis[0].member = false; redis[0].knowsB = false; redis[0].left = 0; redis[0].gone = 0;
	redis[0].which = 9
}

/* A member that Redis forgets is known to somebody else. */
#ifdef M_UNSEEN
#define SEEN true
#define MAY_PROMOTE true
#elif defined(SPLIT)
#define SEEN (bKnows || !aEver)
#define MAY_PROMOTE redis[0].member
#else
#define SEEN (bKnows || !aEver)
#define MAY_PROMOTE (SEEN || redis[1].member)
#endif

inline endA(i) {
	if
	:: PENDING(i) -> order[i] = DEAD
	:: else
	fi;
	ackIn[i] = 0;
	owes[i] = false
}

#ifdef M_LEAVE_OWING
#define MAY_LEAVE true
#else
#define MAY_LEAVE IDLE
#endif

/* What is on its way to Redis stays there; a LEAVE, if there is one, too. */
inline startAgain(leaves) {
	again = true;
	if
	:: leaves -> clearRequest(stray); stray.on = true; stray.what = LEAVE; stray.to = aAt; stray.which = aWhich
	:: else ->
		stray.on = asked.on; stray.what = asked.what; stray.to = asked.to; stray.which = asked.which;
		stray.era = asked.era; stray.base = asked.base
	fi;
	clearRequest(asked);
	aWhich++;
	aJoined = false; aEver = false; aHistory = 0; aEra = 0; aBase = 0; aGrants = 0; aFence = 0;
	aLease[0] = 0;
#if SERVERS > 1
	aLease[1] = 0;
#endif
	endA(0);
#if IDS > 1
	endA(1);
#endif
}

inline restartB() {
	forgetLookup();
	reading = false; stale = false;
	found[0] = false;
#if IDS > 1
	found[1] = false;
#endif
	bKnows = false; bMisses = false;
	chain = 0; since = 0
}

active proctype World() provided (!OVER) {
	byte n;
	d_step {
		epochs = 1; eras = 1;
		redis[0].alive = true; redis[0].epoch = 1; redis[0].era = 1; redis[0].termed = true;
		redis[0].which = 9;
		bFresh = true; doubted = true; stale = true
	}
end:	do
	:: d_step {
		tick(0);
#if SERVERS > 1
		tick(1);
#endif
		older(asked.base); older(stray.base); older(aBase);
		forgetOld(asked); forgetOld(stray);
		down(aGrants);
#ifdef REMOVE
		up(asked.sent, R); down(aFence);
#endif
#ifdef CLOCK
		up(chain, T + MARGIN); up(since, G + 1);
#endif
	   }
#ifdef CLOCK
	:: d_step { !back -> back = true; setBack(1) }
	:: d_step { !back -> back = true; setBack(2) }
#endif
#if SERVERS > 1
#ifdef SPLIT
	:: d_step { !promoted && MAY_PROMOTE -> promoted = true; copyToReplica(); redis[1].alive = true }
#else
	/* Nothing later than this reaches the replica. */
	:: d_step { !frozen -> frozen = true; copyToReplica() }
	:: d_step { frozen && !promoted && MAY_PROMOTE ->
		promoted = true;
		redis[1].alive = true;
		redis[0].alive = false
	   }
#endif
#endif
#ifdef FLUSH
	:: d_step { !lost && SEEN -> lost = true; loseLog(); loseMeta(); loseMembers() }
#endif
#ifdef DELETE
	:: d_step { !lost -> lost = true; loseLog() }
	:: d_step { !lost -> lost = true; loseMeta() }
	:: d_step { !lost && SEEN -> lost = true; loseMembers() }
#endif
#ifdef CRASH
	:: d_step { !again -> startAgain(false) }
	:: d_step { !again && aJoined && MAY_LEAVE -> startAgain(true) }
#endif
#ifdef RESTART
	:: d_step { !kept ->
		kept = true;
		kEpoch = bEpoch; kPos = bPos; kLast = bLast; kFresh = bFresh; kDoubted = doubted;
#ifdef M_SNAPSHOT
		kDoubted = false;
#endif
		kHas[0] = has[0];
#if IDS > 1
		kHas[1] = has[1]
#endif
	   }
	:: d_step { !restarted ->	/* from nothing */
		restarted = true;
		restartB();
		startOver();
		has[0] = false;
#if IDS > 1
		has[1] = false;
#endif
		skip
	   }
	:: d_step { !restarted && kept ->	/* from its snapshot */
		restarted = true;
		restartB();
		bEpoch = kEpoch; bPos = kPos; bLast = kLast; bFresh = kFresh; doubted = kDoubted;
		has[0] = kHas[0];
#if IDS > 1
		has[1] = kHas[1];
#endif
		skip
	   }
#endif
	od
}
