package throttle

// Share returns what a node may use of a when k of the cluster's n votes for the receiver are for this node: counts at
// once, rates and hourly refusals times k/n, rounded down, so that shares of at most n votes add up to at most a.
// Fields by session or transaction stay as they are.
//
// A field may become 0, which grants nothing; Validate refuses it, Window and Budget accept it. k of n or more is the
// whole; no votes, or none of them, is nothing.
func (a Limits) Share(k, n int) Limits {
	if n > 0 && k >= n {
		return a
	}
	if n <= 0 || k <= 0 {
		k, n = 0, 1
	}
	for _, whole := range []*int{&a.Connections, &a.ConnectionRate.Events, &a.RcptRate.Events, &a.RefusedPerHour} {
		*whole = int(int64(*whole) * int64(k) / int64(n)) // at most a million times a number of nodes
	}
	return a
}
