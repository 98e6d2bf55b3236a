/*
 * The protocol of follow.md, for the model checker spin: a table is followed by its database's
 * log. Others insert the rows. A follower appends their IDs to the change log, and may be killed
 * at every step; with TWO there is another at the same time, as when the lock fails. A reader
 * reads the table and the change log, writes a snapshot, and restarts from it.
 *
 * A row that was visible when a follower renewed its lease is never Absent at a reader that is
 * certain. (A lease that holds was renewed less than its length ago: a row that was visible for
 * longer was so by then. Windows, leases and late messages are in freshness.pml.)
 *
 * tests/model_follow_test.go searches the configurations. A mutation (M_...) leaves out one rule,
 * and each does harm.
 *
 * Configurations, which may be combined:
 *
 *	TWO       two followers
 *	XA        rows may be in the database's log before they are visible
 *	FAILOVER  a replica of Redis that lags takes over, once
 *	FLUSH     all data of Redis is lost, once
 *	LOST      the place alone is lost, once
 *	RESTORE   the database becomes an older state of itself, once
 *	SLOT      the database has a replication slot
 *	TRIM      the change log is trimmed
 */

#ifndef ROWS
#define ROWS 1	/* in the database's log; at most 3 */
#endif
#ifndef CHAINS
#define CHAINS 2
#endif
#ifndef N
#define N 6	/* entries that the change log has room for */
#endif
#define BIT(row) (1 << (row))

/*** The database ***/

byte rows[ROWS+1];	/* its log, from 1; after a restore, a row has another name */
byte size;
byte visible;	/* a set of rows */
byte due;	/* those that were visible at the last renewal */
byte slot;
bool restored;
#define BEFORE(n) (IN(1, n) | IN(2, n) | IN(3, n))	/* the rows up to a position */
#define IN(k, n) ((k) <= (n) && (k) <= size && (k) <= ROWS -> BIT(rows[((k) <= ROWS -> (k) : 0)]) : 0)

/*** Redis ***/

#define DOUBT 7
typedef Redis {
	byte log[N];	/* rows and doubts. 8 is added by the second server: a nonce */
	byte seq, gone;	/* entries, and those that were trimmed */
	byte chain, at, last	/* the place; its position is a number and the row there */
}
Redis redis;
#ifdef FAILOVER
Redis replica;
#endif
byte term;
byte chains;	/* names that were drawn */
bool flushed, misplaced;

inline put(what) { redis.log[redis.seq] = what + 8*term; redis.seq++ }
#define ROOM (redis.seq + 2 <= N)

/*** Followers ***/

typedef Follower {
	bool up;
	byte chain;
	bool begun;	/* a place of the chain was stored */
	byte at, last;	/* the place that it stored or read last */
	byte read;	/* position up to which it has read */
	bool sure	/* its place was the stored one since Redis began a new epoch */
}
Follower f[2];

#define SAME_PLACE(i) (f[i].begun -> redis.chain == f[i].chain && redis.at == f[i].at && redis.last == f[i].last : redis.chain == 0)
#ifdef M_ANY_PLACE
#define MAY_MOVE(i) true
#else
#define MAY_MOVE(i) SAME_PLACE(i)
#endif
#ifdef M_RENEW_ANY
#define RENEWS(i) true
#else
#define RENEWS(i) f[i].sure
#endif

/* Does the database's history contain the place? */
#ifdef M_ANY_POSITION
#define CONTAINED true
#else
#define CONTAINED (redis.at <= size && rows[redis.at] == redis.last)
#endif
#if defined(SLOT) && !defined(M_SLOT_AHEAD)
#define KEPT (redis.at >= slot)
#else
#define KEPT true
#endif
#ifdef M_BEGIN_EARLY
#define MAY_BEGIN(i) true
#else
#define MAY_BEGIN(i) ((BEFORE(f[i].read) & ~visible) == 0)
#endif

inline stop(i) {
	f[i].up = false; f[i].chain = 0; f[i].begun = false; f[i].at = 0; f[i].last = 0; f[i].read = 0; f[i].sure = false
}

inline setPlace(name, position) { redis.at = position; redis.last = rows[position]; redis.chain = name }
inline knowPlace(i) {
	f[i].chain = redis.chain; f[i].at = redis.at; f[i].last = redis.last; f[i].begun = true; f[i].sure = true
}
/* The database may forget what was passed on. */
inline confirm(n) { slot = (slot > n -> slot : n) }

proctype Follows(byte i) {
end:	do
	:: d_step { !f[i].up && redis.chain != 0 && (CONTAINED && KEPT) ->
		f[i].up = true; knowPlace(i);
		f[i].read = (redis.at < size -> redis.at : size);
#ifdef SLOT
		f[i].read = (f[i].read > slot -> f[i].read : slot)
#endif
	   }
	/* The position is gone. (ordergate appends a doubt at once; nothing depends on it.) */
	:: d_step { !f[i].up && redis.chain != 0 && !(CONTAINED && KEPT) -> setPlace(0, 0) }
	/* A chain begins: at the slot's position, or at the end of the database's log. */
	:: d_step { !f[i].up && redis.chain == 0 && chains < CHAINS ->
		chains++;
		f[i].up = true; f[i].chain = chains;
#ifdef SLOT
		f[i].read = slot
#else
		f[i].read = size
#endif
	   }
	:: d_step { f[i].up && !f[i].begun && MAY_BEGIN(i) && ROOM ->
		if
		:: MAY_MOVE(i) ->
#ifndef M_NO_DOUBT
			put(DOUBT);
#endif
			setPlace(f[i].chain, f[i].read); knowPlace(i); confirm(f[i].read)
		:: else -> stop(i)
		fi
	   }
	/* The next row, and the place behind it, in one step. */
#ifdef M_TWO_STEPS
	:: d_step { f[i].up && f[i].begun && f[i].read < size && f[i].read == f[i].at && MAY_MOVE(i) ->
		setPlace(f[i].chain, f[i].read+1); knowPlace(i)
	   }
	:: d_step { f[i].up && f[i].begun && f[i].read < f[i].at && ROOM ->
		put(rows[f[i].at]); f[i].read = f[i].at
	   }
#else
	:: d_step { f[i].up && f[i].begun && f[i].read < size && ROOM ->
		if
		:: MAY_MOVE(i) ->
			f[i].read++;
			put(rows[f[i].read]);
			setPlace(f[i].chain, f[i].read); knowPlace(i); confirm(f[i].read)
		:: else -> stop(i)
		fi
	   }
#endif
	:: d_step { f[i].up && f[i].begun && !f[i].sure -> if :: SAME_PLACE(i) -> f[i].sure = true :: else -> stop(i) fi }
	/* It has passed on all of the database's log, and renews its lease. */
	:: d_step { f[i].up && f[i].begun && f[i].read == size && RENEWS(i) -> due = visible }
	:: d_step { f[i].up -> stop(i) }
	od
}

/*** A reader ***/

byte has, chain;	/* rows; of its last reading */
bool certain;
byte pos, last;	/* up to which entry it has the change log, and that entry */
bool reading, doubted;	/* a reading of the table; there was a doubt since it began */
byte readChain;
bool saved;	/* a snapshot */
byte sHas, sChain, sPos, sLast;

#ifdef M_GAP
#define JOINS true
#else
#define JOINS ((pos == 0 && redis.gone == 0) || (pos > redis.gone && pos <= redis.seq && redis.log[(pos > 0 -> pos-1 : 0)] == last))
#endif

proctype Reads() {
end:	do
	/* It reads the change log to its tail, and is asked for every row. */
	:: d_step {
		if
		:: JOINS
		:: else ->
			certain = false; doubted = reading; pos = 0;
#ifndef M_TAIL
			chain = 0; readChain = 0
#endif
		fi;
		pos = (pos < redis.gone -> redis.gone : pos);
		do
		:: pos < redis.seq ->
			last = redis.log[pos];
			if
			:: (last & 7) == DOUBT -> certain = false; doubted = reading
			:: else -> has = has | BIT(last & 7)
			fi;
			pos++
		:: else -> break
		od;
		pos = redis.seq;
		assert(!certain || (due & ~has) == 0)
	   }
	/* It reads the table: all of it, unless it has read all in the present chain. */
	:: d_step { !certain && !reading ->
		reading = true; readChain = redis.chain;
#ifdef M_ANY_CHAIN
		has = has | (chain == 0 -> visible : 0)
#else
		has = has | (chain == 0 || chain != readChain -> visible : 0)
#endif
	   }
	:: d_step { reading ->
#ifdef M_DOUBTED
		doubted = false;
#endif
		certain = !doubted; chain = readChain; reading = false; doubted = false; readChain = 0
	   }
	:: d_step { certain && !saved -> saved = true; sHas = has; sChain = chain; sPos = pos; sLast = last }
	/* It restarts. */
	:: d_step { saved ->
		reading = false; doubted = false; readChain = 0;
		certain = true; has = sHas; chain = sChain; pos = sPos; last = sLast;
		saved = false; sHas = 0; sChain = 0; sPos = 0; sLast = 0
	   }
	od
}

/*** Others, faults ***/

/* No rule: the change log is taken to keep an entry until its row is visible. */
#ifdef M_TRIM_EARLY
#define TRIMMED(row) true
#else
#define TRIMMED(row) ((row) == DOUBT || (visible & BIT(row)) != 0)
#endif

inline copy(to, from, n) {
	to.seq = from.seq; to.gone = from.gone; to.chain = from.chain; to.at = from.at; to.last = from.last;
	n = 0;
	do
	:: n < N -> to.log[n] = from.log[n]; n++
	:: else -> break
	od;
	n = 0
}
/* Leases of before are over, and the followers know of the new epoch. */
inline epoch() { term++; due = 0; f[0].sure = false; f[1].sure = false }

init {
	byte n;
	atomic {
		run Follows(0);
#ifdef TWO
		run Follows(1);
#endif
		run Reads()
	}
end:	do
	:: d_step { size < ROWS ->
		size++;
		rows[size] = size + (restored -> ROWS : 0);
#ifndef XA
		visible = visible | BIT(rows[size])
#endif
	   }
#ifdef XA
	:: d_step { size >= 1 && !(visible & BIT(rows[1])) -> visible = visible | BIT(rows[1]) }
#if ROWS > 1
	:: d_step { size >= 2 && !(visible & BIT(rows[2])) -> visible = visible | BIT(rows[2]) }
#endif
#endif
#ifdef RESTORE
	/* The connections to the database end. */
	:: d_step { !restored && size > 0 ->
		restored = true;
		visible = visible & ~BIT(rows[size]); due = due & visible; rows[size] = 0; size--;
		slot = (slot < size -> slot : size);
		stop(0); stop(1)
	   }
#endif
#ifdef TRIM
	:: d_step { redis.gone < redis.seq && TRIMMED(redis.log[redis.gone] & 7) -> redis.log[redis.gone] = 0; redis.gone++ }
#endif
#ifdef FAILOVER
	:: d_step { term == 0 && replica.seq != redis.seq -> copy(replica, redis, n) }
	/* Every failover is a doubt, as in freshness.pml. */
	:: d_step { term == 0 -> copy(redis, replica, n); replica.seq = 0; epoch(); put(DOUBT) }
#endif
#ifdef FLUSH
	:: d_step { !flushed ->
		flushed = true; epoch();
		n = 0;
		do
		:: n < N -> redis.log[n] = 0; n++
		:: else -> break
		od;
		n = 0;
		redis.seq = 0; redis.gone = 0; redis.chain = 0; redis.at = 0; redis.last = 0;
		put(DOUBT)
	   }
#endif
#ifdef LOST
	:: d_step { !misplaced && redis.chain != 0 -> misplaced = true; setPlace(0, 0) }
#endif
	od
}
