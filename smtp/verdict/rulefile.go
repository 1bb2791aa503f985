package verdict

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"rollcall/smtp"
)

// ErrFaults means that rules were not loaded; the text has a line for each fault.
var ErrFaults = errors.New("the rules have faults")

// faults are the faults found, each with its place and the next step.
type faults []string

func (f *faults) add(place, format string, args ...any) {
	*f = append(*f, place+fmt.Sprintf(format, args...))
}

// faultsShown bounds the lines of one error. Guess: more than people repair at once.
const faultsShown = 100

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	if more := len(f) - faultsShown; more > 0 {
		f = append(f[:faultsShown:faultsShown], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w:\n%s", ErrFaults, strings.Join(f, "\n"))
}

// fileDoc and ruleDoc are the TOML of a rule file.
type fileDoc struct {
	Title string    `toml:"title"`
	Scope []string  `toml:"scope"`
	Rule  []ruleDoc `toml:"rule"`
}

type ruleDoc struct {
	ID       string   `toml:"id"`
	Scope    []string `toml:"scope"` // in an operator's file only: of this rule alone
	Stage    []string `toml:"stage"`
	Code     []string `toml:"code"`
	Enhanced []string `toml:"enhanced"`
	Words    []string `toml:"words"`
	WordsOf  string   `toml:"words_of"` // id of a rule above in the file, whose words this rule also looks for
	With     []string `toml:"with"`     // one of these must also be in the text
	Says     string   `toml:"says"`     // missing, closed or full: about a mailbox, in any language
	Wide     bool     `toml:"wide"`
	Links    bool     `toml:"links"`  // its words may be host names or codes inside links
	Asides   bool     `toml:"asides"` // words in asides such as "on this server" do not count
	Bare     bool     `toml:"bare"`
	Outcome  string   `toml:"outcome"`
	Action   string   `toml:"action"`
	Wait     string   `toml:"wait"`
	Reason   string   `toml:"reason"`
	Blame    string   `toml:"blame"`
	Meaning  string   `toml:"meaning"`
	Source   string   `toml:"source"`
	Date     string   `toml:"date"`
	Match    []string `toml:"match"`
	Miss     []string `toml:"miss"`
}

// readFile reads a rule file. It returns all faults, and the rules without one.
func readFile(name string, data []byte, own bool) (*ruleFile, faults) {
	var doc fileDoc
	f, found := &ruleFile{name: name, own: own}, faults{}
	if err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(&doc); err != nil {
		return f, decodeFaults(name, err)
	}
	lines := ruleLines(data)
	f.title = doc.Title
	if f.title == "" {
		found.add(name+":1: ", "title is missing: say whose replies these are")
	}
	f.scope = doc.Scope
	if err := checkScope(doc.Scope); err != nil {
		found.add(name+":1: ", "%v", err)
	}
	if len(doc.Rule) == 0 {
		found.add(name+":1: ", "there are no rules: write them below [[rule]]")
	}
	for i, d := range doc.Rule {
		r := &rule{file: f, doc: d, lines: map[string]int{}, scope: f.scope}
		if i < len(lines) {
			r.lines = lines[i]
		}
		if d.WordsOf != "" {
			above := slices.IndexFunc(doc.Rule[:i], func(a ruleDoc) bool { return a.ID == d.WordsOf })
			if above < 0 || d.Words != nil {
				found.add(r.at("words_of"), "words_of %q: name a rule above it in this file, and write no words", d.WordsOf)
				continue
			}
			r.doc.Words = doc.Rule[above].Words
			doc.Rule[i].Words = r.doc.Words // for a rule below with words_of this one
		}
		if read := r.read(); len(read) > 0 {
			found = append(found, read...)
			continue
		}
		f.rules = append(f.rules, r)
	}
	return f, found
}

func checkScope(scope []string) error {
	if scope != nil && len(scope) == 0 {
		return errors.New("scope is empty: remove it to mean every host")
	}
	for _, suffix := range scope {
		if !suffixForm.MatchString(suffix) {
			return fmt.Errorf("scope %q is no suffix of a host name: write it like google.com, in lower case, "+
				"without a dot at its ends", suffix)
		}
	}
	return nil
}

// suffixForm requires two labels or more (RFC 1035 §2.3.1), so that no file covers a whole top-level domain.
var suffixForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$`)

func decodeFaults(name string, err error) faults {
	var found faults
	if missing, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		for i := range missing.Errors {
			line, column := missing.Errors[i].Position()
			found.add(fmt.Sprintf("%s:%d:%d: ", name, line, column), "%s is not known here: check the spelling",
				strings.Join(missing.Errors[i].Key(), "."))
		}
		return found
	}
	place := name + ":1: "
	if one, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := one.Position()
		place = fmt.Sprintf("%s:%d:%d: ", name, line, column)
	}
	found.add(place, "%s", strings.TrimPrefix(err.Error(), "toml: "))
	return found
}

// ruleLines returns, for each [[rule]], the lines of its keys; "" is the rule's own line.
func ruleLines(data []byte) []map[string]int {
	var p unstable.Parser
	var all []map[string]int
	line, read := 1, 0 // the parser would count from the beginning for each key
	p.Reset(data)
	for p.NextExpression() {
		e := p.Expression()
		keys := e.Key()
		if !keys.Next() {
			continue
		}
		key := keys.Node()
		at := int(key.Raw.Offset)
		line += bytes.Count(data[read:at], []byte("\n"))
		read = at
		switch {
		case e.Kind == unstable.ArrayTable:
			all = append(all, map[string]int{"": line})
		case e.Kind == unstable.KeyValue && len(all) > 0:
			all[len(all)-1][string(key.Data)] = line
		}
	}
	return all
}

var (
	idForm   = regexp.MustCompile(`^[a-z0-9]+([.-][a-z0-9]+)*$`)
	dateForm = regexp.MustCompile(`^20[0-9]{2}(-(0[1-9]|1[0-2])(-[0-3][0-9])?)?$`)
)

// idMax keeps an id within evidence.NameMax and readable in a table.
const idMax = 64

func (r *rule) read() faults {
	var found faults
	note := func(key string, err error) {
		if err != nil {
			found.add(r.at(key), "%s: %v", key, err)
		}
	}
	var err error
	d := &r.doc
	if !idForm.MatchString(d.ID) || len(d.ID) > idMax {
		found.add(r.at("id"), "id %q: write lower case words with dashes between them, at most %d bytes", d.ID, idMax)
	}
	if d.Scope != nil {
		r.scope = d.Scope
		note("scope", checkScope(d.Scope))
		if !r.file.own {
			found.add(r.at("scope"), "scope stands at the head of the file: make a file for these hosts")
		}
	}
	r.stages, err = parseStages(d.Stage)
	note("stage", err)
	r.codes, err = parseCodes(d.Code)
	note("code", err)
	r.enhanced, err = parseEnhanced(d.Enhanced)
	note("enhanced", err)
	if d.Enhanced != nil && len(d.Enhanced) == 0 {
		found.add(r.at("enhanced"), "enhanced is an empty list: take it out to match any")
	}
	r.phrases, err = parseWords(d.Words)
	note("words", err)
	r.with, err = parseWords(d.With)
	note("with", err)
	if r.says = statement(max(0, slices.Index(statementNames[:], d.Says))); (r.says == saysNothing) != (d.Says == "") {
		found.add(r.at("says"), "says %q: write missing, closed or full", d.Says)
	} else if d.Says != "" && (d.Words != nil || r.file.own) {
		found.add(r.at("says"), "says stands instead of words, in rules that come with the program: write words")
	}
	found = append(found, r.readVerdict()...)
	for _, text := range []struct{ key, value string }{{"meaning", d.Meaning}, {"source", d.Source}} {
		if strings.TrimSpace(text.value) == "" {
			found.add(r.at(""), "%s is missing: write it in a sentence", text.key)
		}
	}
	if !dateForm.MatchString(d.Date) {
		found.add(r.at("date"), "date %q: write when the source was read, like 2026-08", d.Date)
	}
	return found
}

// provable are the outcomes that a reply can prove.
var provable = [...]smtp.Outcome{smtp.Valid, smtp.Invalid, smtp.CatchAll, smtp.Unknown}

func (r *rule) readVerdict() faults {
	var found faults
	d, v := &r.doc, &r.verdict
	var ok bool
	v.Rule = d.ID
	if v.Reason, ok = smtp.Named(smtp.Reasons(), d.Reason); !ok {
		found.add(r.at("reason"), "reason %q is not known: see rollcall verdict list for those in use", d.Reason)
	}
	if v.Blame, ok = smtp.Named(smtp.Blames[:], cmp.Or(d.Blame, smtp.BlameNobody.String())); !ok {
		found.add(r.at("blame"), "blame %q is not known: write address, domain, receiver, source or nobody", d.Blame)
	}
	switch {
	case (d.Outcome == "") == (d.Action == ""):
		found.add(r.at("outcome"), "write either an outcome or an action")
	case d.Outcome != "":
		if v.Outcome, ok = smtp.Named(provable[:], d.Outcome); !ok {
			found.add(r.at("outcome"), "outcome %q is not known: write valid, invalid, catch_all or unknown", d.Outcome)
		}
	default:
		if v.Action = Action(max(0, slices.Index(actionNames[:], d.Action))); v.Action == ActNone {
			found.add(r.at("action"), "action %q is not known: write retry, greylist, slow, pause, other_source, "+
				"tls, split, next_mx or void", d.Action)
		}
	}
	if v.Bare = d.Bare; v.Bare && v.Outcome != smtp.Invalid {
		found.add(r.at("bare"), "bare is for outcome invalid: take it out")
	}
	if d.Wait != "" {
		wait, err := time.ParseDuration(d.Wait)
		if err != nil || wait <= 0 || wait > waitMax {
			found.add(r.at("wait"), `wait %q: write a time up to %v, like "90m"`, d.Wait, waitMax)
		}
		v.Wait = wait
	}
	return found
}
