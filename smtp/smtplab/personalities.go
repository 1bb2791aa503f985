package smtplab

import (
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rollcall/smtp"
)

//go:embed personalities.txt
var personalitiesText string

// Personalities returns a copy of all built-in personalities, in groups: those of personalities.txt, and the hostile
// ones after STARTTLS.
func Personalities() []Personality { return slices.Clone(personalities()) }

// personalities are made once, because some have texts of many KiB.
var personalities = sync.OnceValue(func() []Personality {
	all, err := readPersonalities(personalitiesText)
	if err != nil { // a fault of this package, found by every test
		panic("smtplab: " + err.Error())
	}
	for _, p := range all {
		if p.Family == hostileFamily {
			all = append(all, afterSTARTTLS(p))
		}
	}
	return all
})

// The words of personalities.txt for values that are numbers here, in the order of the numbers.
var wordsOf = map[reflect.Type][]string{
	reflect.TypeFor[Shape](): strings.Fields(`OneMX TwoMX FirstDown AllDown NullMX NullMXMore ImplicitMX DomainAlias
		HostAlias AliasLoop LostMX InsideMX NoDomain NoData ServerFails Refuses Silent OnlyTCP LiteralMX LiteralMXMore
		ManyMX ManyAddresses FirstAddressDown HostChain10 HostChain11 DomainChain16 DomainChain17 OnlyIPv6 AlsoInside`),
	reflect.TypeFor[TLS](): strings.Fields(`None SelfSigned Required Refused Broken Stalled Injected Expired RightName
		WrongName Again Garbage Flood Renegotiate`),
	reflect.TypeFor[Break](): strings.Fields(`None Silent Drop Reset Endless Line Garbage Say SayReset Half Echo Window
		Early Twice Behind`),
	reflect.TypeFor[Block](): strings.Fields("None First Even"),
	reflect.TypeFor[Mailbox](): strings.Fields(
		"NotFound Exists Disabled Full OverQuota Restricted Busy Grey Deferred Refused Cut Closing"),
	reflect.TypeFor[Guard]():        guardNames[:],
	reflect.TypeFor[smtp.Stage]():   namesUpTo(smtp.StageRset),
	reflect.TypeFor[smtp.Outcome](): namesUpTo(smtp.Error),
	reflect.TypeFor[smtp.Reason]():  namesUpTo(smtp.NotSimulated),
}

func namesUpTo[T interface {
	~uint8
	fmt.Stringer
}](last T) (names []string) {
	for v := T(0); v <= last; v++ {
		names = append(names, v.String())
	}
	return names
}

// aboutUs are the right reasons for what a provider says about us, by the word in personalities.txt.
var aboutUs = map[string][]smtp.Reason{
	"blocked":    {smtp.SourceBlocked, smtp.Policy},
	"identity":   {smtp.SourceIdentity, smtp.SourceBlocked},
	"slowed":     {smtp.ReceiverRateLimited, smtp.ReceiverBusy, smtp.SourceBlocked, smtp.Policy},
	"not_hosted": {smtp.DomainNotHosted},
}

// reader reads personalities.txt, whose head says how they are written.
type reader struct {
	all    []Personality
	family string
	one    int     // index of the newest personality that is no variant
	reply  *string // of the line before; nil: that was none
}

func readPersonalities(text string) ([]Personality, error) {
	var r reader
	for i, line := range strings.Split(text, "\n") {
		if err := r.readLine(line); err != nil {
			return nil, fmt.Errorf("personalities.txt:%d: %w", i+1, err)
		}
	}
	return r.all, nil
}

func (r *reader) readLine(line string) error {
	head, rest, said := strings.Cut(strings.TrimSpace(line), ": ")
	words := strings.Fields(head)
	switch {
	case len(words) == 0 || words[0][0] == '#':
		return nil
	case line[0] == '[':
		r.family = strings.Trim(line, "[]")
		return nil
	case line[0] != ' ':
		r.one, r.reply = len(r.all), nil
		r.all = append(r.all, Personality{Name: head, About: rest, Family: r.family})
		return nil
	case strings.HasPrefix(line, "    ") && r.reply != nil:
		*r.reply += "\n" + strings.TrimSpace(line)
		return nil
	}
	p := &r.all[r.one]
	switch {
	case said && words[0] == "us" && len(words) > 2:
		return r.setReply(r.addVariant(*p, words[1], words[3:]), words[2], rest)
	case said:
		return r.setReply(p, words[0], rest)
	case words[0] == "inside":
		p.AfterTLS = &Personality{}
		return set(p.AfterTLS, words[1:])
	case len(words) > 1 && words[1] == "is":
		kind := slices.Index(wordsOf[reflect.TypeFor[Mailbox]()], words[0])
		if kind < 0 {
			return fmt.Errorf("%s is no mailbox", words[0])
		}
		return set(&p.Means[kind], words[2:])
	}
	return set(p, words)
}

// addVariant adds p as it speaks about us: with a mood behind its name and one reply for every address.
func (r *reader) addVariant(p Personality, mood string, reasons []string) *Personality {
	v := Personality{Name: p.Name + mood, About: p.Name + " speaks about us: " + mood, MXSuffix: p.MXSuffix,
		NoEnhanced: p.NoEnhanced, Pipelining: p.Pipelining, TLS: p.TLS, Fixed: smtp.Unknown, Base: p.Name,
		Family: "aboutus"}
	for _, word := range reasons {
		v.Reasons = aboutUs[word]
		if word == "not_hosted" {
			v.About, v.Fixed, v.Hard = p.Name+" says that it does not serve the domain", smtp.Invalid, true
		}
	}
	r.all = append(r.all, v)
	return &r.all[len(r.all)-1]
}

// setReply sets a reply; one with bytes that are no text is in quotes.
func (r *reader) setReply(p *Personality, word, text string) (err error) {
	if kind := slices.Index(wordsOf[reflect.TypeFor[Mailbox]()], word); kind >= 0 {
		r.reply = &p.Words.Mailboxes[kind]
	} else if field := reflect.ValueOf(&p.Words).Elem().FieldByName(word); field.IsValid() {
		r.reply = field.Addr().Interface().(*string)
	} else if word == "BreakWords" {
		r.reply = &p.BreakWords
	} else {
		return fmt.Errorf("%s is no reply", word)
	}
	*r.reply = longTexts().Replace(text)
	if strings.HasPrefix(text, `"`) {
		*r.reply, err = strconv.Unquote(text)
	}
	return err
}

// set sets fields of a struct by words such as Hard and GuardAt=12.
func set(of any, words []string) error {
	for _, word := range words {
		name, text, _ := strings.Cut(word, "=")
		field := reflect.ValueOf(of).Elem().FieldByName(name)
		if !field.IsValid() {
			return fmt.Errorf("there is no %s", name)
		}
		if err := setField(field, text); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}

func setField(field reflect.Value, text string) error {
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(true)
	case reflect.String:
		field.SetString(text)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		field.SetInt(int64(n))
		return err
	case reflect.Int64:
		d, err := time.ParseDuration(text)
		field.SetInt(int64(d))
		return err
	case reflect.Slice:
		for one := range strings.SplitSeq(text, ",") {
			value := reflect.New(field.Type().Elem()).Elem()
			if err := setField(value, one); err != nil {
				return err
			}
			field.Set(reflect.Append(field, value))
		}
	default:
		number := slices.Index(wordsOf[field.Type()], text)
		if number < 0 {
			return errors.New("there is no such word")
		}
		field.SetUint(uint64(number))
	}
	return nil
}
