/*
 * The protocol behind "certainly absent" (freshness.md), for the model checker spin.
 *
 * A creates orders. B answers lookups of them by a window: a time that its last good read
 * of the change log has opened. Redis keeps the log. spin tries every order of their steps,
 * every delay and loss of a message, and the faults that are switched on. It looks for one
 * thing: B answers Absent for an order although A's client had been told of it before the
 * lookup came. tests/model_test.go runs the configurations, and the mutations (M_...): each
 * mutation leaves out one rule of the protocol, and spin has to find the error.
 *
 *	spin -a -DFLUSH freshness.pml
 *	gcc -O2 -DSAFETY -DNOREDUCE -o pan pan.c
 *	./pan -m100000
 *
 * Configurations, which may be combined:
 *
 *	FAILOVER  a replica that lags takes over, once; the old master is dead
 *	SPLIT     a replica takes over, once; the old master goes on and is still asked
 *	LAGS      it lacks two orders then that nobody asks for
 *	FLUSH     all data of Redis is lost, once
 *	DELETE    one of its keys is lost, once
 *	CLOCK     its clock is set back by 1 or 2 ticks, once
 *	CRASH     A dies, or takes its leave, and starts again under its name, once
 *	REMOVE    a member whose lease was over for R ticks is taken for gone
 *	RESTART   B starts again, from a snapshot or from nothing, once; and leaves
 *	SKEW      B's clock is slow by a tick at the end of a window
 *	WIDER     B's window is larger than A's
 *	PAGED     a page has one entry, and there are orders that nobody asks for
 *	OTHERS=1  there is one such order
 *	IDS=2     two orders are created, not one
 *	PROMPT    a read of B takes no time
 *	STRAY     but one of them may be late by any time
 *	LOST      but its reply may be lost
 *	HEARD     B hears of orders before it reads them
 *	READERS=2 there are two readers like B, and both are asked
 *	SCOPE     no doubt is about an ID that the source has told of; and with IDS=2 nobody can
 *	          read the ID of the second order, so that a doubt is appended for it, which leaves
 *	          out the first if that was created before the call began
 *	RUNNING   the create is abandoned: what is appended is a doubt, and the backend may
 *	          commit the order when everybody has been told of that, less than O ticks after
 *	          the call was given up. With SCOPE, the order's number is one that the table
 *	          counts up, and readings begin behind a mark
 *
 * Time is in ticks. A lease of L is over when more than L ticks have passed, that is
 * after T = L + 1. A window is over after V ticks in the same way. Several creators are left
 * out: each of them answers only for itself.
 */

#ifndef T
#define T 2	/* ticks after which a lease is over */
#endif
#ifndef V
#define V 2	/* ticks after which a window is over */
#endif
#ifdef SKEW
#define SLOW 1	/* ticks by which B's clock is late at the end of a window */
#else
#define SLOW 0
#endif
#ifdef M_NO_MARGIN
#define MARGIN 0
#else
#define MARGIN SLOW
#endif
#ifdef WIDER
#define WIDTH (V + 1)	/* ticks of B's window */
#else
#define WIDTH V
#endif
#define QUIET (WIDTH + MARGIN)	/* ticks after which a window of before is over, at most */
/* A window may be opened in the last tick of a lease, and that tick is one of both. */
#define AND_QUIET (QUIET - 1)
/* Who is forgotten matters to the orders after that. */
#if defined(IDS) && IDS > 1
#define FORGETTING
#endif
#define R (T + QUIET)	/* ticks after which a member is taken for gone */
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
#ifndef READERS
#define READERS 1
#endif
#if READERS > 1
#define EACH_READER(f) f(0); f(1)
#define CASES_READER(f, i) f(i, 0) f(i, 1)
#define BOTH(f) (f(0) && f(1))
#define EITHER(f) (f(0) || f(1))
#else
#define EACH_READER(f) f(0)
#define CASES_READER(f, i) f(i, 0)
#define BOTH(f) f(0)
#define EITHER(f) f(0)
#endif
#ifndef OTHERS
#ifdef PAGED
#define OTHERS 2	/* orders that nobody asks for */
#elif defined(LAGS)
#define OTHERS 1
#else
#define OTHERS 0
#endif
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
	bool parted;	/* meta names the first incarnation as one that left; no other one leaves */
	bool robbed;	/* it has not as many members as meta.members says */
	bool stripped;	/* nor as many readers as meta.readers says */
	bool reader[READERS];	/* it has this one ... */
	byte applied[READERS];	/* ... that reported so many entries, ... */
	byte reads[READERS];	/* ... and whose last read found so many */
#ifdef WIDER
	bool wide;	/* meta.window is B's */
#endif
	short ahead	/* of meta.now, the clock; for CLOCK */
}
Redis redis[SERVERS];
byte epochs, eras;	/* how many there were: none is given twice */
#define SERVER(era) ((era) & 1)	/* the server that began it */

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
byte aEra;		/* of the last reply, which is the base of the next renewal */
byte aSince;		/* ticks until windows are over that were opened before that era was seen */
#ifdef WIDER
bool aWide;		/* it was told of B's window */
#endif
short aBase;		/* the age of that base, by the server's clock */
byte aGrants;		/* ticks until a lease from that base is certainly over */
byte aLease[SERVERS];	/* ticks until the lease there is certainly over, and windows are */
byte aFence;		/* ticks until it may be taken for gone; for REMOVE */
bool owes[IDS];
byte ackIn[IDS];	/* the era whose log has the order, 0: none for certain */
byte ackLeft[IDS];	/* ticks until windows are over that were opened before */
#ifdef FORGETTING
byte ackNumber[IDS];	/* the number of its entry there */
#endif
byte reported[IDS];	/* the era in which all readers reported it, 0: none */

/* What a reader knows. */
#define J (_pid - 1)	/* which of them a process is */
#define IDLE 0
#define SENT 1		/* its read is on its way */
#define SURE 2		/* it was answered: nothing speaks against a window, ... */
#define UNSURE 3	/* ... a member is away, ... */
#define BROKEN 4	/* ... or the log is not what it was */
#define OPENED 5	/* for M_WINDOW_EARLY */
typedef Reader {
	byte at, server;	/* the server that it asks; that of the last page */
	bool has[IDS];		/* its filter */
	byte epoch, pos, last;
	byte ahead, heard;	/* the same of what it has heard of behind that, if anything */
	byte era;		/* of the page that was applied last, 0: it has yet to reach the tail */
	bool fresh;		/* it begins with whatever log there is */
	byte read;		/* what became of its read */
	byte left;		/* ticks until the window of that read is over */
	byte goal, replyEra;	/* the tail and the era in the reply */
	byte window;		/* ticks until the window is over, 0: there is none */
#ifdef WIDER
	bool replyWide;		/* the reply tells of a window as large as its own */
	bool sentWide;		/* its read was sent when it could use that */
	byte tried;		/* the era in which it asked last to be noted */
	bool noted;		/* Redis notes it as a reader in this era, */
	bool known;		/* and others had heard of its window before */
	byte narrow;		/* ticks for which it uses the smaller one */
#endif
	bool doubted;
	bool reading, stale;	/* the source is being read; that began before the last doubt */
	bool found[IDS];
#ifdef SCOPE
	bool missed, staleMissed; /* the same of the doubt about the second order */
	bool passed[IDS];	/* the source has told of the ID: its mark is behind that */
#endif
#ifdef RUNNING
	bool running, staleRunning; /* the same of the doubt about the abandoned create */
	byte late;		/* ticks until a reading may clear that */
#ifdef SCOPE
	byte seen;		/* ticks since the row with a greater number was seen last; O+1: never */
	bool ripe;		/* it was seen long enough before the reading began */
#endif
#endif
	byte knows;		/* the incarnation of A that is a member, counted from 1 */
	bool blind;		/* it opened its window when it knew of none */
	byte chain, since;	/* ticks: with no gap in its pages; since the last; for CLOCK */
#ifdef STRAY
	bool stray;		/* an earlier read is on its way still, ... */
	byte strayPos, strayLast, strayEra; /* ... with a report of that time */
#endif
	byte lookup, wanted
}
Reader r[READERS];
#ifdef SCOPE
bool elder;		/* the first order was there when the call for the second began */
#endif

/* A lookup, of an order that its client was told of. */
#define NONE 0
#define LOADED 1	/* the window was loaded, and held; or its first step of three */
#define HALF 2		/* and the second */
#define ABSENT 3	/* and the third */

/* B's snapshot, and the faults that there were. */
bool kept, kHas[IDS], kDoubted, kFresh;
byte kEpoch, kPos, kLast;
byte others;
bool frozen, promoted, lost, back, again, restarted;

/* From where on nothing can go wrong: all readers have all orders that there will be. */
#define HAS_0(j) r[j].has[0]
#if IDS > 1
#define HAS_1(j) r[j].has[1]
#define HAVE(i) (i == 0 -> BOTH(HAS_0) : BOTH(HAS_1))
#else
#define HAVE(i) BOTH(HAS_0)
#endif
#ifdef RUNNING
#define FOUND(i) (HAVE(i) || order[i] == DEAD || (!made && ran == O))
#else
#define FOUND(i) (HAVE(i) || order[i] == DEAD)
#endif
#define CALM(j) (r[j].lookup == NONE)
#ifdef RESTART
#define OVER (restarted && BOTH(CALM) && ALL(FOUND))
#else
#define OVER (BOTH(CALM) && ALL(FOUND))
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

inline removeReader(s, j) {
	redis[s].reader[j] = false; redis[s].applied[j] = 0; redis[s].reads[j] = 0
}

/* All leases end, and readers have to report anew. */
inline lapse(s) {
	eras++;
	redis[s].era = 2*eras + s;
	redis[s].left = 0;
	redis[s].gone = 0;
#ifndef M_READERS_STAY
	removeReader(s, 0);
#if READERS > 1
	removeReader(s, 1);
#endif
#endif
	redis[s].stripped = false
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

#ifdef M_STRIPPED
#define STRIPPED(s) false
#else
#define STRIPPED(s) redis[s].stripped
#endif

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
	if
	:: STRIPPED(s) -> lapse(s)
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
		redis[s].parted = (redis[s].parted || redis[s].member);
		redis[s].member = false
	:: else
	fi
}

/* What a read leaves in Redis: a report, if the reader has had a reply in the present era.
 * It has what it has read, up to an entry that stands in the log. What it has heard may come
 * from another server, and counts if that stands there, too. */
#define STANDS(s, at, entry) (at == 0 || (at <= redis[s].seq && redis[s].log[(at+N-1)%N] == entry))
#ifdef M_REPORT_ANY
#define NOTED(s, j) true
#define STRAY_NOTED(s, j) true
#else
#define NOTED(s, j) (r[j].era == redis[s].era)
#define STRAY_NOTED(s, j) (r[j].strayEra == redis[s].era)
#endif
#define READ_STANDS(s, j) STANDS(s, r[j].pos, r[j].last)
#define HEARD_STANDS(s, j) STANDS(s, r[j].ahead, r[j].heard)
#ifdef M_HEARD_ANY
#define COUNTS_HEARD(s, j) true
#else
#define COUNTS_HEARD(s, j) (READ_STANDS(s, j) && HEARD_STANDS(s, j))
#endif

inline noteReader(s, j) {
	redis[s].reader[j] = true;
#ifdef M_REPORT_TAIL
	redis[s].applied[j] = redis[s].seq;
#endif
#ifdef FORGETTING
	redis[s].reads[j] = redis[s].seq;
#endif
#ifdef WIDER
	redis[s].wide = true;
#endif
	skip
}

inline register(s, j) {
	if
	:: !NOTED(s, j)
	:: else ->
		if
		:: COUNTS_HEARD(s, j) -> redis[s].applied[j] = r[j].ahead
		:: !COUNTS_HEARD(s, j) && READ_STANDS(s, j) -> redis[s].applied[j] = r[j].pos
		:: else -> redis[s].applied[j] = 0
		fi;
		noteReader(s, j)
	fi
}

/* Have all readers reported so many entries? */
#define REACHED(s, j, number) (!redis[s].reader[j] || redis[s].applied[j] >= number)
#if READERS == 1
#define ALL_REACHED(s, number) REACHED(s, 0, number)
#elif defined(M_ONE_READER)
#define ALL_REACHED(s, number) (redis[s].applied[0] >= number || redis[s].applied[1] >= number)
#else
#define ALL_REACHED(s, number) (REACHED(s, 0, number) && REACHED(s, 1, number))
#endif

/* The number of an order in the log is n then; 0: it is not there. */
inline number(s, i, n) {
	n = 0;
	do
	:: n < redis[s].seq && WHAT(redis[s].log[n]) != i+1 -> n++
	:: else -> break
	od;
	n = (n < redis[s].seq -> n+1 : 0)
}

/* Readers are removed that have not read since an entry was appended. */
#ifdef M_FORGET_ALL
#define BEHIND(s, j, number) redis[s].reader[j]
#else
#define BEHIND(s, j, number) (redis[s].reader[j] && redis[s].reads[j] < number)
#endif

inline forgetReader(s, j, n) {
	if
	:: BEHIND(s, j, n) -> removeReader(s, j)
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
 * over. If Redis has lost something, this is so for as long as a window lasts. */
#if defined(M_UNSEEN) || defined(M_NOT_JOINED) || defined(REMOVE)
#define SEEN true
#elif defined(RUNNING)
#define SEEN (BOTH(KNOWN) && BACK_FOR_LONG)
#elif SERVERS > 1
#define SEEN ((BOTH(KNOWN) || (SEEN_AT(0) && SEEN_AT(1))) && BACK_FOR_LONG)
#else
#define SEEN ((BOTH(KNOWN) || SEEN_AT(0)) && BACK_FOR_LONG)
#endif
#define BACK_FOR_LONG (!(lost || promoted) || BOTH(SIGHTED))
#define SIGHTED(j) (!r[j].blind && !(r[j].read == SURE && r[j].knows == 0))
#define KNOWN(j) (r[j].knows == aWhich+1)
#define LEAVING (stray.on && stray.what == LEAVE)
#define SEEN_AT(s) (!redis[s].alive || (redis[s].member && (redis[s].which == aWhich || !LEAVING)))

#ifdef M_NOT_JOINED
#define MAY_CREATE true
#else
#define MAY_CREATE aEver
#endif

/* An acknowledgement counts if it comes from the era that the last reply came from, and
 * once the lease is over that A had elsewhere, and windows that were opened before. */
#ifdef M_ANY_ACK
#define COUNTS(era) true
#else
#define COUNTS(era) ((era) == aEra)
#endif
#ifdef WIDER
#define SPARE (aWide -> 0 : WIDTH - V)	/* ticks that A need not wait, as far as it knows */
#else
#define SPARE 0
#endif
#define AFTER_WINDOWS(ticks) (ticks <= SPARE)
#ifdef M_COUNTS_EARLY
#define ENDED(s) (aLease[s] <= AND_QUIET)
#else
#define ENDED(s) AFTER_WINDOWS(aLease[s])
#endif
#define ELSEWHERE(i) ENDED((ackIn[i] != 0 -> 1-SERVER(ackIn[i]) : 0))
#if defined(RUNNING) && !defined(SPLIT)
#define LOGGED(i) (ackIn[i] != 0 && SEEN)
#elif !defined(SPLIT)
#define LOGGED(i) (ackIn[i] != 0)
#elif defined(M_TWO_LEASES)
#define LOGGED(i) (ackIn[i] != 0 && SEEN)
#else
#define LOGGED(i) (ackIn[i] != 0 && SEEN && ELSEWHERE(i))
#endif

/* Its client is told when all windows are over that were opened before, or sooner if all
 * readers reported the order. */
#ifdef M_NO_WINDOW
#define BY_TIME(i) LOGGED(i)
#else
#define BY_TIME(i) (LOGGED(i) && AFTER_WINDOWS(ackLeft[i]))
#endif
#if defined(SPLIT) && defined(M_SHORT_COUNTS)
#define LOGGED_SHORT(i) (ackIn[i] != 0 && SEEN)
#else
#define LOGGED_SHORT(i) LOGGED(i)
#endif
#if defined(M_NO_REPORT)
#define IS_REPORTED(i) true
#elif defined(M_REPORT_ERA)
#define IS_REPORTED(i) (reported[i] != 0)
#else
#define IS_REPORTED(i) (reported[i] != 0 && reported[i] == ackIn[i])
#endif
#ifdef M_NO_SINCE
#define SHORT(i) (LOGGED_SHORT(i) && IS_REPORTED(i))
#else
#define SHORT(i) (LOGGED_SHORT(i) && IS_REPORTED(i) && AFTER_WINDOWS(aSince))
#endif

/* Else it has to wait until all of its leases are over, and all windows. */
#ifdef M_WITHDRAW_EARLY
#define NO_LEASE(s) (aLease[s] <= AND_QUIET)
#else
#define NO_LEASE(s) AFTER_WINDOWS(aLease[s])
#endif
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
	:: d_step { order[i] == WAITING && (BY_TIME(i) || SHORT(i) || WITHDRAWN) -> order[i] = TOLD; reported[i] = 0; TOLD_NOW(i) }

#ifdef WIDER
#define learnWidth(s) aWide = aWide || redis[s].wide
#else
#define learnWidth(s) skip
#endif

#ifdef FORGETTING
inline noteNumber(s, i) { number(s, i, n); ackNumber[i] = n; n = 0 }
#else
#define noteNumber(s, i) skip
#endif

inline acknowledge(i, s) {
	if
	:: COUNTS(redis[s].era) && (PENDING(i) || owes[i]) ->
		ackIn[i] = redis[s].era;
		ackLeft[i] = QUIET;
		noteNumber(s, i);
		learnWidth(s);
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

#ifdef FORGETTING
#define TOLD_NOW(i) skip
#else
#define TOLD_NOW(i) ackLeft[i] = 0
#endif

/* Redis says that all readers have reported an order, in the present era. A script says so,
 * after it has looked whether anything was lost. */
#ifdef M_UNCHECKED
#define CHECKED(s) true
#else
#define CHECKED(s) (redis[s].epoch != 0 && redis[s].termed && !redis[s].robbed && !STRIPPED(s) && redis[s].ahead >= 0)
#endif
#define HEAR(i, s) \
	:: d_step { PENDING(i) && redis[s].alive && CHECKED(s) && redis[s].era != reported[i] -> \
		number(s, i, n); \
		if \
		:: n > 0 && ALL_REACHED(s, n) -> reported[i] = redis[s].era \
		:: else \
		fi; \
		n = 0 }
#define HEARS(i) CASES_SERVER(HEAR, i)

/* A had to wait for the whole window: it has readers removed that have not read since. */
#ifdef M_FORGET_EARLY
#define WAITED(i) true
#else
#define WAITED(i) AFTER_WINDOWS(ackLeft[i])
#endif
#ifdef M_FORGET_ERA
#define FORGET_IN(s, i) true
#else
#define FORGET_IN(s, i) (redis[s].era == ackIn[i])
#endif
#define FORGET(i, s) \
	:: d_step { ackIn[i] != 0 && WAITED(i) && ROOM(s) && EITHER_READER(s) -> \
		enter(s); \
		if \
		:: FORGET_IN(s, i) -> forgetReaders(s, ackNumber[i]) \
		:: else \
		fi }
#define FORGETS(i) CASES_SERVER(FORGET, i)
#if READERS > 1
#define EITHER_READER(s) (redis[s].reader[0] || redis[s].reader[1])
#define forgetReaders(s, n) forgetReader(s, 0, n); forgetReader(s, 1, n)
#else
#define EITHER_READER(s) redis[s].reader[0]
#define forgetReaders(s, n) forgetReader(s, 0, n)
#endif

/* Another era than the one that has the order may not have it. A remembers so many
 * orders, and no more: but where only this helps, it remembers none here. That is for
 * SPLIT, and for RUNNING, since the order is in no table yet. */
inline perhapsLost(i) {
#if (defined(SPLIT) || defined(RUNNING)) && !defined(M_NOT_AGAIN)
	if
	:: ackIn[i] != 0 && ackIn[i] != aEra -> ackIn[i] = 0; ackLeft[i] = 0; owes[i] = true
	:: else
	fi;
#endif
	skip
}

/* The reply of a server, to what was sent some ticks ago. */
inline replied(s, ago) {
	aSince = (aEra != redis[s].era -> QUIET : aSince);
	aEra = redis[s].era;
#ifdef M_JOIN_DEAF
	aWide = (aJoined && redis[s].wide || aWide);
#else
	learnWidth(s);
#endif
	aBase = 0;
	aGrants = T + G;
#ifndef M_JOIN_AT_ONCE
	/* Windows that were opened before it joined are not over yet. */
	if
	:: !aJoined && redis[s].member && redis[s].which == aWhich && aLease[s] < QUIET -> aLease[s] = QUIET
	:: else
	fi;
#endif
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
	CASES(HEARS)
#ifdef FORGETTING
	CASES(FORGETS)
#endif
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
			aLease[aAt] = (aLease[aAt] > aGrants + AND_QUIET -> aLease[aAt] : aGrants + AND_QUIET)
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

inline doubt(j) { r[j].doubted = true; r[j].stale = true }

inline notStale(j) {
	r[j].stale = false;
#ifdef SCOPE
	r[j].staleMissed = false;
#endif
#ifdef RUNNING
#ifdef M_AT_ONCE
	r[j].staleRunning = false;
#else
	r[j].staleRunning = (r[j].late > 0);
#endif
#endif
	skip
}

inline forgetLookup(j) { r[j].lookup = NONE; r[j].wanted = 0 }

inline forgetRead(j) { r[j].read = IDLE; r[j].left = 0; r[j].goal = 0; r[j].replyEra = 0 }

/* The log is not what it was: the reader reads all that there is of the one that there is. */
inline startOver(j) {
	doubt(j);
	r[j].fresh = true;
	r[j].epoch = 0; r[j].pos = 0; r[j].last = 0; r[j].era = 0;
	r[j].ahead = 0; r[j].heard = 0
}

#ifdef M_FORGETFUL
#define PARTED(j, s) true
#elif defined(M_PARTED_ALL)
#define PARTED(j, s) redis[s].parted
#else
#define PARTED(j, s) (redis[s].parted && r[j].knows == 1)
#endif

/* Has Redis forgotten its members? Then the reader makes A one again, with a lease that is
 * over, if it knew it, and Redis does not know that it left. */
inline meet(j, s) {
	if
	:: !redis[s].member && r[j].knows > 0 && (r[j].fresh || s != r[j].server) ->
		if
		:: PARTED(j, s)
		:: else -> setMember(s, r[j].knows-1)
		fi
	:: else -> r[j].knows = (redis[s].member -> redis[s].which+1 : 0)
	fi;
	r[j].server = s
}

#define LAST(j, s) redis[s].log[(r[j].pos > 0 -> r[j].pos-1 : 0)]
#define DAMAGED(j, s) (redis[s].epoch != r[j].epoch || r[j].pos > redis[s].seq || (r[j].pos > 0 && LAST(j, s) != r[j].last))
#ifdef M_IGNORE_LAPSED
#define LAPSED(s) false
#else
#define LAPSED(s) (redis[s].member && redis[s].left <= 0)
#endif
#if defined(CLOCK) && !defined(M_UNSTEADY)
#define IS_SURE(j, s) (!LAPSED(s) && r[j].chain >= T + G)
#else
#define IS_SURE(j, s) !LAPSED(s)
#endif

/* For how long a call has run on, as far as Redis's clock tells. */
#ifdef M_FORWARD
#define AGE (ran < O -> ran+1 : ran)
#else
#define AGE ran
#endif

/* The reader has read the entry r[j].last. */
inline applyEntry(j) {
	if
	:: WHAT(r[j].last) == DOUBT -> doubt(j)
#if OTHERS > 0
	:: WHAT(r[j].last) == OTHER
#endif
#ifdef SCOPE
	:: WHAT(r[j].last) == MISSED -> r[j].missed = true; r[j].staleMissed = true
#endif
#ifdef RUNNING
	/* Its entry tells how old it is. */
	:: WHAT(r[j].last) == 1 -> r[j].running = true; r[j].staleRunning = true; r[j].late = O - AGE
#endif
	:: else -> r[j].has[WHAT(r[j].last)-1] = true
	fi
}

/* Leaves n above 0 if an entry is missing. */
inline readEntries(j, s, n) {
	do
	:: r[j].pos < r[j].goal && n < P ->
		r[j].last = redis[s].log[r[j].pos];
		n++;
		if
		:: r[j].last == 0 && !r[j].fresh -> startOver(j); break
		:: r[j].last == 0 && r[j].fresh
		:: else -> applyEntry(j)
		fi;
		r[j].pos++
	:: else -> n = 0; break
	od
}

/* The reader notes the time, and sends a read. */
inline sendRead(j) {
	forgetRead(j);
	r[j].read = SENT;
	r[j].left = WIDTH + SLOW;
#ifdef WIDER
	r[j].sentWide = (r[j].narrow == 0);
	r[j].tried = (r[j].era != 0 -> r[j].era : r[j].tried);
#endif
	skip
}

/* A reader that was not noted opens no window: no creator waits for its report. */
#ifdef M_NOT_NOTED
#define MAY_OPEN(s, j) true
#else
#define MAY_OPEN(s, j) NOTED(s, j)
#endif

/* Redis answers it. */
inline runRead(j, s) {
	enter(s);
#ifdef CLOCK
	r[j].since = 0;
#endif
#ifdef WIDER
	r[j].replyWide = redis[s].wide;
#ifdef M_WIDE_ALONE
	r[j].replyWide = (redis[s].wide || !redis[s].member);
#endif
#endif
	register(s, j);
	if
	:: !r[j].fresh && DAMAGED(j, s) -> r[j].read = BROKEN
	:: else ->
		meet(j, s);
		r[j].read = (IS_SURE(j, s) && MAY_OPEN(s, j) -> SURE : UNSURE)
	fi;
	r[j].goal = redis[s].seq;
	r[j].replyEra = redis[s].era
}

/* A larger window counts when who was not told of it has no lease any more: that is counted
 * from the first reply that has noted the reader. What others had heard of before is what the reply
 * before that tells, and not a later one: a reply that was lost may have noted it. */
inline narrowWindow(j) {
#ifdef WIDER
#ifndef M_WIDE
	if
	:: r[j].era != 0 && r[j].era == r[j].replyEra ->
#ifdef M_WIDE_LOST
		r[j].known = (r[j].noted -> r[j].known : r[j].replyWide);
#endif
		r[j].narrow = (!r[j].noted && !r[j].known -> T : r[j].narrow);
		r[j].noted = true
	:: else ->
		r[j].noted = false;
		r[j].known = (r[j].tried == r[j].replyEra -> r[j].known : r[j].replyWide)
	fi;
	r[j].left = (!r[j].known && (r[j].narrow > 0 || !r[j].sentWide) && r[j].left > 0 -> r[j].left - 1 : r[j].left);
#endif
	r[j].replyWide = false; r[j].sentWide = false;
#endif
	skip
}

/* A window is opened if the read has proved everything, and closed if it has not. */
#if defined(M_NOT_TAIL) || defined(M_WINDOW_EARLY)
#define AT_TAIL(j) true
#else
#define AT_TAIL(j) (r[j].pos >= r[j].goal)
#endif
#ifdef M_FROM_REPLY
#define WINDOW(j) (WIDTH + SLOW)
#else
#define WINDOW(j) r[j].left
#endif
inline openWindow(j, n) {
	if
	:: r[j].read == SURE && n == 0 && AT_TAIL(j) -> r[j].window = WINDOW(j); r[j].blind = (r[j].window > 0 && r[j].knows == 0)
#ifdef M_STAYS_OPEN
	:: else
#else
	:: else -> r[j].window = 0; r[j].blind = false
#endif
	fi
}

/* The reply comes, and is applied. */
inline applyRead(j, s, n) {
	narrowWindow(j);
	n = 0;
	if
	:: r[j].read == BROKEN -> startOver(j); n = 1
	:: else ->
		if
		:: r[j].fresh ->
			r[j].epoch = redis[s].epoch;
#ifndef M_READ_FIRST
			r[j].stale = true
#endif
		:: else
		fi;
		readEntries(j, s, n);
		if
		:: n > 0 || (r[j].era == 0 && r[j].pos < r[j].goal)
		:: else -> r[j].era = r[j].replyEra
		fi;
		if
		:: r[j].ahead <= r[j].pos -> r[j].ahead = r[j].pos; r[j].heard = r[j].last
		:: else
		fi
	fi;
#ifndef M_WINDOW_EARLY
	openWindow(j, n);
#endif
	r[j].fresh = (n > 0);
	forgetRead(j);
	n = 0
}

/* A reader hears of orders without a read, from any server, in their order. It adds them,
 * and reports them: but what follows each other came from one server. Doubts it only reads. */
#ifdef M_HEARD_MIXED
#define FROM_ONE(j, s) true
#else
#define FROM_ONE(j, s) (r[j].ahead == r[j].pos || HEARD_STANDS(s, j))
#endif
#define NEXT(j, s) redis[s].log[r[j].ahead%N]
#if defined(RUNNING)
#define IS_ORDER(entry) (WHAT(entry) == OTHER)
#elif defined(SCOPE)
#define IS_ORDER(entry) (WHAT(entry) == 1)
#else
#define IS_ORDER(entry) (WHAT(entry) != DOUBT)
#endif
#define HEARS_OF(j, s) (r[j].era != 0 && redis[s].alive && r[j].ahead < redis[s].seq && NEXT(j, s) != 0 && IS_ORDER(NEXT(j, s)) && FROM_ONE(j, s))
inline hearOf(j, s) {
	r[j].heard = NEXT(j, s);
	r[j].ahead++;
	if
#if OTHERS > 0
	:: WHAT(r[j].heard) == OTHER
#endif
	:: else -> r[j].has[WHAT(r[j].heard)-1] = true
	fi;
#ifdef M_HEARD_IS_READ
	r[j].pos = r[j].ahead; r[j].last = r[j].heard;
#endif
	skip
}
#define HEAR_OF(j, s) :: d_step { HEARS_OF(j, s) -> hearOf(j, s) }

inline look(j) {
	if
	:: r[j].has[r[j].wanted] -> forgetLookup(j)
	:: else -> r[j].lookup++
	fi
}

/* Is there a doubt that is about an order? */
#if !defined(SCOPE) && !defined(RUNNING)
#define DOUBTED(j, i) r[j].doubted
#define ANY_DOUBT(j) r[j].doubted
#elif !defined(SCOPE)
#define DOUBTED(j, i) (r[j].doubted || r[j].running)
#define ANY_DOUBT(j) (r[j].doubted || r[j].running)
#elif defined(RUNNING)
#define DOUBTED(j, i) ((r[j].doubted || r[j].running) && !r[j].passed[i])
#define ANY_DOUBT(j) true	/* others have reasons to read, too */
#else
#ifdef M_SINCE_TOLD
#define BEFORE(i) (i == 1 || elder)
#else
#define BEFORE(i) (i == 0 && elder)
#endif
#define DOUBTED(j, i) ((r[j].doubted || (r[j].missed && !BEFORE(i))) && !r[j].passed[i])
#define ANY_DOUBT(j) (r[j].doubted || r[j].missed)
#endif

inline readState(j) {
	if
	:: DOUBTED(j, r[j].wanted) -> forgetLookup(j)
	:: else -> r[j].lookup++
	fi
}

/* A reader is asked for an order that its client was told of: it loads its window, then
 * the doubts, then it looks into its filter. */
#define CALLED_FOR(j, i) (order[i] == TOLD && EXISTS(i) && !r[j].has[i] && r[j].lookup == NONE)
#if defined(M_STATE_EARLY)
#define ASK(i, j) \
	:: d_step { j == J && CALLED_FOR(j, i) && !DOUBTED(j, i) -> r[j].wanted = i; r[j].lookup = LOADED }
#elif defined(M_LOOK_EARLY)
#define ASK(i, j) \
	:: d_step { j == J && CALLED_FOR(j, i) -> r[j].wanted = i; r[j].lookup = LOADED }
#else
#define ASK(i, j) \
	:: d_step { j == J && CALLED_FOR(j, i) && r[j].window > 0 -> r[j].wanted = i; r[j].lookup = LOADED }
#endif
#define ASKS(i) CASES_READER(ASK, i)

#if defined(RUNNING) && defined(SCOPE)
/* The mark moves to a row that was seen long ago. */
inline beginReading(j, i) {
	r[j].found[i] = (EXISTS(i) && !r[j].passed[i]);
#ifdef M_MARK_EARLY
	r[j].ripe = beyond;
#else
	r[j].ripe = (r[j].seen == O);
#endif
	r[j].seen = (beyond && r[j].seen > O -> 0 : r[j].seen)
}
#else
inline beginReading(j, i) { r[j].found[i] = EXISTS(i) }
#endif
#ifndef SCOPE
#define PASS(j, i) skip
#elif defined(RUNNING)
#define PASS(j, i) r[j].passed[i] = r[j].passed[i] || r[j].ripe
#elif defined(M_PASS_ALL)
#define PASS(j, i) r[j].passed[i] = true
#else
#define PASS(j, i) r[j].passed[i] = r[j].passed[i] || r[j].found[i]
#endif
inline endReading(j, i) { r[j].has[i] = r[j].has[i] || r[j].found[i]; PASS(j, i); r[j].found[i] = false }

#define BEGIN_READING(i) beginReading(J, i)
#define END_READING(i) endReading(J, i)
active [READERS] proctype B() provided (!OVER) {
	byte n;
end:	do
	CASES(ASKS)
#ifdef STRAY
	:: d_step { !r[J].stray && r[J].era != 0 ->
		r[J].stray = true; r[J].strayPos = r[J].pos; r[J].strayLast = r[J].last; r[J].strayEra = r[J].era }
	:: d_step { r[J].stray && ROOM_TO_READ(r[J].at) ->
		enter(r[J].at);
		if
		:: STRAY_NOTED(r[J].at, J) ->
			redis[r[J].at].applied[J] = (STANDS(r[J].at, r[J].strayPos, r[J].strayLast) -> r[J].strayPos : 0);
			noteReader(r[J].at, J)
		:: else
		fi;
		r[J].stray = false; r[J].strayPos = 0; r[J].strayLast = 0; r[J].strayEra = 0
	   }
#endif
#ifdef PROMPT
	:: d_step { ROOM_TO_READ(r[J].at) -> sendRead(J); runRead(J, r[J].at); applyRead(J, r[J].at, n) }
#ifdef LOST
	:: d_step { NOTED(r[J].at, J) && ROOM_TO_READ(r[J].at) -> enter(r[J].at); register(r[J].at, J) }
#endif
#else
	:: d_step { r[J].read == IDLE || r[J].read == SENT -> sendRead(J) }
	/* A reply is lost, or comes. */
	:: d_step { r[J].read == SENT && ROOM_TO_READ(r[J].at) -> enter(r[J].at); register(r[J].at, J); forgetRead(J) }
	:: d_step { r[J].read == SENT && ROOM_TO_READ(r[J].at) -> runRead(J, r[J].at) }
#ifdef M_WINDOW_EARLY
	:: d_step { r[J].read > SENT && r[J].read < OPENED -> openWindow(J, n); r[J].read = (r[J].read == BROKEN -> BROKEN : OPENED) }
	:: d_step { (r[J].read == OPENED || r[J].read == BROKEN) -> applyRead(J, r[J].at, n) }
#else
	:: d_step { r[J].read > SENT -> applyRead(J, r[J].at, n) }
#endif
#endif
#ifdef HEARD
	CASES_SERVER(HEAR_OF, J)
#endif
	/* The last two steps of a lookup. */
#if defined(M_LOOK_FIRST)
	:: d_step { r[J].lookup == LOADED -> look(J) }
	:: d_step { r[J].lookup == HALF -> readState(J) }
#elif defined(M_STATE_EARLY)
	:: d_step { r[J].lookup == LOADED && r[J].window > 0 -> r[J].lookup = HALF }
	:: d_step { r[J].lookup == HALF -> look(J) }
#elif defined(M_LOOK_EARLY)
	:: d_step { r[J].lookup == LOADED && r[J].window > 0 -> r[J].lookup = HALF }
	:: d_step { r[J].lookup == HALF -> readState(J) }
#else
	:: d_step { r[J].lookup == LOADED -> readState(J) }
	:: d_step { r[J].lookup == HALF -> look(J) }
#endif
	/* A lookup that found no window ends as well. */
#if defined(M_STATE_EARLY) || defined(M_LOOK_EARLY)
	:: d_step { r[J].lookup == LOADED -> forgetLookup(J) }
#endif
	:: r[J].lookup == ABSENT -> assert(false)
	/* The source is read, which has what was committed when that began. */
	:: d_step { ANY_DOUBT(J) && !r[J].reading -> r[J].reading = true; notStale(J); EACH(BEGIN_READING) }
	:: d_step { r[J].reading ->
		EACH(END_READING);
		if
#ifdef M_OLD_READ
		:: !r[J].fresh -> r[J].doubted = false
#else
		:: !r[J].fresh && !r[J].stale -> r[J].doubted = false
#endif
		:: else
		fi;
#ifdef SCOPE
		r[J].missed = r[J].missed && r[J].staleMissed;
#endif
#if defined(RUNNING) && defined(M_ENDS_LATE)
		r[J].running = r[J].running && r[J].late > 0;
#elif defined(RUNNING)
		r[J].running = r[J].running && r[J].staleRunning;
#endif
		r[J].reading = false;
		notStale(J)
	   }
#if SERVERS > 1
	:: d_step { promoted && r[J].at == 0 -> r[J].at = 1; forgetRead(J) }
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

inline tickReader(j) {
	down(r[j].window);
	r[j].blind = r[j].blind && r[j].window > 0;
	down(r[j].left);
#ifdef WIDER
	down(r[j].narrow);
#endif
#ifdef RUNNING
	down(r[j].late);
#ifdef SCOPE
	r[j].seen = (r[j].seen < O -> r[j].seen+1 : r[j].seen);
#endif
#endif
#ifdef CLOCK
	up(r[j].chain, T + G);
	up(r[j].since, G + 1);
	r[j].chain = (r[j].since > G -> 0 : r[j].chain);
#endif
	skip
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

inline copyReader(j) {
	redis[1].reader[j] = redis[0].reader[j]; redis[1].applied[j] = redis[0].applied[j]; redis[1].reads[j] = redis[0].reads[j]
}

inline copyReaders() {
	copyReader(0);
#if READERS > 1
	copyReader(1);
#endif
#ifdef WIDER
	redis[1].wide = redis[0].wide;
#endif
	skip
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
	copyReaders();
	redis[1].which = redis[0].which;
	redis[1].left = redis[0].left;
	redis[1].gone = redis[0].gone;
	redis[1].parted = redis[0].parted
}

/* A reply that was on its way may as well be lost. */
inline loseReply(j) {
	if
	:: r[j].read > SENT -> forgetRead(j)
	:: else
	fi
}

inline loseReplies() {
	loseReply(0);
#if READERS > 1
	loseReply(1);
#endif
	lost = true
}

inline loseReaders() {
	redis[0].stripped = (redis[0].stripped || EITHER_READER(0));
	removeReader(0, 0);
#if READERS > 1
	removeReader(0, 1);
#endif
	loseReplies()
}

inline loseLog(n) {
	n = redis[0].seq;
	do
	:: n > 0 -> n--; redis[0].log[n] = 0
	:: else -> break
	od;
	loseReplies()
}

inline loseMeta() {
	redis[0].epoch = 0; redis[0].era = 0; redis[0].ahead = BACK; redis[0].robbed = false; redis[0].stripped = false;
	redis[0].parted = false;
#ifdef WIDER
	redis[0].wide = false;
#endif
	do
	:: redis[0].seq > 0 && redis[0].log[redis[0].seq-1] == 0 -> redis[0].seq--
	:: else -> break
	od;
	loseReplies()
}

inline loseMembers() {
	redis[0].robbed = (redis[0].robbed || redis[0].member);
	redis[0].member = false; redis[0].which = 0; redis[0].left = 0; redis[0].gone = 0;
	loseReplies()
}

inline endOrder(i) {
	if
	:: PENDING(i) -> order[i] = DEAD
	:: else
	fi;
	ackIn[i] = 0; ackLeft[i] = 0; reported[i] = 0;
#ifdef FORGETTING
	ackNumber[i] = 0;
#endif
	owes[i] = false
}

/* A does not know what leases the one before it had. */
#ifdef M_HEIR
inline inherit(s) { aLease[s] = 0 }
#else
inline inherit(s) { aLease[s] = T + G + AND_QUIET }
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
	aJoined = false; aEver = false; aEra = 0; aSince = 0; aBase = 0; aGrants = 0; aFence = 0;
	EACH_SERVER(inherit);
	EACH(endOrder)
}

#ifdef M_LEAVE_OWING
#define MAY_LEAVE aJoined
#else
#define MAY_LEAVE (aJoined && !OWING && !ANY(PENDING))
#endif

inline restart(j) {
	restarted = true;
#ifdef RUNNING
	r[j].running = false; r[j].late = 0;
#endif
	forgetLookup(j);
	forgetRead(j);
	r[j].window = 0; r[j].blind = false;
	r[j].era = 0;
	r[j].reading = false;
	r[j].found[0] = false;
#if IDS > 1
	r[j].found[1] = false;
#endif
	r[j].knows = 0;
	r[j].chain = 0; r[j].since = 0
}

/* A reader closes its window, and has itself removed. */
inline leaveReaders(j, s) {
	enter(s);
	removeReader(s, j);
#ifndef M_LEAVE_OPEN
	forgetRead(j);
	r[j].window = 0; r[j].blind = false
#endif
}

inline keep(i) { kHas[i] = r[0].has[i] }
inline takeBack(i) { r[0].has[i] = kHas[i] }
inline forgetOrder(i) { r[0].has[i] = false }

inline beginReader(j) {
#if defined(RUNNING) && defined(SCOPE)
	r[j].seen = O+1;
#endif
	startOver(j)
}

inline tickOrder(i) { down(ackLeft[i]) }

active proctype World() provided (!OVER) {
	byte n;
	d_step {
		redis[0].alive = true; redis[0].epoch = 1; redis[0].era = 2; redis[0].termed = true;
		epochs = 1; eras = 1;
		EACH_READER(beginReader)
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
		EACH_READER(tickReader);
		EACH(tickOrder);
		down(aSince);
#ifdef RUNNING
		ran = (order[0] != NEW && ran < O -> ran+1 : ran);
#ifdef SCOPE
		open = (numbered && open < O -> open+1 : open);
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
	:: d_step { !promoted ->
		promoted = true; copyToReplica(); redis[1].alive = true;
#ifdef LAGS
		enter(0); put(0, OTHER); put(0, OTHER)
#endif
	   }
#endif
#ifdef FLUSH
	:: d_step { !lost -> loseLog(n); loseMembers(); loseReaders(); loseMeta() }
#endif
#ifdef DELETE
	:: d_step { !lost -> loseLog(n) }
	:: d_step { !lost -> loseMeta() }
	:: d_step { !lost -> loseMembers() }
	:: d_step { !lost -> loseReaders() }
	:: d_step { !lost -> loseLog(n); loseMeta() }
#endif
#ifdef CRASH
	:: d_step { !again -> startAgain(false) }
	:: d_step { !again && MAY_LEAVE -> startAgain(true) }
#endif
#if OTHERS > 0
#ifndef LAGS
	:: d_step { others < OTHERS && ROOM(0) -> others++; enter(0); put(0, OTHER) }
#endif
#if SERVERS > 1
	:: d_step { others < OTHERS && ROOM(1) -> others++; enter(1); put(1, OTHER) }
#endif
#endif
#ifdef RESTART
#if defined(RUNNING) && !defined(M_KEEP)
	:: d_step { !kept && !r[0].running ->
#else
	:: d_step { !kept ->
#endif
		kept = true;
		kEpoch = r[0].epoch; kPos = r[0].pos; kLast = r[0].last; kFresh = r[0].fresh;
#ifndef M_SNAPSHOT
		kDoubted = r[0].doubted;
#endif
		EACH(keep)
	   }
	:: d_step { kept && !restarted ->
		restart(0);
		r[0].epoch = kEpoch; r[0].pos = kPos; r[0].last = kLast; r[0].ahead = kPos; r[0].heard = kLast;
		r[0].fresh = kFresh; r[0].doubted = kDoubted; r[0].stale = false;
		EACH(takeBack)
	   }
	:: d_step { !restarted -> restart(0); startOver(0); EACH(forgetOrder) }
	:: d_step { redis[r[0].at].reader[0] && ROOM(r[0].at) -> leaveReaders(0, r[0].at) }
#endif
	od
}
