package throttle

// Share returns what a node may use of limits a, when k of the cluster's n votes for the receiver are for this node.
// Open sessions, rates and hourly refusals are multiplied by k/n and rounded down, so that all shares together are at
// most a. Limits by session or transaction stay as they are.
//
// A field may become 0, which permits nothing. Validate refuses such a field; Window and Budget accept it. With all
// votes, the node may use the whole limits. With no votes, the node may use nothing.
func (a Limits) Share(k, n int) Limits {
	if n > 0 && k >= n {
		return a
	}
	if n <= 0 || k <= 0 {
		k, n = 0, 1
	}
	for _, whole := range []*int{&a.Connections, &a.ConnectionRate.Events, &a.RcptRate.Events, &a.RefusedPerHour} {
		*whole = int(int64(*whole) * int64(k) / int64(n)) // no overflow: at most a million times the number of nodes
	}
	return a
}
