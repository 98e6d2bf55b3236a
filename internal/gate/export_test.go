package gate

// For the tests outside of the package.
const (
	AnswerCutOff  = answerCutOff
	MaxListed     = maxListed
	MaxTokenBytes = maxTokenBytes
)

// ClientOf is clientOf.
func ClientOf(address string) string { return clientOf(address) }
