package throttle

import "time"

// TrialState is what a Causes and its Experiment knew when a log of trials begins.
type TrialState struct {
	Receiver   SuspicionState    `json:"receiver"`
	Domains    NarrowState       `json:"domains"`
	Tenants    NarrowState       `json:"tenants"` // by their numbers in the log
	Hosts      NarrowState       `json:"hosts"`
	Replies    map[string][3]int `json:"replies,omitempty"` // passed, failed, skipped
	Run        []TrialLine       `json:"run,omitempty"`
	Tries      int               `json:"tries,omitempty"`
	Holds      bool              `json:"holds,omitempty"`
	Last       TrialLine         `json:"last,omitzero"`
	Row        int               `json:"row,omitempty"`
	Recent     uint64            `json:"recent,omitempty"`
	Tried      int               `json:"tried,omitempty"`
	GoodAt     time.Time         `json:"good_at,omitzero"`
	Experiment *ExperimentState  `json:"experiment,omitempty"`
}

// NarrowState is what was known of all domains, all tenants or all hosts.
type NarrowState struct {
	Sums    map[string]SuspicionState `json:"sums,omitempty"`
	Asked   NewestState               `json:"asked,omitzero"`
	Good    NewestState               `json:"good,omitzero"`
	PlainAt time.Time                 `json:"plain_at,omitzero"`
}

// SuspicionState is a running sum.
type SuspicionState struct {
	Sum   float64   `json:"sum,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Odd   float64   `json:"odd,omitempty"`
	Said  bool      `json:"said,omitempty"`
}

// NewestState is who was asked, or answered, last, and when somebody else was.
type NewestState struct {
	Key     string    `json:"key,omitempty"`
	At      time.Time `json:"at,omitzero"`
	OtherAt time.Time `json:"other_at,omitzero"`
}

// ExperimentState is an open experiment.
type ExperimentState struct {
	Before         float64 `json:"before"`
	AnsweredBefore bool    `json:"answered_before"`
	Steps          int     `json:"steps"`
	Bad            int     `json:"bad"`
	Trials         int     `json:"trials"`
	Changes        int     `json:"changes"`
	Last           bool    `json:"last"`
	Passed         int     `json:"passed"`
	Failed         int     `json:"failed"`
	Through        float64 `json:"through"`
	Expected       float64 `json:"expected"`
	Chance         float64 `json:"chance"`
	Penalties      int     `json:"penalties"`
}

func stateOf(s *suspicion) SuspicionState { return SuspicionState{s.sum, s.since, s.odd, s.said} }

func (s SuspicionState) suspicion() *suspicion { return &suspicion{s.Sum, s.Since, s.Odd, s.Said} }

func stateOfNewest(n newest) NewestState { return NewestState{n.key, n.at, n.otherAt} }

func (n NewestState) newest() newest { return newest{n.Key, n.At, n.OtherAt} }

func (n *narrowScope) state() NarrowState {
	s := NarrowState{map[string]SuspicionState{}, stateOfNewest(n.asked), stateOfNewest(n.good), n.plainAt}
	for k, v := range n.sums {
		s.Sums[k] = stateOf(v)
	}
	return s
}

func (s *NarrowState) narrow() narrowScope {
	n := newNarrowScope()
	n.asked, n.good, n.plainAt = s.Asked.newest(), s.Good.newest(), s.PlainAt
	for k, v := range s.Sums {
		n.sums[k] = v.suspicion()
	}
	return n
}

// state copies what is known now. Tenants are named as they are; whoever gives it away numbers them.
func (c *Causes) state() *TrialState {
	s := &TrialState{Receiver: stateOf(&c.receiver), Domains: c.domains.state(), Tenants: c.tenants.state(),
		Hosts: c.hosts.state(), Replies: map[string][3]int{}, Tries: c.tries, Holds: c.holds, Last: lineOf(&c.last),
		Row: c.row, Recent: c.recent, Tried: c.tried, GoodAt: c.Good}
	for k, v := range c.replies {
		s.Replies[k] = [3]int{v.passed, v.failed, v.skipped}
	}
	for i := range c.run {
		s.Run = append(s.Run, lineOf(&c.run[i]))
	}
	if e := c.experiment; e != nil && e.open {
		s.Experiment = &ExperimentState{e.before, e.answeredBefore, e.steps, e.bad, e.trials, e.changes, e.last, e.passed,
			e.failed, e.through, e.expected, e.chance, e.penalties}
	}
	return s
}

// causes makes a Causes and its Experiment that know what was known.
func (s *TrialState) causes() (*Causes, *Experiment) {
	c, e := NewCauses(), &Experiment{}
	c.receiver = *s.Receiver.suspicion()
	c.domains, c.tenants, c.hosts = s.Domains.narrow(), s.Tenants.narrow(), s.Hosts.narrow()
	for k, v := range s.Replies {
		c.replies[k] = &replyKind{v[0], v[1], v[2]}
	}
	for i := range s.Run {
		c.run = append(c.run, s.Run[i].trial())
	}
	c.tries, c.holds, c.last, c.row, c.recent, c.tried, c.Good = s.Tries, s.Holds, s.Last.trial(), max(0, s.Row), s.Recent,
		min(max(0, s.Tried), 64), s.GoodAt
	if x := s.Experiment; x != nil {
		*e = Experiment{open: true, before: x.Before, answeredBefore: x.AnsweredBefore, steps: x.Steps, bad: x.Bad,
			trials: x.Trials, changes: x.Changes, last: x.Last, passed: x.Passed, failed: x.Failed,
			through: x.Through, expected: x.Expected, chance: x.Chance, penalties: x.Penalties, causes: c}
		c.experiment = e
	}
	return c, e
}

// number names the tenants of a state by their numbers.
func (s TrialState) number(of func(tenant string) string) *TrialState {
	sums := make(map[string]SuspicionState, len(s.Tenants.Sums))
	for k, v := range s.Tenants.Sums {
		sums[of(k)] = v
	}
	run := make([]TrialLine, len(s.Run))
	for i, l := range s.Run {
		l.Tenant = of(l.Tenant)
		run[i] = l
	}
	s.Tenants.Sums, s.Run = sums, run
	s.Last.Tenant, s.Tenants.Asked.Key, s.Tenants.Good.Key = of(s.Last.Tenant), of(s.Tenants.Asked.Key), of(s.Tenants.Good.Key)
	return &s
}
