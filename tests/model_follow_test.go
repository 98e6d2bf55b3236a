package tests

// followConfigs are the configurations of docs/follow.pml that "make model" searches.
var followConfigs = []string{
	"FOLLOW TWO XA FAILOVER",
	"FOLLOW TWO XA FLUSH LOST",
	"FOLLOW TWO XA RESTORE",
	"FOLLOW TWO XA SLOT FAILOVER",
	"FOLLOW RESTORE SLOT FAILOVER XA",
	"FOLLOW TRIM XA ROWS=2",
	"FOLLOW TRIM XA FAILOVER",
}

// followSoakConfigs are those that take up to a minute.
var followSoakConfigs = []string{
	"FOLLOW TWO XA FAILOVER ROWS=2",
	"FOLLOW TWO XA FLUSH ROWS=2",
	"FOLLOW TWO XA LOST ROWS=2",
	"FOLLOW RESTORE FAILOVER ROWS=2",
	"FOLLOW TRIM XA FAILOVER ROWS=2",
	"FOLLOW TRIM XA FAILOVER LOST FLUSH",
}

// followMutations leave out one rule of docs/follow.pml each.
var followMutations = []mutation{
	{"the place moves with the IDs, in one step", "FOLLOW M_TWO_STEPS"},
	{"the place moves only from the one that the follower stored last", "FOLLOW M_ANY_PLACE FAILOVER ROWS=2"},
	{"a lease is renewed where the follower's place is the stored one", "FOLLOW M_RENEW_ANY FAILOVER"},
	{"a chain begins with a doubt", "FOLLOW M_NO_DOUBT LOST"},
	{"a chain begins when all before it is visible", "FOLLOW M_BEGIN_EARLY XA"},
	{"all of the table is read again in another chain", "FOLLOW M_ANY_CHAIN LOST"},
	{"a reading does not clear a doubt that came since it began", "FOLLOW M_DOUBTED LOST"},
	{"the change log joins without a gap", "FOLLOW M_GAP TRIM"},
	{"all of the table is read again after a gap", "FOLLOW M_TAIL TRIM ROWS=2"},
	{"a position is in the history of the database", "FOLLOW M_ANY_POSITION RESTORE"},
	{"a slot that has moved on has lost the position", "FOLLOW M_SLOT_AHEAD SLOT FAILOVER"},
	// No rule, but what is taken for granted.
	{"the change log has an entry until its row is visible", "FOLLOW M_TRIM_EARLY TRIM XA ROWS=2"},
}
