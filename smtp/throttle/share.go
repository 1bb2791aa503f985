package throttle

// Share gives what a node may use of a when the cluster has n votes for who
// speaks to the receiver and k of them are for this node: counts at once, rates
// and the refusals of an hour times k/n, rounded down, so that shares of votes
// that add up to at most n add up to at most a. What is per session or per
// transaction stays as it is.
//
// A field may become 0, which grants nothing; Validate refuses it, Window and
// Budget bear it. k of n or more is the whole; no votes, or none of them, is nothing.
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
