package bedtest

// RedisBloomArgs are the arguments with which Redis has Bloom filters; see
// [testbed.Bed.RedisBloomArgs].
func (b *Bed) RedisBloomArgs() []string {
	b.tb.Helper()
	args, err := b.Bed.RedisBloomArgs()
	Check(b.tb, err)
	return args
}
