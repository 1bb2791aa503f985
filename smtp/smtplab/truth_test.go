package smtplab

import (
	"encoding/csv"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
)

func TestTruth(t *testing.T) {
	l := startLab(t, nil)
	for _, d := range []Domain{
		{Name: "tenant.example", Records: []string{"tenant.example. IN MX 5 mx1.hoster-catchall.test."}},
		{Name: "nomail.example", Records: []string{"nomail.example. IN MX 0 ."}},
		{Name: "away.example", Records: []string{"away.example. IN MX 5 mx.elsewhere.org."}},
	} {
		effort.OK(t, l.Add(d))
	}
	for _, c := range []struct {
		address  string
		want     smtp.Outcome
		reason   smtp.Reason
		knowable bool
	}{
		{"anna.smith@acme-clean.test", smtp.Valid, smtp.MailboxExists, true},
		{"anna.smith@ACME-Clean.test", smtp.Valid, smtp.MailboxExists, true},
		{"anna-smith@acme-clean.test", smtp.Invalid, smtp.MailboxNotFound, true},
		{"disabled@acme-clean.test", smtp.Invalid, smtp.MailboxDisabled, true},
		{"full@acme-clean.test", smtp.Invalid, smtp.MailboxFull, true},
		{"overquota@acme-clean.test", smtp.Unknown, smtp.MailboxFull, false},
		{"restricted@acme-clean.test", smtp.CatchAll, smtp.MailboxRestricted, true},
		{"restricted@acme-plain.test", smtp.CatchAll, smtp.Policy, false},
		{"müller@acme-clean.test", smtp.Valid, smtp.MailboxExists, true},
		{"müller@acme-noutf8.test", smtp.Unknown, smtp.EAIUnsupported, false},
		{"anna@bücher-clean.test", smtp.Valid, smtp.MailboxExists, true},
		{"anna@acme-lying.test", smtp.Valid, smtp.MailboxExists, false},
		{"full@shop-catchall.test", smtp.CatchAll, smtp.AcceptAll, true},
		{"anna@uni-greylist.test", smtp.Valid, smtp.MailboxExists, true},
		{"anna@x-nullmx.test", smtp.Invalid, smtp.NoMailService, true},
		{"anna@x-nosuchword.test", smtp.Invalid, smtp.DomainNotFound, true},
		{"anna@x-blocked.test", smtp.Unknown, smtp.SourceBlocked, false},
		{"anna@example.org", smtp.Unknown, smtp.DNSFailed, false},
		{"ghost@tenant.example", smtp.CatchAll, smtp.AcceptAll, true},
		{"anna@nomail.example", smtp.Invalid, smtp.NoMailService, true},
		{"anna@away.example", smtp.Unknown, smtp.DNSFailed, false},
		{"no address", smtp.Undecided, smtp.ReasonNone, false},
	} {
		e := l.Truth(c.address)
		effort.ErrorIf(t, !e.Right(c.want, c.reason) || e.Knowable != c.knowable,
			"%s: %+v, want %s %s, knowable %v", c.address, e, c.want, c.reason, c.knowable)
	}
}

func TestWrongOutcomes(t *testing.T) {
	l := startLab(t, nil)
	for _, c := range []struct {
		address string
		wrong   []smtp.Outcome
	}{
		{"anna@clean.test", []smtp.Outcome{smtp.Invalid, smtp.CatchAll, smtp.Error}},
		{"ghost@clean.test", []smtp.Outcome{smtp.Valid, smtp.CatchAll, smtp.Error}},
		{"anna@blocked.test", []smtp.Outcome{smtp.Valid, smtp.Invalid, smtp.CatchAll, smtp.Error}},
		{"anna@lostmx.test", []smtp.Outcome{smtp.Valid, smtp.CatchAll, smtp.Error}},
		{"busy@clean.test", []smtp.Outcome{smtp.Invalid, smtp.CatchAll, smtp.Error}},
	} {
		var wrong []smtp.Outcome
		for _, o := range smtp.Outcomes {
			if l.Truth(c.address).Wrong(o) {
				wrong = append(wrong, o)
			}
		}
		effort.Equal(t, wrong, c.wrong, c.address, "wrong are")
	}
}

func TestEveryPersonalityIsDocumented(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range Personalities() {
		switch {
		case seen[p.Name]:
			t.Errorf("%s: twice", p.Name)
		case p.About == "":
			t.Errorf("%s: no About", p.Name)
		case p.Base != "" && !seen[p.Base]:
			t.Errorf("%s: its base %s is not before it", p.Name, p.Base)
		case p.Family == "":
			t.Errorf("%s: no family", p.Name)
		case p.DNS >= shapes:
			t.Errorf("%s: no shape", p.Name)
		}
		seen[p.Name] = true
	}
	for _, w := range sampleWeights {
		effort.ErrorIf(t, !seen[w.personality], "Sample weighs %s, which is no personality", w.personality)
	}
}

func TestSample(t *testing.T) {
	l := startLab(t, nil)
	const n, domains = 20_000, 500
	list := Sample(7, n, domains)
	effort.Equal(t, list, Sample(7, n, domains), "the same seed gives another list")
	effort.ErrorIf(t, slices.Equal(list, Sample(8, n, domains)), "another seed gives the same list")
	seen := make(map[string]bool)
	names := make(map[string]int)
	outcomes := make(map[smtp.Outcome]int)
	harvest := make(map[string]int)
	for _, address := range list {
		effort.FatalIf(t, seen[address], "%s comes twice", address)
		seen[address] = true
		_, domain, _ := strings.Cut(address, "@")
		names[domain]++
		e := l.Truth(address)
		outcomes[e.Outcome]++
		if e.Outcome == smtp.Invalid && strings.HasSuffix(domain, "-cisco.test") {
			harvest[domain]++
		}
	}
	effort.ErrorIf(t, len(seen) != n || len(names) != domains,
		"%d addresses at %d domains, want %d at %d", len(seen), len(names), n, domains)
	least := map[smtp.Outcome]int{
		smtp.Valid: n / 2, smtp.Invalid: n / 10, smtp.CatchAll: n / 20, smtp.Unknown: 1,
	}
	for outcome, least := range least {
		effort.ErrorIf(t, outcomes[outcome] < least, "%d are %s, want at least %d", outcomes[outcome], outcome, least)
	}
	for domain, refused := range harvest {
		effort.ErrorIf(t, refused >= 25, "%s refuses %d, which is its limit", domain, refused)
	}
	effort.ErrorIf(t, Sample(1, 0, 5) != nil || Sample(1, 5, 0) != nil,
		"a list without addresses or domains is not empty")
}

// TestContactsExample holds the example file, what is expected of it, and the lab against each other.
func TestContactsExample(t *testing.T) {
	l := startLab(t, nil)
	contacts := readCSV(t, "../../examples/contacts.csv")
	expected := readCSV(t, "../../examples/contacts.expected.csv")
	var distinct []string
	for _, row := range contacts[1:] {
		if !slices.Contains(distinct, row[0]) {
			distinct = append(distinct, row[0])
		}
	}
	effort.Not(t, len(distinct), len(contacts)-1, "the example has no duplicates")
	effort.MustBe(t, len(expected), len(distinct)+1, "rows: a header and", len(distinct))
	seen := make(map[string]int)
	for i, address := range distinct {
		e := l.Truth(address)
		if row := expected[i+1]; row[0] != address || row[1] != e.Outcome.String() {
			t.Errorf("row %d expects %v, the lab says %s %s", i+2, row, address, e.Outcome)
		}
		effort.ErrorIf(t, !e.Knowable && e.Outcome != smtp.Unknown, "%s: an example should be easy to know", address)
		seen[e.Outcome.String()]++
	}
	for _, o := range []smtp.Outcome{smtp.Valid, smtp.Invalid, smtp.CatchAll, smtp.Unknown} {
		effort.ErrorIf(t, seen[o.String()] < 3, "only %d are %s", seen[o.String()], o)
	}
}

func readCSV(t *testing.T, name string) [][]string {
	t.Helper()
	f := effort.Must(os.Open(name))(t)
	defer func() { _ = f.Close() }()
	return effort.Must(csv.NewReader(f).ReadAll())(t)
}

func TestBadOptionsAreRefused(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*Options)
	}{
		{"Network", func(o *Options) { o.Network = Options{}.Network }},
		{"DNSListen", func(o *Options) { o.DNSListen = Options{}.DNSListen }},
		{"SMTPPort", func(o *Options) { o.SMTPPort = 65536 }},
		{"GreylistWait", func(o *Options) { o.GreylistWait = 0 }},
		{"HourLasts", func(o *Options) { o.HourLasts = 10*time.Millisecond - 1 }},
		{"HourLasts", func(o *Options) { o.HourLasts = 24*time.Hour + 1 }},
		{"SecondLasts", func(o *Options) { o.SecondLasts = time.Microsecond - 1 }},
		{"SecondLasts", func(o *Options) { o.SecondLasts = time.Minute + 1 }},
		{"Latency", func(o *Options) { o.Latency = -1 }},
		{"HostsMax", func(o *Options) { o.HostsMax = 0 }},
		{"SessionsMax", func(o *Options) { o.SessionsMax = 0 }},
		{"AddressesMax", func(o *Options) { o.AddressesMax = -1 }},
		{"EventsMax", func(o *Options) { o.EventsMax = -1 }},
		{"Log", func(o *Options) { o.Log = nil }},
	} {
		o := Defaults()
		c.change(&o)
		if _, err := Start(o); err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("bad %s: %v, want an error that names it", c.field, err)
		}
	}
}
