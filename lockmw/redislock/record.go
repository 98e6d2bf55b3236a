package redislock

import (
	"encoding/json"
	"time"
)

// Record is what a holder wrote about itself, a quarter of a second after it got
// the lock and when it left it held. Holders that are no Locker write none.
type Record struct {
	Process string    `json:"process,omitempty"` // as in Options
	Request string    `json:"request,omitempty"` // as given to Acquire
	Since   time.Time `json:"since"`             // when the lock was asked for, by the holder's clock
	Reason  string    `json:"reason,omitempty"`  // why it is held although its call is over
	Held    bool      `json:"held,omitempty"`    // its call is over: it is no longer renewed
	// Fence is that of the grant, of a lock that several may hold. It is there from the
	// beginning: see lua/shared.lua.
	Fence int64 `json:"fence,omitempty"`
}

// recordHeld is how lua/extend.lua knows a Held record. A text that holds the like
// has its quotation marks escaped.
const recordHeld = `"held":true`

func (r Record) text() string {
	text, err := json.Marshal(r)
	if err != nil {
		return "{}" // a time beyond the year 9999: not of this clock
	}
	return string(text)
}
