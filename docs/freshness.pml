/*
 * The protocol behind "certainly absent" (freshness.md), for the model checker spin.
 *
 * A creates orders, B is asked for them, Redis keeps the change log. spin tries every
 * order of their steps, every delay and loss of a message, and the faults that are
 * switched on. It looks for one thing: that B answers Absent for an order although its
 * client had been told of it before B was asked. tests/model_test.go runs the
 * configurations, and the mutations (M_...): each of those leaves out one rule of the
 * protocol, and has to be found out.
 *
 *	spin -a -DFLUSH freshness.pml
 *	gcc -O2 -DSAFETY -DNOREDUCE -DCOLLAPSE -o pan pan.c
 *	./pan -m100000
 *
 * Configurations, which may be combined:
 *
 *	FAILOVER  a replica that lags takes over, once; the old master is dead
 *	SPLIT     a replica takes over, once; the old master goes on and is still asked
 *	FLUSH     all data of Redis is lost, once
 *	DELETE    one of its keys is lost, once
 *	CLOCK     its clock is set back by 1 or 2 ticks, once
 *	CRASH     A dies, or takes its leave, and starts again under its name, once
 *	REMOVE    a member whose lease was over for R ticks is taken for gone
 *	RESTART   B starts again, from a snapshot or from nothing, once
 *	PAGED     a page has one entry, and there are orders that nobody asks for
 *	IDS=2     two orders are created, not one
 *	SCOPE     no doubt is about an ID that the source has told of; and with IDS=2 nobody can
 *	          read the ID of the second order, so that a doubt is appended for it, which leaves
 *	          out the first if that was created before the call began
 *	RUNNING   the create is abandoned: what is appended is a doubt, and the backend may
 *	          commit the order when everybody has been told of that, less than O ticks after
 *	          the call was given up. With SCOPE, the order's number is one that the table
 *	          counts up, and readings begin behind a mark
 *
 * Time is in ticks. A lease of L is over when more than L ticks have passed, that is
 * after T = L + 1. What several ordergates do that create, or that are asked, is left
 * out: each of them answers only for itself.
 */

#ifndef T
#define T 2	/* ticks after which a lease is over */
#endif
#define R 2	/* ticks after which a member is taken for gone */
#define O 2	/* ticks after which an abandoned create runs no more: overlap, and 1 as in T */
#define N 6	/* entries that a log has room for */
#ifdef PAGED
#define P 1	/* entries in a page */
#else
#define P N
#endif
#ifdef CLOCK
#define BACK (back -> 0 : 2)	/* ticks that the clock may still be set back by */
#define G 1	/* ticks between two pages of B, at most, for it to be sure of the clock */
#else
#define BACK 0
#define G 0
#endif
#if defined(FAILOVER) || defined(SPLIT)
#define SERVERS 2
#define EACH_SERVER(f) f(0); f(1)
#define CASES_SERVER(f, i) f(i, 0) f(i, 1)
#else
#define SERVERS 1
#define EACH_SERVER(f) f(0)
#define CASES_SERVER(f, i) f(i, 0)
#endif
#if defined(IDS) && IDS > 1
#define EACH(f) f(0); f(1)
#define CASES(f) f(0) f(1)
#define ALL(f) (f(0) && f(1))
#define ANY(f) (f(0) || f(1))
#else
#define IDS 1
#define EACH(f) f(0)
#define CASES(f) f(0)
#define ALL(f) f(0)
#define ANY(f) f(0)
#endif

/*** What there is ***/

/* An entry of the log is an order, counted from 1, or a doubt. Its nonce is the server
 * that wrote it, which tells it from others with its number. 0 was deleted. */
#define OTHER 2	/* PAGED: an order that nobody asks for */
#define MISSED 2 /* SCOPE: the doubt about the second order */
#define DOUBT 3
#define ENTRY(s, what) (4*(s) + (what))
#define WHAT(entry) ((entry) & 3)

typedef Redis {
	bool alive;
	byte epoch;	/* of the log, 0: it has none */
	byte era;
	bool termed;	/* meta.term is the name of this server's history */
	byte log[N];
	byte seq;	/* number of its last entry */
	bool member;	/* A is one, ... */
	byte which;	/* ... in this incarnation */
	short left;	/* ticks until its lease is over */
	byte gone;	/* ticks since it is over; for REMOVE */
	bool robbed;	/* it has not as many members as meta.members says */
	short ahead	/* of meta.now, the clock; for CLOCK */
}
Redis redis[SERVERS];
byte epochs, eras;	/* how many there were: none is given twice */
#define HISTORY(s) (1 + 4*redis[s].epoch + s)
#define SERVER(history) (((history)-1) & 3)

/* The backend has committed an order when it is APPENDED. It is WAITING when that took
 * too long or is done: the answer has still to be passed on. */
#define NEW 0
#define APPENDED 1
#define WAITING 2
#define TOLD 3	/* its client knows of it */
#define DEAD 4	/* A ended before */
byte order[IDS];

#ifdef RUNNING
/* What is appended is the doubt, when the call is given up. */
bool made;		/* the backend has committed the order */
byte ran;		/* ticks since the call was given up */
#ifdef SCOPE
bool numbered;		/* its transaction has its number, ... */
byte open;		/* ... for so many ticks */
bool beyond;		/* there is a row with a greater number */
#endif
#define EXISTS(i) made
#else
#define EXISTS(i) (order[i] != NEW)
#endif

/* What A sent to Redis may be on its way for ever. What Redis answers is lost or comes
 * at once, since an answer that comes late only makes A wait longer. */
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
	short base;	/* the age that it has by the server's clock */
	byte sent	/* ticks ago; for REMOVE */
}
Request asked, stray;	/* of A, and of the incarnation before it */

/* What A knows. */
byte aAt;		/* the server that it asks */
byte aWhich;
bool aJoined, aEver;	/* it is a member; it has been one */
byte aHistory, aEra;	/* of the last reply, which is the base of the next renewal */
short aBase;		/* the age of that base, by the server's clock */
byte aGrants;		/* ticks until a lease from that base is certainly over */
byte aLease[SERVERS];	/* ticks until the lease there is certainly over */
byte aFence;		/* ticks until it may be taken for gone; for REMOVE */
bool owes[IDS];
byte ackIn[IDS];	/* the history that has the order, 0: none for certain */

/* What B knows. */
byte bAt, bServer;	/* the server that it asks; that of the last page */
bool has[IDS];		/* its filter */
byte bEpoch, bPos, bLast;
bool bFresh;		/* it begins with whatever log there is */
bool doubted;
bool reading, stale;	/* the source is being read; that began before the last doubt */
bool found[IDS];
#ifdef SCOPE
bool missed, staleMissed; /* the same of the doubt about the second order */
bool elder;		/* the first order was there when the call for the second began */
bool passed[IDS];	/* the source has told of the ID: its mark is behind that */
#endif
#ifdef RUNNING
bool running, staleRunning; /* the same of the doubt about the abandoned create */
byte late;		/* ticks until a reading may clear that */
#ifdef SCOPE
byte seen = O+1;	/* ticks since the row with a greater number was seen last; O+1: never */
bool ripe;		/* it was seen long enough before the reading began */
#endif
#endif
byte bKnows;		/* the incarnation of A that is a member, counted from 1 */
byte chain, since;	/* ticks: with no gap in its pages; since the last; for CLOCK */

/* A lookup of B. */
#define NONE 0
#define ASKED 1
#define PAGING 2	/* the barrier needs more pages */
#define TRUSTED 3	/* the barrier is done */
#define HALF 4		/* and the first of the last two steps */
#define ABSENT 5	/* and the second */
byte lookup, wanted, goal;
bool sure;
bool lastSure;		/* for M_PAGE_BEFORE */

/* B's snapshot, and the faults that there were. */
bool kept, kHas[IDS], kDoubted, kFresh;
byte kEpoch, kPos, kLast;
byte others;
bool frozen, promoted, lost, back, again, restarted;

/* From where on nothing can go wrong: B has all orders that there will be. */
#ifdef RUNNING
#define FOUND(i) (has[i] || order[i] == DEAD || (!made && ran == O))
#else
#define FOUND(i) (has[i] || order[i] == DEAD)
#endif
#ifdef RESTART
#define OVER (restarted && lookup == NONE && ALL(FOUND))
#else
#define OVER (lookup == NONE && ALL(FOUND))
#endif

/*** Redis ***/

inline put(s, what) {
	redis[s].log[redis[s].seq] = ENTRY(s, what);
	redis[s].seq++
}

/* Appends an order, unless the log has it: once is as good as twice. */
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

inline setMember(s, incarnation) {
	redis[s].member = true;
	redis[s].which = incarnation;
	redis[s].left = 0;
	redis[s].gone = 0
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
/* Is there room for what a script may append? The model goes no further where there is
 * not: only REMOVE gets there. */
#define ROOM(s) (redis[s].alive && redis[s].seq + 2 < N)
#define ROOM_TO_READ(s) (redis[s].alive && (redis[s].seq + 2 <= N || (redis[s].epoch != 0 && !redis[s].robbed && redis[s].termed && !OVERDUE(s))))

/* What every script begins with. */
inline enter(s) {
	if
#ifdef M_ALONE
	:: redis[s].epoch == 0 ->
#else
	:: redis[s].epoch == 0 || redis[s].robbed ->
#endif
		redis[s].robbed = false;
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
#define NEVER (T + BACK)	/* the age of a base that grants nothing any more */

inline serve(m, s) {
	enter(s);
	if
	:: m.what == PAGE && redis[s].member && redis[s].which == m.which && m.base >= 0 && m.base < NEVER && IN_ERA(m, s) ->
		redis[s].left = LEASE(m);
		redis[s].gone = 0
	:: m.what == JOIN && !(redis[s].member && redis[s].which == m.which) ->
#ifndef M_NO_CRASH
		if
		:: redis[s].member -> put(s, DOUBT)
		:: else
		fi;
#endif
		setMember(s, m.which)
	:: m.what == LEAVE && redis[s].which == m.which ->
#ifndef M_LEAVE_ANY
		if
		:: redis[s].member && m.era != redis[s].era -> put(s, DOUBT)
		:: else
		fi;
#endif
		redis[s].member = false
	:: else
	fi
}

/*** A ***/

#define OWES(i) owes[i]
#ifdef M_RENEW_ONE
#define OWING ALL(OWES)
#else
#define OWING ANY(OWES)
#endif
#define PENDING(i) (order[i] == APPENDED || order[i] == WAITING)

/* What is taken for granted, and A cannot know: B will see it among the members, or did
 * so and Redis forgot it; or B sees the one before it, which is missed once its lease is
 * over. */
#if defined(M_UNSEEN) || defined(M_NOT_JOINED) || defined(REMOVE)
#define SEEN true
#elif defined(RUNNING)
#define SEEN (bKnows == aWhich+1)
#elif SERVERS > 1
#define SEEN (bKnows == aWhich+1 || (SEEN_AT(0) && SEEN_AT(1)))
#else
#define SEEN (bKnows == aWhich+1 || SEEN_AT(0))
#endif
#define LEAVING (stray.on && stray.what == LEAVE)
#define SEEN_AT(s) (!redis[s].alive || (redis[s].member && (redis[s].which == aWhich || !LEAVING)))

#ifdef M_NOT_JOINED
#define MAY_CREATE true
#else
#define MAY_CREATE aEver
#endif

/* An acknowledgement counts if it comes from the history that the last reply came from,
 * and once the lease is over that A had elsewhere. */
#ifdef M_ANY_ACK
#define COUNTS(history) true
#else
#define COUNTS(history) ((history) == aHistory)
#endif
#if defined(RUNNING) && !defined(SPLIT)
#define LOGGED(i) (ackIn[i] != 0 && SEEN)
#elif !defined(SPLIT)
#define LOGGED(i) (ackIn[i] != 0)
#elif defined(M_TWO_LEASES)
#define LOGGED(i) (ackIn[i] != 0 && SEEN)
#else
#define LOGGED(i) (ackIn[i] != 0 && SEEN && aLease[(ackIn[i] != 0 -> 1-SERVER(ackIn[i]) : 0)] == 0)
#endif

/* Else it has to wait until all of its leases are over. */
#define NO_LEASE(s) aLease[s] == 0
#if SERVERS > 1
#define NO_LEASES (NO_LEASE(0) && NO_LEASE(1))
#else
#define NO_LEASES NO_LEASE(0)
#endif
#ifdef M_NO_WAIT
#define WITHDRAWN SEEN
#elif defined(REMOVE) && !defined(M_NO_FENCE)
#define WITHDRAWN (SEEN && NO_LEASES && aFence > 0)
#else
#define WITHDRAWN (SEEN && NO_LEASES)
#endif

#ifdef SCOPE
#define BEGIN(i) elder = (i == 1 -> order[0] != NEW : elder)
#else
#define BEGIN(i) skip
#endif

#define CREATE(i) \
	:: d_step { order[i] == NEW && MAY_CREATE -> order[i] = APPENDED; append[2*i+aAt] = true; BEGIN(i) } \
	:: d_step { order[i] == APPENDED -> order[i] = WAITING; owes[i] = true } \
	:: d_step { owes[i] && !append[2*i+aAt] -> append[2*i+aAt] = true } \
	:: d_step { order[i] == WAITING && (LOGGED(i) || WITHDRAWN) -> order[i] = TOLD }

inline acknowledge(i, s) {
	if
	:: COUNTS(HISTORY(s)) && (PENDING(i) || owes[i]) ->
		ackIn[i] = HISTORY(s);
		owes[i] = false;
#ifdef M_PAYS_OLDER
		owes[0] = false;
#endif
		order[i] = (order[i] == APPENDED -> WAITING : order[i])
	:: else
	fi
}

#define APPEND(i, s) \
	:: d_step { append[2*i+s] && ROOM(s) -> append[2*i+s] = false; enter(s); putOrder(s, i, n) } \
	:: d_step { append[2*i+s] && ROOM(s) -> append[2*i+s] = false; enter(s); putOrder(s, i, n); acknowledge(i, s) }
#define APPENDS(i) CASES_SERVER(APPEND, i)

/* Another history than the one that has the order may not have it. A remembers so many
 * orders, and no more: but where only this helps, it remembers none here. That is for
 * SPLIT, and for RUNNING, since the order is in no table yet. */
inline perhapsLost(i) {
#if (defined(SPLIT) || defined(RUNNING)) && !defined(M_NOT_AGAIN)
	if
	:: ackIn[i] != 0 && ackIn[i] != aHistory -> ackIn[i] = 0; owes[i] = true
	:: else
	fi;
#endif
	skip
}

/* The reply of a server, to what was sent some ticks ago. */
inline replied(s, ago) {
	aHistory = HISTORY(s);
	aEra = redis[s].era;
	aBase = 0;
	aGrants = T + G;
	aJoined = redis[s].member && redis[s].which == aWhich;
	aEver = aEver || aJoined;
	EACH(perhapsLost);
#ifdef REMOVE
	if
	:: aJoined && redis[s].left > 0 && ago < R && R - ago > aFence -> aFence = R - ago
	:: else
	fi;
#endif
	skip
}

inline clearRequest(m) {
	m.on = false; m.what = 0; m.to = 0; m.which = 0; m.era = 0; m.base = 0; m.sent = 0
}

#ifdef M_RENEW_OWING
#define MAY_RENEW (aJoined && aBase < NEVER)
#else
#define MAY_RENEW (aJoined && aBase < NEVER && !OWING)
#endif

active proctype A() provided (!OVER) {
	byte n;
end:	do
	CASES(CREATE)
	CASES(APPENDS)
	/* It asks to become a member, or to have its lease renewed. What it asked before
	 * is lost then. */
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
	:: d_step { asked.on && ROOM(asked.to) -> serve(asked, asked.to); clearRequest(asked) }
	:: d_step { asked.on && ROOM(asked.to) -> serve(asked, asked.to); replied(asked.to, asked.sent); clearRequest(asked) }
	:: d_step { stray.on && ROOM(stray.to) -> serve(stray, stray.to); clearRequest(stray) }
	/* It reads, and renews nothing. */
	:: d_step { ROOM(aAt) -> enter(aAt); replied(aAt, 0) }
#if SERVERS > 1
	:: d_step { promoted && aAt == 0 -> aAt = 1 }
#endif
	od
}

/*** B ***/

inline doubt() { doubted = true; stale = true }

inline notStale() {
	stale = false;
#ifdef SCOPE
	staleMissed = false;
#endif
#ifdef RUNNING
#ifdef M_AT_ONCE
	staleRunning = false;
#else
	staleRunning = (late > 0);
#endif
#endif
	skip
}

inline forgetLookup() { lookup = NONE; wanted = 0; goal = 0; sure = false }

/* The log is not what it was: B reads all that there is of the one that there is. */
inline startOver() {
	doubt();
	bFresh = true;
	bEpoch = 0; bPos = 0; bLast = 0
}

/* Has Redis forgotten its members? Then B makes A one again, with a lease that is over,
 * if it knew it. */
inline meet(s) {
	if
	:: !redis[s].member && bKnows > 0 && (bFresh || s != bServer) ->
#ifndef M_FORGETFUL
		setMember(s, bKnows-1);
#endif
		skip
	:: else -> bKnows = (redis[s].member -> redis[s].which+1 : 0)
	fi;
	bServer = s
}

#define BROKEN(s) (redis[s].epoch != bEpoch || bPos > redis[s].seq || (bPos > 0 && redis[s].log[(bPos > 0 -> bPos-1 : 0)] != bLast))
#ifdef M_IGNORE_LAPSED
#define LAPSED(s) false
#else
#define LAPSED(s) (redis[s].member && redis[s].left <= 0)
#endif
#if defined(CLOCK) && !defined(M_UNSTEADY)
#define SURE(s) (!LAPSED(s) && chain >= T + G)
#else
#define SURE(s) !LAPSED(s)
#endif

/* For how long a call has run on, as far as Redis's clock tells. */
#ifdef M_FORWARD
#define AGE (ran < O -> ran+1 : ran)
#else
#define AGE ran
#endif

/* Leaves n above 0 if an entry is missing. */
inline readEntries(s, n) {
	do
	:: bPos < redis[s].seq && n < P ->
		bLast = redis[s].log[bPos];
		n++;
		if
		:: bLast == 0 && !bFresh -> startOver(); break
		:: bLast == 0 && bFresh
		:: WHAT(bLast) == DOUBT -> doubt()
#ifdef PAGED
		:: WHAT(bLast) == OTHER
#endif
#ifdef SCOPE
		:: WHAT(bLast) == MISSED -> missed = true; staleMissed = true
#endif
#ifdef RUNNING
		/* Its entry tells how old it is. */
		:: WHAT(bLast) == 1 -> running = true; staleRunning = true; late = O - AGE
#endif
		:: else -> has[WHAT(bLast)-1] = true
		fi;
		bPos++
	:: else -> n = 0; break
	od
}

/* A page is sent, answered and applied. Nothing happens in between that could not
 * happen before or after. */
inline readPage(s, n) {
	enter(s);
#ifdef CLOCK
	since = 0;
#endif
	n = 0;
	if
	:: !bFresh && BROKEN(s) -> startOver(); n = 1
	:: else ->
		meet(s);
		if
		:: bFresh ->
			bEpoch = redis[s].epoch;
#ifndef M_READ_FIRST
			stale = true
#endif
		:: else
		fi;
		if
		:: lookup == ASKED -> goal = redis[s].seq; sure = SURE(s)
#ifdef M_LAST_PAGE
		:: lookup == PAGING -> sure = SURE(s)
#endif
		:: else
		fi;
		readEntries(s, n)
	fi;
#ifdef M_PAGE_BEFORE
	lastSure = (n == 0) && SURE(s);
#endif
	if
	:: lookup == ASKED || lookup == PAGING ->
		if
		:: n == 0 && bPos < goal -> lookup = PAGING
		:: n == 0 && bPos >= goal && sure -> lookup = TRUSTED; goal = 0; sure = false
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

/* Is there a doubt that is about an order? */
#if !defined(SCOPE) && !defined(RUNNING)
#define DOUBTED(i) doubted
#define ANY_DOUBT doubted
#elif !defined(SCOPE)
#define DOUBTED(i) (doubted || running)
#define ANY_DOUBT (doubted || running)
#elif defined(RUNNING)
#define DOUBTED(i) ((doubted || running) && !passed[i])
#define ANY_DOUBT true	/* others have reasons to read, too */
#else
#ifdef M_SINCE_TOLD
#define BEFORE(i) (i == 1 || elder)
#else
#define BEFORE(i) (i == 0 && elder)
#endif
#define DOUBTED(i) ((doubted || (missed && !BEFORE(i))) && !passed[i])
#define ANY_DOUBT (doubted || missed)
#endif

inline readState() {
	if
	:: DOUBTED(wanted) -> forgetLookup()
	:: else -> lookup++
	fi
}

/* B is asked for an order that its client was told of, and sends a page for that. */
#ifdef M_STATE_EARLY
#define CALLED_FOR(i) (order[i] == TOLD && !has[i] && lookup == NONE && !DOUBTED(i))
#else
#define CALLED_FOR(i) (order[i] == TOLD && EXISTS(i) && !has[i] && lookup == NONE)
#endif
#ifdef M_PAGE_BEFORE
#define ASK(i) \
	:: d_step { CALLED_FOR(i) && lastSure -> wanted = i; lookup = TRUSTED }
#else
#define ASK(i) \
	:: d_step { CALLED_FOR(i) && ROOM_TO_READ(bAt) -> wanted = i; lookup = ASKED; readPage(bAt, n) }
#endif

#if defined(RUNNING) && defined(SCOPE)
/* The mark moves to a row that was seen long ago. */
inline beginReading(i) {
	found[i] = (EXISTS(i) && !passed[i]);
#ifdef M_MARK_EARLY
	ripe = beyond;
#else
	ripe = (seen == O);
#endif
	seen = (beyond && seen > O -> 0 : seen)
}
#else
inline beginReading(i) { found[i] = EXISTS(i) }
#endif
#ifndef SCOPE
#define PASS(i) skip
#elif defined(RUNNING)
#define PASS(i) passed[i] = passed[i] || ripe
#elif defined(M_PASS_ALL)
#define PASS(i) passed[i] = true
#else
#define PASS(i) passed[i] = passed[i] || found[i]
#endif
inline endReading(i) { has[i] = has[i] || found[i]; PASS(i); found[i] = false }
inline dropReading(i) { found[i] = false }

active proctype B() provided (!OVER) {
	byte n;
end:	do
	CASES(ASK)
	:: d_step { ROOM_TO_READ(bAt) -> readPage(bAt, n) }
	/* The last two steps of a lookup. */
#if defined(M_LOOK_FIRST)
	:: d_step { lookup == TRUSTED -> look() }
	:: d_step { lookup == HALF -> readState() }
#elif defined(M_STATE_EARLY)
	:: d_step { lookup == TRUSTED -> look(); lookup = (lookup == HALF -> ABSENT : lookup) }
#else
	:: d_step { lookup == TRUSTED -> readState() }
	:: d_step { lookup == HALF -> look() }
#endif
	:: lookup == ABSENT -> assert(false)
	/* The source is read, which has what was committed when that began. */
	:: d_step { ANY_DOUBT && !reading -> reading = true; notStale(); EACH(beginReading) }
	:: d_step { reading ->
		EACH(endReading);
		if
#ifdef M_OLD_READ
		:: !bFresh -> doubted = false
#else
		:: !bFresh && !stale -> doubted = false
#endif
		:: else
		fi;
#ifdef SCOPE
		missed = missed && staleMissed;
#endif
#if defined(RUNNING) && defined(M_ENDS_LATE)
		running = running && late > 0;
#elif defined(RUNNING)
		running = running && staleRunning;
#endif
		reading = false;
		notStale()
	   }
#if SERVERS > 1
	:: d_step { promoted && bAt == 0 -> bAt = 1 }
#endif
	od
}

/*** Time and faults ***/

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

inline older(age) {
	if
	:: age < NEVER -> age++
	:: else -> age = NEVER
	fi
}

/* A renewal that grants nothing any more may as well be lost. */
inline outdate(m) {
	older(m.base);
	if
	:: m.on && m.what == PAGE && m.base == NEVER -> clearRequest(m)
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
	:: redis[s].left > -BACK -> redis[s].left--
	:: else
	fi;
#ifdef CLOCK
	up(redis[s].ahead, BACK);
#endif
	down(aLease[s])
}

inline younger(age, ticks) {
	if
	:: age < NEVER -> age = age - ticks
	:: else
	fi
}

/* What only matters if the clock is set back later is as good as 0 then. */
inline setBack(ticks) {
	younger(asked.base, ticks); younger(aBase, ticks);
	redis[0].ahead = redis[0].ahead - ticks;
	redis[0].ahead = (redis[0].ahead > 0 -> 0 : redis[0].ahead);
	redis[0].left = redis[0].left + ticks;
	redis[0].left = (redis[0].left < 0 -> 0 : redis[0].left);
	back = true
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
	redis[1].gone = redis[0].gone
}

inline loseLog(n) {
	n = redis[0].seq;
	do
	:: n > 0 -> n--; redis[0].log[n] = 0
	:: else -> break
	od;
	lost = true
}

inline loseMeta() {
	redis[0].epoch = 0; redis[0].era = 0; redis[0].ahead = BACK; redis[0].robbed = false;
	do
	:: redis[0].seq > 0 && redis[0].log[redis[0].seq-1] == 0 -> redis[0].seq--
	:: else -> break
	od;
	lost = true
}

inline loseMembers() {
	redis[0].robbed = (redis[0].robbed || redis[0].member);
	redis[0].member = false; redis[0].which = 0; redis[0].left = 0; redis[0].gone = 0;
	lost = true
}

inline endOrder(i) {
	if
	:: PENDING(i) -> order[i] = DEAD
	:: else
	fi;
	ackIn[i] = 0;
	owes[i] = false
}

/* A does not know what leases the one before it had. */
#ifdef M_HEIR
inline inherit(s) { aLease[s] = 0 }
#else
inline inherit(s) { aLease[s] = T + G }
#endif

/* What A sent last is still on its way: a leave, if it takes it. */
inline startAgain(leaves) {
	again = true;
	clearRequest(stray);
	if
	:: leaves -> stray.on = true; stray.what = LEAVE; stray.to = aAt; stray.which = aWhich; stray.era = aEra
	:: else ->
		stray.on = asked.on; stray.what = asked.what; stray.to = asked.to; stray.which = asked.which;
		stray.era = asked.era; stray.base = asked.base
	fi;
	clearRequest(asked);
	aWhich++;
	aJoined = false; aEver = false; aHistory = 0; aEra = 0; aBase = 0; aGrants = 0; aFence = 0;
	EACH_SERVER(inherit);
	EACH(endOrder)
}

#ifdef M_LEAVE_OWING
#define MAY_LEAVE aJoined
#else
#define MAY_LEAVE (aJoined && !OWING && !ANY(PENDING))
#endif

inline restart() {
	restarted = true;
#ifdef RUNNING
	running = false; late = 0;
#endif
	forgetLookup();
	reading = false;
	EACH(dropReading);
	bKnows = 0;
	chain = 0; since = 0
}

inline keep(i) { kHas[i] = has[i] }
inline takeBack(i) { has[i] = kHas[i] }
inline forget(i) { has[i] = false }

active proctype World() provided (!OVER) {
	byte n;
	d_step {
		redis[0].alive = true; redis[0].epoch = 1; redis[0].era = 1; redis[0].termed = true;
		epochs = 1; eras = 1;
		startOver()
	}
end:	do
#ifdef RUNNING
	/* What is left of an abandoned call. */
#ifdef SCOPE
	:: d_step { !numbered -> numbered = true }
	:: d_step { numbered && !beyond -> beyond = true }
	:: d_step { !made && ran < O && numbered && open < O -> made = true }
#else
	:: d_step { !made && ran < O -> made = true }
#endif
#endif
	:: d_step {
		EACH_SERVER(tick);
#ifdef RUNNING
		ran = (order[0] != NEW && ran < O -> ran+1 : ran);
		down(late);
#ifdef SCOPE
		open = (numbered && open < O -> open+1 : open);
		seen = (seen < O -> seen+1 : seen);
#endif
#endif
		outdate(asked);
		outdate(stray);
		older(aBase);
		down(aGrants);
#ifdef REMOVE
		up(asked.sent, R);
		down(aFence);
#endif
#ifdef CLOCK
		up(chain, T + G);
		up(since, G + 1);
		chain = (since > G -> 0 : chain);
#endif
	   }
#ifdef CLOCK
	:: d_step { !back -> setBack(1) }
	:: d_step { !back -> setBack(2) }
#endif
#ifdef FAILOVER
	/* What comes later does not reach the replica. */
	:: d_step { !frozen -> frozen = true; copyToReplica() }
	:: d_step { frozen && !promoted -> promoted = true; redis[0].alive = false; redis[1].alive = true }
#endif
#ifdef SPLIT
	:: d_step { !promoted -> promoted = true; copyToReplica(); redis[1].alive = true }
#endif
#ifdef FLUSH
	:: d_step { !lost -> loseLog(n); loseMembers(); loseMeta() }
#endif
#ifdef DELETE
	:: d_step { !lost -> loseLog(n) }
	:: d_step { !lost -> loseMeta() }
	:: d_step { !lost -> loseMembers() }
#endif
#ifdef CRASH
	:: d_step { !again -> startAgain(false) }
	:: d_step { !again && MAY_LEAVE -> startAgain(true) }
#endif
#ifdef PAGED
	:: d_step { others < 2 && ROOM(0) -> others++; put(0, OTHER) }
#endif
#ifdef RESTART
#if defined(RUNNING) && !defined(M_KEEP)
	:: d_step { !kept && !running ->
#else
	:: d_step { !kept ->
#endif
		kept = true;
		kEpoch = bEpoch; kPos = bPos; kLast = bLast; kFresh = bFresh;
#ifndef M_SNAPSHOT
		kDoubted = doubted;
#endif
		EACH(keep)
	   }
	:: d_step { kept && !restarted ->
		restart();
		bEpoch = kEpoch; bPos = kPos; bLast = kLast; bFresh = kFresh; doubted = kDoubted; stale = false;
		EACH(takeBack)
	   }
	:: d_step { !restarted -> restart(); startOver(); EACH(forget) }
#endif
	od
}
