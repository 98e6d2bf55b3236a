package gate

// For the tests outside of the package.
const (
	AnswerCutOff  = answerCutOff
	MaxListed     = maxListed
	MaxTokenBytes = maxTokenBytes
)

// HTTP returns the answers to calls that are not gRPC's, by rule.
func (r *Replies[T]) HTTP() [][Refusals]*T { return r.http }

// Lease returns the lease of a call.
func (c *Call) Lease() Lease { return c.lease }

// LearnErr returns the error with which a new order was learned.
func (e *Event) LearnErr() error { return e.learned.err }

// ClientOf is clientOf.
func ClientOf(address string) string { return clientOf(address) }
