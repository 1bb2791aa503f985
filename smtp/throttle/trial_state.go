package throttle

import "time"

// TrialState is what a Causes and its Experiment knew when a log of trials begins.
type TrialState struct {
	Receiver   SuspicionState            `json:"receiver"`
	Domains    map[string]SuspicionState `json:"domains,omitempty"`
	Tenants    map[string]SuspicionState `json:"tenants,omitempty"` // by their numbers in the log
	Replies    map[string][3]int         `json:"replies,omitempty"` // passed, failed, skipped
	Run        []TrialLine               `json:"run,omitempty"`
	Tries      int                       `json:"tries,omitempty"`
	Holds      bool                      `json:"holds,omitempty"`
	Last       TrialLine                 `json:"last,omitzero"`
	Asked      NewestState               `json:"asked"`
	Good       NewestState               `json:"good"`
	Row        int                       `json:"row,omitempty"`
	Recent     uint64                    `json:"recent,omitempty"`
	Tried      int                       `json:"tried,omitempty"`
	GoodAt     time.Time                 `json:"good_at,omitzero"`
	Experiment *ExperimentState          `json:"experiment,omitempty"`
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
	Domain        string    `json:"domain,omitempty"`
	DomainAt      time.Time `json:"domain_at,omitzero"`
	OtherDomainAt time.Time `json:"other_domain_at,omitzero"`
	Tenant        string    `json:"tenant,omitempty"`
	TenantAt      time.Time `json:"tenant_at,omitzero"`
	OtherTenantAt time.Time `json:"other_tenant_at,omitzero"`
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
}

func stateOf(s *suspicion) SuspicionState { return SuspicionState{s.sum, s.since, s.odd, s.said} }

func (s SuspicionState) suspicion() *suspicion { return &suspicion{s.Sum, s.Since, s.Odd, s.Said} }

// state copies what is known now. Tenants are named as they are; whoever gives it away numbers them.
func (c *Causes) state() *TrialState {
	s := &TrialState{Receiver: stateOf(&c.receiver), Domains: map[string]SuspicionState{}, Tenants: map[string]SuspicionState{},
		Replies: map[string][3]int{}, Tries: c.tries, Holds: c.holds, Last: lineOf(&c.last), Row: c.row, Recent: c.recent,
		Tried: c.tried, GoodAt: c.Good,
		Asked: newestState(&c.asked.domain, &c.asked.tenant), Good: newestState(&c.good.domain, &c.good.tenant)}
	for k, v := range c.domains {
		s.Domains[k] = stateOf(v)
	}
	for k, v := range c.tenants {
		s.Tenants[k] = stateOf(v)
	}
	for k, v := range c.replies {
		s.Replies[k] = [3]int{v.passed, v.failed, v.skipped}
	}
	for i := range c.run {
		s.Run = append(s.Run, lineOf(&c.run[i]))
	}
	if e := c.experiment; e != nil && e.open {
		s.Experiment = &ExperimentState{e.before, e.answeredBefore, e.steps, e.bad, e.trials, e.changes, e.last, e.passed,
			e.failed}
	}
	return s
}

func newestState(domain, tenant *newest) NewestState {
	return NewestState{domain.key, domain.at, domain.otherAt, tenant.key, tenant.at, tenant.otherAt}
}

// causes makes a Causes and its Experiment that know what was known.
func (s *TrialState) causes() (*Causes, *Experiment) {
	c, e := NewCauses(), &Experiment{}
	c.receiver = *s.Receiver.suspicion()
	for k, v := range s.Domains {
		c.domains[k] = v.suspicion()
	}
	for k, v := range s.Tenants {
		c.tenants[k] = v.suspicion()
	}
	for k, v := range s.Replies {
		c.replies[k] = &replyKind{v[0], v[1], v[2]}
	}
	for i := range s.Run {
		c.run = append(c.run, s.Run[i].trial())
	}
	c.tries, c.holds, c.last, c.row, c.recent, c.tried, c.Good = s.Tries, s.Holds, s.Last.trial(), max(0, s.Row), s.Recent,
		min(max(0, s.Tried), 64), s.GoodAt
	c.asked.domain, c.asked.tenant = s.Asked.newest()
	c.good.domain, c.good.tenant = s.Good.newest()
	if x := s.Experiment; x != nil {
		*e = Experiment{open: true, before: x.Before, answeredBefore: x.AnsweredBefore, steps: x.Steps, bad: x.Bad,
			trials: x.Trials, changes: x.Changes, last: x.Last, passed: x.Passed, failed: x.Failed, causes: c}
		c.experiment = e
	}
	return c, e
}

func (n NewestState) newest() (domain, tenant newest) {
	return newest{n.Domain, n.DomainAt, n.OtherDomainAt}, newest{n.Tenant, n.TenantAt, n.OtherTenantAt}
}

// number names the tenants of a state by their numbers.
func (s TrialState) number(of func(tenant string) string) *TrialState {
	tenants := make(map[string]SuspicionState, len(s.Tenants))
	for k, v := range s.Tenants {
		tenants[of(k)] = v
	}
	run := make([]TrialLine, len(s.Run))
	for i, l := range s.Run {
		l.Tenant = of(l.Tenant)
		run[i] = l
	}
	s.Tenants, s.Run = tenants, run
	s.Last.Tenant, s.Asked.Tenant, s.Good.Tenant = of(s.Last.Tenant), of(s.Asked.Tenant), of(s.Good.Tenant)
	return &s
}
