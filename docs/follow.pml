/*
 * The protocol of follow.md, for the model checker spin: a table is followed by its database's
 * log. Others insert the rows. Two followers append their IDs to the change log, at the same
 * time if the lock fails, and may be killed at every step. A reader reads the table and the
 * change log, writes a snapshot, and restarts from it.
 *
 * A row that was visible for longer than the lease is never Absent at a reader that is certain.
 * tests/model_follow_test.go searches XA, TRIM, FAILOVER and FLUSH, each with one row, and four
 * mutations (M_...), each of which leaves out one rule. A search of RESTORE or SLOT, or of more
 * rows, takes more than a minute and was not made whole; nor was a configuration found in which
 * M_SLOT_AHEAD, M_NO_DOUBT or M_ANY_PLACE does harm.
 *
 * Configurations, which may be combined:
 *
 *	FAILOVER  a replica of Redis that lags takes over, once
 *	FLUSH     all data of Redis is lost, once
 *	RESTORE   the database becomes an older state of itself, once
 *	XA        rows may be in the database's log before they are visible
 *	TRIM      the change log is trimmed
 *	SLOT      the database has a replication slot, which does not go back
 *
 * A failover and a loss are doubts at once. Here a follower that lost what it appended gets no
 * renewal at the new server. ordergate does not check that (M_RENEW_ANY: with FAILOVER and XA, a
 * row is Absent): there the row is visible by another event of the database's log, at which the
 * follower moves the place, and notices. Windows and late messages are in freshness.pml.
 */

#ifndef ROWS
#define ROWS 2	/* in the database's log */
#endif
#ifndef CHAINS
#define CHAINS 2
#endif
#define N 8	/* entries that the change log has room for */
#define BIT(row) (1 << (row))

/*** The database ***/

byte rows[ROWS+1];	/* its log, from 1; after a restore, a row has another name */
byte size, visible, recent, old;	/* sets of rows; old: visible for longer than the lease */
byte slot;
bool restored;

/*** Redis ***/

#define DOUBT 7
typedef Redis {
	byte log[N];	/* rows and doubts. 8 is added by the second server: a nonce */
	byte seq, gone;	/* entries, and those that were trimmed */
	byte chain, at, last	/* the place; its position is a number and the row there */
}
Redis redis, replica;
byte term;
byte lease = 2;	/* ticks since the caught-up time that the follower reported; 2: over */
byte chains;	/* names that were drawn */
byte before[CHAINS+1];	/* rows in the database's log before the chain's first position */
bool flushed;

inline put(what) { redis.log[redis.seq] = what + 8*term; redis.seq++ }
#define ROOM (redis.seq + 2 <= N)

/*** Followers ***/

typedef Follower {
	bool up;
	byte chain, at, last;	/* the place that it stored or read last */
	byte next;	/* the chain that it begins or goes on with */
	byte read;	/* position up to which it has read */
	byte caught;	/* ticks since it had passed on all of the database's log */
	byte acked	/* rows that it has appended */
}
Follower f[2];

#define SAME_PLACE(i) (redis.chain == f[i].chain && redis.at == f[i].at && redis.last == f[i].last)
#ifdef M_ANY_PLACE
#define MAY_MOVE(i) true
#else
#define MAY_MOVE(i) SAME_PLACE(i)
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

#define ONE(n) ((n) < redis.seq && (redis.log[n] & 7) != DOUBT && redis.log[n] != 0 -> BIT(redis.log[n] & 7) : 0)
#define LOGGED (ONE(0) | ONE(1) | ONE(2) | ONE(3) | ONE(4) | ONE(5) | ONE(6) | ONE(7))

/* A server that lost what a follower appended gets no renewal from it. */
#ifdef M_RENEW_ANY
#define RENEWS(i) true
#else
#define RENEWS(i) (f[i].acked & ~LOGGED) == 0
#endif

inline stop(i) {
	f[i].up = false; f[i].chain = 0; f[i].at = 0; f[i].last = 0; f[i].next = 0; f[i].read = 0; f[i].caught = 2
}

inline setPlace(c, n) { redis.chain = c; redis.at = n; redis.last = rows[n] }
inline knowPlace(i) { f[i].chain = redis.chain; f[i].at = redis.at; f[i].last = redis.last }

proctype Follows(byte i) {
	byte n;
end:	do
	:: d_step { !f[i].up && redis.chain != 0 && (CONTAINED && KEPT) ->
		f[i].up = true; knowPlace(i); f[i].next = redis.chain;
#ifdef SLOT
		f[i].read = (redis.at > slot -> redis.at : slot)
#else
		f[i].read = (redis.at < size -> redis.at : size)
#endif
	   }
	/* The position is gone. */
	:: d_step { !f[i].up && redis.chain != 0 && !(CONTAINED && KEPT) && ROOM -> put(DOUBT); setPlace(0, 0) }
	/* A chain begins at the end of the database's log. */
	:: d_step { !f[i].up && redis.chain == 0 && chains < CHAINS && ROOM ->
		chains++;
		f[i].up = true; f[i].next = chains; f[i].read = size;
		n = 0;
		do
		:: n < size -> n++; before[chains] = before[chains] | BIT(rows[n])
		:: else -> break
		od;
		n = 0
	   }
	:: d_step { f[i].up && f[i].chain == 0 && ROOM ->
		if
		:: MAY_MOVE(i) ->
#ifndef M_NO_DOUBT
			put(DOUBT);
#endif
			setPlace(f[i].next, f[i].read);
			knowPlace(i);
			slot = (slot > f[i].read -> slot : f[i].read)
		:: else -> stop(i)
		fi
	   }
	/* The next row, and the place behind it, in one step. */
#ifdef M_TWO_STEPS
	:: d_step { f[i].up && f[i].chain != 0 && f[i].read < size && f[i].read == f[i].at && MAY_MOVE(i) ->
		setPlace(f[i].next, f[i].read+1); knowPlace(i)
	   }
	:: d_step { f[i].up && f[i].chain != 0 && f[i].read < f[i].at && ROOM ->
		put(rows[f[i].at]); f[i].acked = f[i].acked | BIT(rows[f[i].at]); f[i].read = f[i].at
	   }
#else
	:: d_step { f[i].up && f[i].chain != 0 && f[i].read < size && ROOM ->
		if
		:: MAY_MOVE(i) ->
			f[i].read++;
			put(rows[f[i].read]);
			f[i].acked = f[i].acked | BIT(rows[f[i].read]);
			setPlace(f[i].next, f[i].read);
			knowPlace(i);
			slot = (slot > f[i].read -> slot : f[i].read)
		:: else -> stop(i)
		fi
	   }
#endif
	:: d_step { f[i].up && f[i].chain != 0 && f[i].read == size && f[i].caught > 0 -> f[i].caught = 0 }
	:: d_step { f[i].up && f[i].chain != 0 && f[i].caught < lease && RENEWS(i) -> lease = f[i].caught }
	:: d_step { f[i].up -> stop(i); f[i].acked = 0 }
	od
}

/*** A reader ***/

byte has, chain, pos, last;	/* chain 0: it has not read all of the table */
bool reading, counts, lost;	/* a reading of the table; lost: it does not count any more */
byte readChain;
bool saved, checked = true;	/* checked: the chain of its snapshot was compared */
byte sHas, sChain, sPos, sLast;

#ifdef M_GAP
#define JOINS true
#else
#define JOINS ((pos == 0 && redis.gone == 0) || (pos > redis.gone && pos <= redis.seq && redis.log[(pos > 0 -> pos-1 : 0)] == last))
#endif
#define PRESENT (redis.chain != 0 && redis.chain == chain)
#ifdef M_NO_OVERLAP
#define ALL_VISIBLE true
#else
#define ALL_VISIBLE ((before[redis.chain] & EXIST & ~visible) == 0)
#endif
#define EXIST (EXISTS(1) | EXISTS(2) | EXISTS(ROWS))
#define EXISTS(n) (n <= size -> BIT(rows[n]) : 0)

proctype Reads() {
end:	do
	/* It reads the change log to its tail, and is asked for every row. */
	:: d_step {
		if
		:: JOINS
		:: else -> chain = 0; lost = true; pos = 0
		fi;
		pos = (pos < redis.gone -> redis.gone : pos);
		do
		:: pos < redis.seq ->
			last = redis.log[pos];
			if
			:: (last & 7) == DOUBT -> chain = 0; lost = true
			:: else -> has = has | BIT(last & 7)
			fi;
			pos++
		:: else -> break
		od;
		pos = redis.seq;
		assert(chain == 0 || !checked || lease > 1 || (old & ~has) == 0)
	   }
	:: d_step { chain == 0 && !reading && redis.chain != 0 ->
		reading = true; lost = false; checked = true; readChain = redis.chain; counts = ALL_VISIBLE; has = has | visible
	   }
	:: d_step { reading ->
		chain = (counts && !lost -> readChain : 0); reading = false; lost = false; counts = false; readChain = 0
	   }
	:: d_step { chain != 0 && checked && !saved -> saved = true; sHas = has; sChain = chain; sPos = pos; sLast = last }
	:: d_step { saved ->
		saved = false; reading = false; lost = false; counts = false; readChain = 0;
		has = sHas; chain = sChain; pos = sPos; last = sLast; checked = false;
		sHas = 0; sChain = 0; sPos = 0; sLast = 0
	   }
	:: d_step { !checked -> checked = true; chain = (PRESENT -> chain : 0) }
	od
}

/*** Time, others, faults ***/

inline copy(to, from, n) {
	to.seq = from.seq; to.gone = from.gone; to.chain = from.chain; to.at = from.at; to.last = from.last;
	n = 0;
	do
	:: n < N -> to.log[n] = from.log[n]; n++
	:: else -> break
	od;
	n = 0
}

init {
	byte n;
	atomic { run Follows(0); run Follows(1); run Reads(); f[0].caught = 2; f[1].caught = 2 }
end:	do
	:: d_step { true ->
		old = old | recent; recent = visible;
		lease = (lease < 2 -> lease+1 : 2);
		f[0].caught = (f[0].caught < 2 -> f[0].caught+1 : 2);
		f[1].caught = (f[1].caught < 2 -> f[1].caught+1 : 2)
	   }
	:: d_step { size < ROWS ->
		size++;
		rows[size] = size + (restored -> ROWS : 0);
#ifndef XA
		visible = visible | BIT(rows[size])
#endif
	   }
#ifdef XA
	:: d_step { size >= 1 && !(visible & BIT(rows[1])) -> visible = visible | BIT(rows[1]) }
	:: d_step { size >= 2 && !(visible & BIT(rows[2])) -> visible = visible | BIT(rows[2]) }
#endif
#ifdef RESTORE
	/* The connections to the database end. */
	:: d_step { !restored && size > 0 ->
		restored = true;
		visible = visible & ~BIT(rows[size]); recent = recent & visible; old = old & visible; rows[size] = 0; size--;
		slot = (slot < size -> slot : size);
		stop(0); stop(1)
	   }
#endif
#ifdef TRIM
	:: d_step { redis.gone < redis.seq ->
		f[0].acked = f[0].acked & ~ONE(redis.gone); f[1].acked = f[1].acked & ~ONE(redis.gone);
		redis.log[redis.gone] = 0; redis.gone++
	   }
#endif
#ifdef FAILOVER
	:: d_step { term == 0 && replica.seq != redis.seq -> copy(replica, redis, n) }
	/* Every failover is a doubt, as in freshness.pml. */
	:: d_step { term == 0 -> copy(redis, replica, n); replica.seq = 0; term = 1; lease = 2; put(DOUBT) }
#endif
#ifdef FLUSH
	:: d_step { !flushed ->
		flushed = true; lease = 2; term = 1;
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
	od
}
