/*
 * The part of the protocol in freshness.md that trims the log, for the model checker spin.
 *
 * A creates an order. C follows the log, writes snapshots of what it has to Redis, and
 * has the log trimmed. B follows the log, from its beginning, from a file, or from C's
 * snapshot, and is asked for the order. No source has the order but in an operator's hands.
 * spin tries every order of their steps, and the faults that are switched on. It looks for
 * two things: that B answers Absent for an order although its client had been told of it
 * before, and that a server has lost the ID of an order by being trimmed. As for
 * freshness.pml, tests/model_test.go runs the configurations, and the mutations (M_...),
 * each of which leaves out one rule.
 *
 * Configurations, which may be combined:
 *
 *	FAILOVER  a replica that lags takes over, once; the old master is dead. That is a
 *	          restart from an older dump as well
 *	FLUSH     all data of Redis is lost, once
 *	DELETE    the log, what is known of it, the snapshot or a chunk of it is lost, once
 *	RESTART   B starts again, from its own snapshot or from nothing, once
 *	TWICE     C writes two snapshots
 *	UNREAD    nobody can read the ID of the order, and the log gets a doubt
 *
 * Leases, debts and time are in freshness.pml, and left out here: A tells its client of
 * what Redis has acknowledged. Doubts are told apart by what clears them.
 */

#define N 10	/* entries that a log has room for */
#ifndef OTHERS
#define OTHERS 2	/* orders that nobody asks for */
#endif
#ifdef FAILOVER
#define SERVERS 2
#else
#define SERVERS 1
#endif
#ifdef TWICE
#define SNAPSHOTS 2
#else
#define SNAPSHOTS 1
#endif

/*** What there is ***/

/* An entry of the log is the order, another one, or a doubt. Its nonce is the server that
 * wrote it, which tells it from others with its number. 0 was deleted. */
#define ORDER 1
#define OTHER 2
#define PASSES 3	/* a doubt that passes when all have appended what they know */
#define STAYS 4		/* one that an operator clears */
#define ENTRY(s, what) (8*(s) + (what))
#define WHAT(entry) ((entry) & 7)

typedef Redis {
	bool alive;
	byte epoch;	/* of the log, 0: it has none */
	bool termed;	/* meta.term is the name of this server's history */
	bool trimmed;	/* meta.trimmed */
	byte log[N];
	byte seq;	/* number of its last entry */
	byte gone;	/* number of the last entry that was removed from its beginning */
	bool had;	/* the order's ID was appended in this history */
	byte current;	/* snapshot, counted from 1; 0: none */
	bool chunk[SNAPSHOTS]
}
Redis redis[SERVERS];
byte epochs;	/* how many there were: none is given twice */

/* Snapshots that C has written, or is writing. */
typedef Snapshot {
	byte epoch, seq, last;	/* its mark */
	bool has		/* the order */
}
Snapshot snapshots[SNAPSHOTS];
byte written;	/* by C, or given up */
#define IDLE 0
#define MARKED 1	/* the mark was taken, or with M_MARK_LATE the bits */
#define COPIED 2	/* both */
#define SENT 3		/* the chunks, too */
byte writing;

/* What a reader of the log knows. */
typedef Reader {
	byte at;		/* the server that it asks */
	bool has;		/* its filter */
	byte epoch, pos, last;	/* last is 0 if the nonce is not known */
	bool fresh;		/* it begins with whatever log there is */
	byte doubt;		/* the greatest that it has, 0: none */
	byte first, tail;	/* of a log that begins behind what it has; first 0: none does */
	byte joint;		/* the snapshot that it took for that, until it has read the entry of the mark */
	bool none		/* there is none that joins the log */
}
#define B 0
#define C 1
Reader r[2];

bool told;		/* A's client knows of the order, which is in the log */
byte aAt;
bool healed = true;	/* A has appended again what the server that it asks had lost */

bool asked;		/* B is asked: its reading goes on */
bool trusted;		/* and has come to an end */

bool kept, kHas;	/* B's own snapshot */
byte kEpoch, kPos, kLast;
byte others;
bool frozen, promoted, lost, restarted;

/*** Redis ***/

#define ROOM(s) (redis[s].alive && redis[s].seq + 3 <= N)

inline put(s, what) {
	redis[s].log[redis[s].seq] = ENTRY(s, what);
	redis[s].seq++
}

/* What every script begins with. */
inline enter(s) {
	if
	:: redis[s].epoch == 0 ->
		epochs++;
		redis[s].epoch = epochs;
		if
		:: redis[s].seq > 0 -> put(s, STAYS)
		:: else
		fi
	:: else
	fi;
	if
	:: !redis[s].termed -> redis[s].termed = true; put(s, PASSES)
	:: else
	fi
}

/* Does the log have the entry that a snapshot ends with? */
#define MARK(s, k) snapshots[k].seq-1
#define HAS_MARK(s, k) (snapshots[k].seq <= redis[s].seq && redis[s].log[MARK(s, k)] == snapshots[k].last)
#define TAKEN(s) (redis[s].current-1)

/* Entries are removed up to the one before the mark's. */
inline removeUpTo(s, n, k) {
	redis[s].trimmed = true;
	n = redis[s].gone;
	do
	:: n < snapshots[k].seq-1 -> redis[s].log[n] = 0; n++
	:: else -> break
	od;
	redis[s].gone = n;
	n = 0
}

/*** Readers ***/

inline noteDoubt(i, what) {
	r[i].doubt = (r[i].doubt > what -> r[i].doubt : what)
}

/* A gap that was found is told in the log, unless that says so itself. */
inline record(i, s, n) {
	n = 0;
	do
	:: n < redis[s].seq && WHAT(redis[s].log[n]) != STAYS -> n++
	:: else -> break
	od;
	if
	:: n == redis[s].seq -> put(s, STAYS)
	:: else
	fi;
	noteDoubt(i, STAYS);
	n = 0
}

/* The log begins behind what a reader has. */
#define BEGINS(i, s) (redis[s].gone > r[i].pos || (redis[s].gone == r[i].pos && r[i].last != 0))

/* What is wrong with the log: a doubt, 0: nothing. */
#define NONCE(i, s) redis[s].log[(r[i].pos > 0 -> r[i].pos-1 : 0)]
#define JOINT(i) (r[i].joint > 0 -> r[i].joint-1 : 0)
#define DAMAGE(i, s) ( \
	redis[s].epoch != r[i].epoch -> STAYS : ( \
	r[i].pos > redis[s].seq -> PASSES : ( \
	r[i].last != 0 && r[i].pos > 0 && NONCE(i, s) == 0 -> STAYS : ( \
	r[i].last != 0 && r[i].pos > 0 && NONCE(i, s) != r[i].last -> PASSES : ( \
	redis[s].gone > r[i].pos -> STAYS : ( \
	UNJOINED(i, s) -> STAYS : 0))))))

/* The entry that the snapshot ends with has to be there, if it is not passed over. */
#define TO_COME(i) (r[i].joint > 0 && snapshots[JOINT(i)].seq > r[i].pos)
#if defined(M_NO_JOINT)
#define UNJOINED(i, s) false
#elif defined(M_JOINT_LATER)
#define UNJOINED(i, s) (TO_COME(i) && snapshots[JOINT(i)].seq <= redis[s].seq && !HAS_MARK(s, JOINT(i)))
#else
#define UNJOINED(i, s) (TO_COME(i) && !HAS_MARK(s, JOINT(i)))
#endif

inline apply(i, s) {
	do
	:: r[i].pos < redis[s].gone -> r[i].pos++; r[i].last = 0
	:: r[i].pos >= redis[s].gone && r[i].pos < redis[s].seq ->
		r[i].last = redis[s].log[r[i].pos];
		if
		:: WHAT(r[i].last) == ORDER -> r[i].has = true
		:: WHAT(r[i].last) >= PASSES -> noteDoubt(i, WHAT(r[i].last))
		:: else
		fi;
		r[i].pos++
	:: else -> break
	od;
#ifdef M_JOINT_LATER
	r[i].joint = (snapshots[JOINT(i)].seq <= redis[s].seq -> 0 : r[i].joint);
#else
	r[i].joint = 0;
#endif
	r[i].fresh = false;
	r[i].none = false
}

inline startOver(i, what) {
	noteDoubt(i, what);
	r[i].fresh = true;
	r[i].epoch = 0; r[i].pos = 0; r[i].last = 0; r[i].joint = 0; r[i].none = false
}

/* A page, sent, answered and applied. Damage has the reader look for a snapshot, or begin
 * with what there is; whoever does that passes over what is missing, and has a doubt. */
inline readPage(i, s, n) {
	enter(s);
	r[i].epoch = (r[i].epoch == 0 -> redis[s].epoch : r[i].epoch);
	n = DAMAGE(i, s);
	if
	:: n == 0 -> apply(i, s)
	:: n != 0 && !r[i].none && redis[s].epoch == r[i].epoch && BEGINS(i, s) ->
#ifdef M_GOES_ON
		apply(i, s)
#else
		r[i].first = redis[s].gone+1; r[i].tail = redis[s].seq
#endif
	:: n != 0 && (r[i].none || redis[s].epoch != r[i].epoch || !BEGINS(i, s)) ->
		if
		:: r[i].fresh && redis[s].epoch == r[i].epoch && r[i].pos <= redis[s].seq ->
			if
			:: n == STAYS -> record(i, s, n)
			:: else -> noteDoubt(i, PASSES)
			fi;
			apply(i, s)
		:: else ->
			if
			:: n == STAYS -> record(i, s, n); startOver(i, STAYS)
			:: else -> startOver(i, PASSES)
			fi
		fi
	fi;
	n = 0
}

/* The current snapshot is added to the filter. */
inline bridge(i, s, n) {
	if
	:: redis[s].current == 0 && !redis[s].trimmed -> r[i].none = true
	:: redis[s].current == 0 && redis[s].trimmed /* it is of no use: nothing is absent */
	:: redis[s].current > 0 && !redis[s].chunk[(redis[s].current > 0 -> TAKEN(s) : 0)]
	:: else ->
		n = TAKEN(s);
		r[i].has = r[i].has || snapshots[n].has;
		if
#ifdef M_ANY_MARK
		:: snapshots[n].epoch == r[i].epoch && snapshots[n].seq <= r[i].tail ->
#else
		:: snapshots[n].epoch == r[i].epoch && snapshots[n].seq >= r[i].first && snapshots[n].seq <= r[i].tail ->
#endif
			r[i].pos = r[i].first-1;
			r[i].last = 0;
			r[i].joint = n+1
		:: else -> r[i].none = true
		fi
	fi;
	r[i].first = 0; r[i].tail = 0;
	n = 0
}

#define READS(i) (ROOM(r[i].at) && r[i].first == 0)
/* It is taken for granted that A, who knew the log, finds that it was lost before somebody
 * who knows nothing begins with the one that comes then. */
#ifdef M_UNNOTICED
#define BEGIN(i) true
#else
#define BEGIN(i) (!r[i].fresh || r[i].doubt != 0 || !lost || healed)
#endif

/* Doubts are cleared behind what was read. */
#define CLEARED(i) (!r[i].fresh && r[i].first == 0)
#define READER(i) \
	:: d_step { r[i].first > 0 && redis[r[i].at].alive -> bridge(i, r[i].at, n) } \
	/* Time, in which A has appended what it knows, and that was read. */ \
	:: d_step { r[i].doubt == PASSES && CLEARED(i) && healed && aAt == r[i].at && r[i].pos == redis[r[i].at].seq -> r[i].doubt = 0 } \
	/* The sources have every order, an operator says. */ \
	:: d_step { r[i].doubt != 0 && CLEARED(i) -> r[i].has = r[i].has || told; r[i].doubt = 0 } \
	MOVE(i)

#if SERVERS > 1
#define MOVE(i) :: d_step { promoted && r[i].at == 0 -> r[i].at = 1; r[i].first = 0; r[i].tail = 0 }
#else
#define MOVE(i)
#endif

/* From where on nothing can go wrong: B has the order, and will have it. */
#ifdef RESTART
#define OVER (r[B].has && restarted)
#else
#define OVER r[B].has
#endif

active proctype asB() provided (!OVER) {
	byte n;
end:	do
	:: d_step { READS(B) && BEGIN(B) ->
		readPage(B, r[B].at, n);
		trusted = (asked && r[B].first == 0 && !r[B].fresh);
		asked = (asked && r[B].first > 0)
	   }
	:: d_step { told && !r[B].has && !asked && READS(B) && BEGIN(B) ->
		asked = true;
		readPage(B, r[B].at, n);
		trusted = (r[B].first == 0 && !r[B].fresh);
		asked = (r[B].first > 0)
	   }
	READER(B)
	:: d_step { trusted && !r[B].has && r[B].doubt == 0 -> assert(false) }
	od
}

#ifdef M_WITH_DOUBT
#define LOADED !r[C].fresh
#else
#define LOADED (!r[C].fresh && r[C].doubt == 0)
#endif

inline takeMark() {
	snapshots[written].epoch = r[C].epoch; snapshots[written].seq = r[C].pos; snapshots[written].last = r[C].last
}

inline copyBits() { snapshots[written].has = r[C].has }

/* Both scripts look for the entry of the mark, and for the chunks, on their server. */
#ifdef M_ANY_ENTRY
#define WITH_MARK(s, k) true
#else
#define WITH_MARK(s, k) HAS_MARK(s, k)
#endif
#ifdef M_NO_CHUNKS
#define WHOLE(s, k) true
#else
#define WHOLE(s, k) redis[s].chunk[k]
#endif
#define SOUND(s, k) (redis[s].epoch == snapshots[k].epoch && WITH_MARK(s, k) && WHOLE(s, k))

inline giveUp() { writing = IDLE; written++ }

active proctype asC() provided (!OVER) {
	byte n;
end:	do
	:: d_step { READS(C) && BEGIN(C) -> readPage(C, r[C].at, n) }
	READER(C)
	/* The mark is older than the bits. */
#ifdef M_MARK_LATE
	:: d_step { writing == IDLE && written < SNAPSHOTS && LOADED && r[C].last != 0 -> copyBits(); writing = MARKED }
	:: d_step { writing == MARKED && LOADED && r[C].last != 0 -> takeMark(); writing = COPIED }
#else
	:: d_step { writing == IDLE && written < SNAPSHOTS && !r[C].fresh && r[C].last != 0 -> takeMark(); writing = MARKED }
	:: d_step { writing == MARKED && LOADED -> copyBits(); writing = COPIED }
#endif
	:: d_step { writing == COPIED && redis[r[C].at].alive -> redis[r[C].at].chunk[written] = true; writing = SENT }
	:: d_step { writing == SENT && ROOM(r[C].at) ->
		n = r[C].at;
		enter(n);
		if
		:: SOUND(n, written) -> redis[n].current = written+1
		:: else
		fi;
		n = 0;
		giveUp()
	   }
	:: d_step { writing != IDLE -> giveUp() }
	od
}

/*** A, operators, faults ***/

/* Has a server that was trimmed lost the order for good? */
#define SAVED(s) (redis[s].current > 0 && redis[s].chunk[(redis[s].current > 0 -> TAKEN(s) : 0)] && snapshots[(redis[s].current > 0 -> TAKEN(s) : 0)].has)
#define AT(s, n) WHAT(redis[s].log[n]) == ORDER
#define LOGGED(s) (AT(s, 0) || AT(s, 1) || AT(s, 2) || AT(s, 3) || AT(s, 4) || AT(s, 5) || AT(s, 6) || AT(s, 7) || AT(s, 8) || AT(s, 9))
#define FORGOTTEN(s) (redis[s].alive && redis[s].had && redis[s].trimmed && !LOGGED(s) && !SAVED(s))

/* Trimming comes after the snapshot, which is looked for on the same server. */
#ifdef M_TRIM_FIRST
#define TRIM(s) :: d_step { writing >= MARKED && redis[s].alive && HAS_MARK(s, written) && redis[s].gone < snapshots[written].seq-1 -> removeUpTo(s, n, written) }
#else
#define TRIM(s) :: d_step { redis[s].current > 0 && ROOM(s) && redis[s].gone < snapshots[TAKEN(s)].seq-1 -> \
		enter(s); \
		if \
		:: SOUND(s, TAKEN(s)) -> n = TAKEN(s); removeUpTo(s, n, TAKEN(s)) \
		:: else \
		fi }
#endif

inline loseLog(n) {
	n = redis[0].seq;
	do
	:: n > 0 -> n--; redis[0].log[n] = 0
	:: else -> break
	od;
	redis[0].gone = redis[0].seq; redis[0].had = false;
	lost = true; healed = false
}

inline loseMeta() {
	redis[0].epoch = 0; redis[0].trimmed = false;
	do
	:: redis[0].seq > 0 && redis[0].log[redis[0].seq-1] == 0 -> redis[0].seq--
	:: else -> break
	od;
	redis[0].gone = (redis[0].gone < redis[0].seq -> redis[0].gone : redis[0].seq);
	lost = true; healed = false
}

inline loseSnapshot() { redis[0].current = 0; redis[0].had = false; lost = true }
inline loseChunks() { redis[0].chunk[0] = false; redis[0].chunk[SNAPSHOTS-1] = false; redis[0].had = false; lost = true }

inline copyToReplica() {
	redis[1].epoch = redis[0].epoch; redis[1].trimmed = redis[0].trimmed;
	do
	:: redis[1].seq < redis[0].seq ->
		redis[1].log[redis[1].seq] = redis[0].log[redis[1].seq];
		redis[1].seq++
	:: else -> break
	od;
	redis[1].gone = redis[0].gone; redis[1].had = redis[0].had; redis[1].current = redis[0].current;
	redis[1].chunk[0] = redis[0].chunk[0]; redis[1].chunk[SNAPSHOTS-1] = redis[0].chunk[SNAPSHOTS-1]
}

/* A finds that the log lost something, says so of one that was deleted, and appends again
 * what it knows. */
inline heal() {
	enter(aAt);
	if
	:: lost -> put(aAt, STAYS)
	:: else
	fi;
	if
#ifndef UNREAD
	:: told && !LOGGED(aAt) -> put(aAt, ORDER); redis[aAt].had = true
#elif !defined(M_DOUBT_LOST)
	:: told && !lost -> put(aAt, STAYS)
#endif
	:: else
	fi;
	healed = true
}

inline begin(i) {
	r[i].has = false; r[i].doubt = 0; r[i].epoch = 0; r[i].pos = 0; r[i].last = 0; r[i].fresh = true;
	r[i].joint = 0; r[i].first = 0; r[i].tail = 0; r[i].none = false
}

active proctype World() provided (!OVER) {
	byte n;
	d_step {
		redis[0].alive = true; redis[0].epoch = 1; redis[0].termed = true;
		epochs = 1;
		r[B].fresh = true; r[C].fresh = true
	}
end:	do
	:: d_step { FORGOTTEN(0) -> assert(false) }
#if SERVERS > 1
	:: d_step { FORGOTTEN(1) -> assert(false) }
#endif
#ifdef UNREAD
	:: d_step { !told && ROOM(aAt) -> enter(aAt); put(aAt, STAYS); told = true }
#else
	:: d_step { !told && ROOM(aAt) -> enter(aAt); put(aAt, ORDER); redis[aAt].had = true; told = true }
#endif
	:: d_step { others < OTHERS && ROOM(aAt) -> enter(aAt); put(aAt, OTHER); others++ }
	:: d_step { !healed && ROOM(aAt) -> heal() }
	TRIM(0)
#if SERVERS > 1
	TRIM(1)
	:: d_step { promoted && aAt == 0 -> aAt = 1; healed = false }
	:: d_step { !frozen -> frozen = true; copyToReplica() }
	:: d_step { frozen && !promoted -> promoted = true; redis[0].alive = false; redis[1].alive = true }
#endif
#ifdef FLUSH
	:: d_step { !lost -> loseLog(n); loseMeta(); loseSnapshot(); loseChunks() }
#endif
#ifdef DELETE
	:: d_step { !lost -> loseLog(n) }
	:: d_step { !lost -> loseMeta() }
	:: d_step { !lost -> loseSnapshot() }
	:: d_step { !lost -> loseChunks() }
#endif
#ifdef RESTART
	:: d_step { !kept && CLEARED(B) && r[B].doubt == 0 && r[B].joint == 0 ->
		kept = true;
		kHas = r[B].has; kEpoch = r[B].epoch; kPos = r[B].pos; kLast = r[B].last
	   }
	:: d_step { kept && !restarted ->
		restarted = true; asked = false; trusted = false;
		begin(B);
		r[B].fresh = false; r[B].has = kHas; r[B].epoch = kEpoch; r[B].pos = kPos; r[B].last = kLast
	   }
	:: d_step { !restarted -> restarted = true; asked = false; trusted = false; begin(B) }
#endif
	od
}
