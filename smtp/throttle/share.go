package throttle

import (
	"strconv"
	"strings"
)

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
	return a.divide(func(whole int) int {
		return int(int64(whole) * int64(k) / int64(n)) // at most a million times a number of nodes
	})
}

// divide gives a with the fields that hold for the receiver as a whole replaced.
func (a Limits) divide(part func(whole int) int) Limits {
	a.Connections = part(a.Connections)
	a.ConnectionRate.Events = part(a.ConnectionRate.Events)
	a.RcptRate.Events = part(a.RcptRate.Events)
	a.RefusedPerHour = part(a.RefusedPerHour)
	return a
}

// An allowance is split in shards when it is more than one receiver actor, on one
// node, should carry.
const (
	// shardConnections is how many sessions one shard carries: the sockets of one
	// receiver stay a small part of a node's, and a lost node costs one receiver
	// little. Guess.
	shardConnections = 256

	// shardRcpts is how many RCPT commands a second one shard carries. One mailbox
	// takes some 60,000 small messages a second (measured); a probe costs it
	// several, with planning, and it shares two cores with others. Guess.
	shardRcpts = 2000

	// shardConnectionsMin is how many sessions a shard has at least: fewer do not
	// come near shardRcpts, whatever rate is written down for "no limit". Guess.
	shardConnectionsMin = 32

	// ShardsMax is the most shards of one receiver: each is an actor with clients,
	// and each file keeps an agenda for each. Guess.
	ShardsMax = 64
)

// Shards says in how many shards a is split, from 1 to ShardsMax. Every shard
// of a valid Limits has at least 1 of everything.
func (a Limits) Shards() int {
	perSecond := 0
	if per := a.RcptRate.Per.Seconds(); per > 0 {
		perSecond = int(float64(a.RcptRate.Events) / per)
	}
	wanted := max(parts(a.Connections, shardConnections), parts(perSecond, shardRcpts))
	most := min(ShardsMax, a.Connections/shardConnectionsMin,
		a.ConnectionRate.Events, a.RcptRate.Events, a.RefusedPerHour)
	return max(1, min(wanted, most))
}

// parts is how many parts of at most size make the whole.
func parts(whole, size int) int { return (whole + size - 1) / size }

// Shard gives the allowance of shard i, from 0 to of-1. The shards of an
// allowance add up to exactly that; the first ones take what does not divide.
// A shard that there is not has nothing.
func (a Limits) Shard(i, of int) Limits {
	if i < 0 || i >= of {
		return a.Share(0, 1)
	}
	return a.divide(func(whole int) int {
		part := whole / of
		if i < whole%of {
			part++
		}
		return part
	})
}

// What a shard's key has between the receiver's key, the shard's number and the
// number of shards. The first is in no host name.
const (
	shardMark = "#"
	shardOf   = "."
)

// ShardKey gives the key of shard i of of: "mx.example#3.8". One shard has the
// receiver's own key.
//
// The number of shards is in the key because it follows from the allowance, which
// may be another in the file of another node or a minute later: the actor of a
// key always means the same split as those who ask it. Table.For gives nothing to
// a key whose split is not that of the present allowance, so that two splits are
// never both at work where one file is read; those who ask it take the new keys.
func ShardKey(key string, i, of int) string {
	if of <= 1 {
		return key
	}
	return key + shardMark + strconv.Itoa(i) + shardOf + strconv.Itoa(of)
}

// Unsharded gives the key of the receiver that a shard belongs to; a key that names no
// shard stays as it is.
func Unsharded(key string) string {
	receiver, _, _ := cutShard(key)
	return receiver
}

// cutShard takes a shard's key apart; a key that names no shard is 0 of 1. What
// ShardKey never writes is a shard that there is not.
func cutShard(key string) (receiver string, i, of int) {
	receiver, shard, found := strings.Cut(key, shardMark)
	if !found {
		return key, 0, 1
	}
	number, count, _ := strings.Cut(shard, shardOf)
	i, err := strconv.Atoi(number)
	of, err2 := strconv.Atoi(count)
	if err != nil || err2 != nil || of < 2 {
		return receiver, -1, 0
	}
	return receiver, i, of
}

// ShardOf gives the shard, from 0 to of-1, that an address belongs to: always the
// same, on every node, so that a greylisted address is asked again from the same
// place. FNV-1a, finished as MurmurHash3 does, for even parts.
func ShardOf(local, domain string, of int) int {
	if of <= 1 {
		return 0
	}
	h := uint64(14695981039346656037)
	for _, part := range [...]string{local, "@", domain} {
		for _, c := range []byte(part) {
			h = (h ^ uint64(c)) * 1099511628211
		}
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h ^= h >> 33
	return int(h % uint64(of))
}
