package verdict

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollcall/config/effort"
	"rollcall/smtp"
)

// ownHead is the beginning of an operator's rule file, and ownRule a valid rule from line 4 on.
const ownHead = "title = \"Ours\"\nscope = [\"mail.test\"]\n\n"

const ownRule = `[[rule]]
id = "ours-gone"
stage = ["rcpt"]
code = ["550"]
enhanced = ["5.9.1"]
words = ["left the building"]
outcome = "invalid"
reason = "mailbox_not_found"
blame = "address"
meaning = "They are gone."
source = "their manual"
date = "2026-11"
match = ["550 5.9.1 Elvis has left the building"]
miss = ["550 5.9.1 Elvis"]
`

// with replaces lines of the good rule, or takes one out for "".
func with(lines ...string) string {
	text := ownRule
	for _, line := range lines {
		key, _, _ := strings.Cut(line, " =")
		var kept []string
		for _, old := range strings.Split(text, "\n") {
			if strings.HasPrefix(old, key+" =") {
				old = line
				if strings.HasSuffix(line, "= -") {
					continue
				}
			}
			kept = append(kept, old)
		}
		if text = strings.Join(kept, "\n"); !strings.Contains(text, line) && !strings.HasSuffix(line, "= -") {
			text = strings.Replace(text, "date =", line+"\ndate =", 1)
		}
	}
	return text
}

func TestLoad(t *testing.T) {
	s := effort.Must(Load("verdict.toml", []byte(ownHead+ownRule)))(t)
	a := sample(t, "rcpt@mx1.mail.test | 550 5.9.1 Elvis has left the building")
	v := s.Decide(&a)
	effort.ErrorIf(t, v.Rule != "ours-gone" || v.Outcome != smtp.Invalid || v.Version == 0 || a.Rule != v.Rule ||
		a.Version != v.Version, "%+v, %+v", v, a)
	other := s.Judge(sample(t, "550 5.9.1 Elvis has left the building"))
	effort.ErrorIf(t, other.Rule == "ours-gone", "the scope is not kept: %+v", other)
	effort.Is(t, len(s.Changes()), 0, s.Changes())
	info, ok := s.Rule("ours-gone")
	effort.ErrorIf(t, !ok || !info.Own || info.Line != 4 || info.Meaning != "They are gone.", "%+v", info)
}

// secondRule is the good rule and another one like it.
func secondRule(lines ...string) string {
	return ownRule + strings.Replace(with(lines...), "ours-gone", "ours-too", 1)
}

// faultyFiles are files and what is said about them.
var faultyFiles = []struct{ file, want string }{
	{"title = ", "verdict.toml:1:"},
	{"tilte = \"x\"\n" + ownRule, "verdict.toml:1:1: tilte is not known"},
	{ownRule, "title is missing"},
	{"title = \"x\"\n", "there are no rules"},
	{"title = \"x\"\nscope = []\n" + ownRule, "scope is empty"},
	{"title = \"x\"\nscope = [\"test\"]\n" + ownRule, `scope "test" is no suffix`},
	{"title = \"x\"\nscope = [\"Mail.test\"]\n" + ownRule, `scope "Mail.test" is no suffix`},
	{ownHead + with(`colour = "red"`), "colour is not known"},
	{ownHead + with(`id = "Ours"`), `verdict.toml:5: rule Ours: id "Ours"`},
	{ownHead + with(`id = "5.1.1"`), "another rule of this name in generic-4-mailbox-codes.toml:"},
	{ownHead + ownRule + ownRule, "another rule of this name in verdict.toml:4"},
	{ownHead + with(`stage = ["data"]`), `"data" is no stage`},
	{ownHead + with(`stage = []`), "name the stages"},
	{ownHead + with(`code = ["55"]`), `"55" is no code`},
	{ownHead + with(`code = ["354"]`), `"354" is no code`},
	{ownHead + with(`enhanced = ["5.1"]`), `"5.1" is no enhanced code`},
	{ownHead + with(`enhanced = ["2.1.5"]`), `"2.1.5" is no enhanced code`},
	{ownHead + with(`enhanced = ["5.7.649-606"]`), "is no enhanced code"},
	{ownHead + with(`enhanced = []`), "enhanced is an empty list"},
	{ownHead + with(`words = ["Left the building"]`), `write "left the building"`},
	{ownHead + with(`words = ["left-the-building"]`), `write "left the building"`},
	{ownHead + with(`words = ["left@the.building"]`), "addresses are removed"},
	{ownHead + with(`words = ["left the building", "left the building"]`), "are given twice"},
	{ownHead + with(`words = ["has left the building", "left the building"]`), "take the longer one out"},
	{ownHead + with(`words = ["left the*", "left them"]`), "take the longer one out"},
	{ownHead + with(`words = []`), "an empty list of words never matches"},
	{ownHead + with(`words = ["*"]`), "an empty phrase"},
	{ownHead + with(`words = ["left (the building"]`), "brackets must close"},
	{ownHead + with(`words = ["left building"]`), "takes the sample"},
	{ownHead + with(`outcome = "gone"`), `outcome "gone" is not known`},
	{ownHead + with(`outcome = "error"`), `outcome "error" is not known`},
	{ownHead + with(`action = "retry"`), "write either an outcome or an action"},
	{ownHead + with(`outcome = -`), "write either an outcome or an action"},
	{ownHead + with(`outcome = -`, `action = "wait"`), `action "wait" is not known`},
	{ownHead + with(`reason = "gone"`), `reason "gone" is not known`},
	{ownHead + with(`blame = "them"`), `blame "them" is not known`},
	{ownHead + with(`wait = "2h"`), "nothing waits here"},
	{ownHead + with(`outcome = -`, `action = "retry"`, `wait = "25h"`), `wait "25h"`},
	{ownHead + with(`outcome = -`, `action = "retry"`, `wait = "soon"`), `wait "soon"`},
	{ownHead + with(`meaning = -`), "meaning is missing"},
	{ownHead + with(`source = ""`), "source is missing"},
	{ownHead + with(`date = "today"`), `date "today"`},
	{ownHead + with(`match = -`), "match is missing"},
	{ownHead + with(`miss = -`), "miss is missing"},
	{ownHead + with(`match = ["550 5.9.1 Elvis"]`), "takes the sample"},
	{ownHead + with(`miss = ["550 5.9.1 left the building"]`), "it takes the sample"},
	{ownHead + with(`match = ["no code"]`), "does not begin with a code"},
	{ownHead + with(`match = ["data | 550 left the building"]`), `"data" is no stage`},
	{ownHead + with(`stage = ["mail"]`), "an outcome can only come from rcpt"},
	{ownHead + with(`code = ["450"]`), "only a 5xx makes an address invalid"},
	{ownHead + with(`enhanced = ["4.9.1"]`), "take out class 4"},
	{ownHead + with(`blame = "source"`), "invalid blames the address or the domain"},
	{ownHead + with(`reason = "source_blocked"`), "source_blocked does not make an address invalid"},
	{ownHead + with(`outcome = "valid"`), "valid is for codes 250 and 251"},
	{ownHead + with(`outcome = "catch_all"`), "catch_all is for 2xx"},
	{ownHead + with(`code = ["250", "550"]`), "codes 2xx stand alone"},
	{"title = \"x\"\n" + with(`outcome = "valid"`, `reason = "mailbox_busy"`), "in a file with a scope"},
	{ownHead + secondRule(), "verdict.toml:18: rule ours-too: rule ours-gone in verdict.toml:4 takes all"},
	{ownHead + secondRule(`words = ["elvis has left the building"]`), "rule ours-gone in verdict.toml:4 takes all"},
	{ownHead + secondRule(`words = ["left the building", "left the house"]`), `the phrase "left the building" is taken`},
}

// Each fault is found, with file, line, rule and the next step.
func TestLoadFindsFaults(t *testing.T) {
	t.Parallel()
	for _, test := range effort.Some(faultyFiles) {
		_, err := Load("verdict.toml", []byte(test.file))
		effort.ErrorIf(t, !errors.Is(err, ErrFaults) || !strings.Contains(err.Error(), test.want),
			"%s\n got %v\nwant %s", test.file, err, test.want)
	}
}

// A rule that several earlier ones take piece by piece can never match either.
func TestLoadFindsARuleThatManyShadow(t *testing.T) {
	rule := func(id string, lines ...string) string { return strings.Replace(with(lines...), "ours-gone", id, 1) }
	_, err := Load("verdict.toml", []byte(ownHead+
		rule("ours-one", `code = ["550"]`)+rule("ours-two", `code = ["551"]`, `match = ["551 5.9.1 left the building"]`)+
		rule("ours-three", `code = ["550", "551"]`)))
	if err == nil || !strings.Contains(err.Error(), `rule ours-three: words: the phrase "left the building" is taken`) &&
		!strings.Contains(err.Error(), `rule ours-three: the phrase "left the building" is taken by other rules`) {
		t.Error(err)
	}
}

// An operator's rule may say something else than ours; which samples that changes is told.
func TestLoadTellsWhatChanges(t *testing.T) {
	s := effort.Must(Load("verdict.toml", []byte("title = \"x\"\n"+with(`enhanced = -`, `words = ["no such user"]`,
		`outcome = -`, "action = \"retry\"", `reason = "policy"`, `match = ["550 no such user"]`, `miss = ["550 no"]`))))(t)
	for _, change := range s.Changes() {
		if change.Was.Outcome == smtp.Invalid && change.Now.Rule == "ours-gone" && change.Sample != "" {
			return
		}
	}
	t.Errorf("changes: %+v", s.Changes())
}

// A rule of the operator may be about other hosts than the rest of the file.
func TestOwnRuleWithAScope(t *testing.T) {
	s := effort.Must(Load("verdict.toml", []byte("title = \"x\"\n"+with(`scope = ["mail.test"]`))))(t)
	effort.Is(t, s.Judge(sample(t, "rcpt@mail.test | 550 5.9.1 left the building")).Rule, "ours-gone")
	effort.Not(t, s.Judge(sample(t, "rcpt@xmail.test | 550 5.9.1 left the building")).Rule, "ours-gone")
}

// A 250 is judged by the rules for the host, the operator's among them.
func TestAcceptanceAtAHost(t *testing.T) {
	silent := with(`code = ["250"]`, `enhanced = -`, `words = -`, `outcome = "catch_all"`, `reason = "no_rcpt_answer"`,
		`blame = "receiver"`, `match = ["250 ok"]`, `miss = ["251 ok"]`)
	for _, head := range []string{ownHead, "title = \"x\"\n", "title = \"x\"\nscope = [\"q.de\"]\n"} {
		s := effort.Must(Load("verdict.toml", []byte(head+silent)))(t)
		host := "mx.mail.test"
		if strings.Contains(head, "q.de") {
			host = "mx.q.de"
		}
		if v := s.Judge(sample(t, "rcpt@"+host+" | 250 ok")); v.Rule != "ours-gone" || v.Outcome != smtp.CatchAll {
			t.Errorf("%s: %+v", head, v)
		}
		v := s.Judge(sample(t, "rcpt@aspmx.l.google.com | 250 ok"))
		effort.ErrorIf(t, strings.Contains(head, "scope") && v.Rule != "accepted", "%s: %+v", head, v)
	}
}

// So it is with rules that look at the words of a 250.
func TestAcceptanceWithWords(t *testing.T) {
	s := effort.Must(Load("verdict.toml", []byte("title = \"x\"\n"+with(`code = ["250"]`, `enhanced = -`,
		`words = ["will see"]`, `outcome = "catch_all"`, `reason = "no_rcpt_answer"`, `match = ["250 we will see"]`,
		`miss = ["250 ok"]`))))(t)
	for _, host := range []string{"", "a", "mx.mail.test", "aspmx.l.google.com"} {
		a := sample(t, "250 we will see")
		a.Host = host
		effort.ErrorIf(t, s.Judge(a).Rule != "ours-gone", "%q: %+v", host, s.Judge(a))
	}
}

// The narrower scope decides, in whatever order the names of the files are.
func TestNarrowScopeFirst(t *testing.T) {
	file := func(name, id, scope string) *ruleFile {
		f, found := readFile(name, []byte(fmt.Sprintf("title = \"x\"\nscope = [%q]\n", scope)+
			strings.Replace(ownRule, "ours-gone", id, 1)), false)
		effort.FatalIf(t, len(found) > 0, "%v", found)
		return f
	}
	s := compile([]*ruleFile{file("a.toml", "wide", "mail.test"), file("b.toml", "narrow", "eu.mail.test")})
	for host, want := range map[string]string{"mx.eu.mail.test": "narrow", "eu.mail.test": "narrow",
		"mx.mail.test": "wide", "mx.xeu.mail.test": "wide", "mx.test": "not-an-answer", "": "not-an-answer",
		"..": "not-an-answer", "a.b.c.d.e.f.g.h.i.j.eu.mail.test": "narrow"} {
		v := s.Judge(sample(t, "rcpt@"+host+" | 550 5.9.1 left the building"))
		effort.ErrorIf(t, host != "" && v.Rule != want, "%q: %s, want %s", host, v.Rule, want)
	}
}

// Words about us go before a provider's rule that calls the address invalid.
func TestGuardsGoBeforeInvalid(t *testing.T) {
	for _, host := range []string{"aspmx.l.google.com", "mx.yandex.net", "example-com.mail.protection.outlook.com"} {
		v := Builtin().Judge(sample(t, "rcpt@"+host+" | 550 5.1.1 user unknown, your ip is on our blacklist"))
		effort.ErrorIf(t, v.Outcome == smtp.Invalid || v.Blame != smtp.BlameSource, "%s: %+v", host, v)
	}
}

// The bounds: rulesMax rules load, one more does not; so do phrasesMax phrases.
func TestLoadAtItsBounds(t *testing.T) {
	ours := len(Builtin().rules)
	many := func(n int) []byte {
		var b strings.Builder
		b.WriteString(ownHead)
		for i := range n {
			id := fmt.Sprintf("ours-%d", i)
			b.WriteString(strings.NewReplacer("ours-gone", id, "5.9.1", fmt.Sprintf("5.9.%d", i)).Replace(ownRule))
		}
		return []byte(b.String())
	}
	_, found := readFile("x", many(rulesMax-ours), true)
	effort.FatalIf(t, len(found) > 0, "%v", found)
	_, err := Load("x", many(rulesMax-ours+1))
	effort.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "rules, but 1024"), "%v", err)
	words := func(n int) error {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("word%dx", i)
		}
		_, err := parseWords(list)
		return err
	}
	effort.ErrorIf(t, words(phrasesMax) != nil || words(phrasesMax+1) == nil,
		"%v, %v", words(phrasesMax), words(phrasesMax+1))
	_, err = Load("x", make([]byte, fileBytesMax+1))
	effort.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "is larger"), "%v", err)
}

func TestLoadFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "verdict.toml")
	effort.Denied(LoadFile(name))(t, os.ErrNotExist)
	effort.OK(t, os.WriteFile(name, []byte(ownHead+ownRule), 0o600))
	effort.Is(t, len(effort.Must(LoadFile(name))(t).rules), len(Builtin().rules)+1)
	effort.OK(t, os.Truncate(name, fileBytesMax+1))
	effort.Denied(LoadFile(name))(t, ErrFaults)
}

// A version changes with what decides, and with nothing else.
func TestVersion(t *testing.T) {
	effort.NotShort(t, "takes seconds")
	t.Parallel()
	version := func(text string) uint32 {
		s := effort.Must(Load("verdict.toml", []byte(ownHead+text)))(t)
		info, _ := s.Rule("ours-gone")
		return info.Version
	}
	good := version(ownRule)
	effort.Is(t, good, version(with(`meaning = "Other words."`)), "the meaning changes the version")
	effort.Not(t, good, version(with(`wide = true`, `match = ["rcpt-wide | 550 5.9.1 left the building"]`)),
		"wide does not change the version")
	for _, line := range []string{`reason = "mailbox_disabled"`, `code = ["550", "551"]`, `enhanced = -`,
		`words = ["left the building", "is out"]`, `blame = "domain"`} {
		effort.Not(t, good, version(with(line)), line, "does not change the version")
	}
}
