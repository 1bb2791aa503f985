package inspect

import (
	"maps"
	"testing"
)

// TestReplayOfAReceiverInShards compares what holds for all of them together, also where the
// candidate has another split or none.
func TestReplayOfAReceiverInShards(t *testing.T) {
	now := map[string]string{"connections": "600", "rcpt_rate": "300/s", "connection_rate": "1000/s",
		"refused_per_hour": "100000"}
	const minutes, asked = 60, 6000 // of each of three shards: 300/s are used
	var records []Record
	for _, key := range []string{"big.example#0.3", "big.example#1.3", "big.example#2.3"} {
		one := recordOf(minutes, func(i int, m *Minute) {
			m.Asked, m.Accepted, m.Sessions, m.Opened, m.Allowed, m.Cause = asked, asked, 200, 200, 100, "allowance"
			m.Queued = asked * (minutes - 1 - i)
		})
		one[0].Receivers[0].Key, one[0].Receivers[0].Domain = key, "big.example"
		records = append(records, one...)
	}
	for _, c := range []struct {
		name, field, value, was string
		would                   int
	}{
		{"as many shards", "rcpt_rate", "150/s", "300/s", 3 * minutes * asked / 2},
		{"no shards", "rcpt_rate", "1/s", "300/s", 60 * minutes},
		{"another split", "connections", "200", "600", 3 * minutes * asked / 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			candidate := maps.Clone(now)
			candidate[c.field] = c.value
			if c.name == "no shards" {
				candidate["connections"] = "200"
			}
			got := Replay(records, ReplayOptions{Now: table(t, "big.example", now),
				Candidate: table(t, "big.example", candidate)})
			if len(got.Receivers) != 1 || got.Same != 0 || got.Receivers[0].Key != "big.example" {
				t.Fatalf("%+v", got)
			}
			r := got.Receivers[0]
			change := FieldChange{Field: c.field, Now: c.was, Would: c.value}
			if r.Asked != 3*minutes*asked || r.Would != c.would || r.Fired[c.field] == 0 {
				t.Errorf("asked %d, would %d, %v; want %d of %d by %s", r.Asked, r.Would, r.Fired, c.would,
					3*minutes*asked, c.field)
			}
			found := false
			for _, f := range r.Changes {
				found = found || f == change
			}
			if !found {
				t.Errorf("changes %+v, want %+v", r.Changes, change)
			}
		})
	}
}
