package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/term"
	"rollcall/http/api"
	customer "rollcall/http/client"
	"rollcall/ledger"
)

const (
	// prefixLeast is how much of an id must be typed: with four characters of a UUID two of a
	// hundred verifications are alike in about one case of fourteen, and then both are named.
	prefixLeast = 4

	// alikeShown is how many verifications with one prefix are named.
	alikeShown = 10

	// issuesShown bounds for how many verifications the list says what they wait for: each is a request of its own.
	issuesShown = 5
)

// API is a client of the API, with what the command line needs beside it.
type API struct{ *customer.Client }

// NewAPI makes a client of the API at base; notice is told when something makes us wait.
func NewAPI(base, key string, notice func(string)) *API {
	c := customer.New(base, key)
	c.Notice = notice
	return &API{c}
}

// Advised adds to an error what to do about it on the command line.
func Advised(err error) string {
	switch {
	case errors.Is(err, customer.ErrNoAnswer):
		return err.Error() + ": start a node with `rollcall serve`, or check --api"
	case errors.Is(err, customer.ErrStranger):
		return err.Error() + ": check --api"
	case errors.Is(err, customer.ErrUnfinished):
		return err.Error() + ": run the command again, it goes on where it stopped"
	}
	return err.Error()
}

// HistoryPageMax is the most that the service gives at once.
const HistoryPageMax = customer.HistoryPageMax

// ErrRefused is in every error that repeats what the service said about a request.
var ErrRefused = customer.ErrRefused

// IssueText is an issue in one line, with its row.
func IssueText(i *api.Issue) string { return customer.IssueText(i) }

// HasCode reports whether an error is a refusal with a code.
func HasCode(err error, code api.Code) bool { return customer.HasCode(err, code) }

// FileName is the name of a file for people.
func FileName(name *string) string {
	if name == nil || *name == "" {
		return "-"
	}
	return term.Printable(*name)
}

// VerificationID gives the id of a verification of which somebody has typed the whole id or its
// beginning, also as a table has cut it.
func (c *API) VerificationID(ctx context.Context, typed string) (string, error) {
	if id, err := uuid.Parse(typed); err == nil {
		return id.String(), nil
	}
	prefix := strings.ToLower(strings.TrimSuffix(typed, "…"))
	if len(prefix) < prefixLeast || len(prefix) > 36 || strings.Trim(prefix, "0123456789abcdef-") != "" {
		return "", term.UsageError(fmt.Sprintf("%q is no id of a verification: give it whole, or at least its first %d "+
			"characters; "+
			"`rollcall list` has them", typed, prefixLeast))
	}
	var alike []api.Summary
	for page, err := range c.Pages(ctx, customer.HistoryPageMax) {
		if err != nil {
			return "", err
		}
		for _, v := range page.Verifications {
			if strings.HasPrefix(v.ID, prefix) {
				alike = append(alike, v)
			}
		}
	}
	switch len(alike) {
	case 0:
		return "", fmt.Errorf("no verification of this workspace begins with %s: see `rollcall list`", prefix)
	case 1:
		return alike[0].ID, nil
	}
	text := fmt.Sprintf("%d verifications begin with %s, give more of the id:", len(alike), prefix)
	for i, v := range alike {
		if i == alikeShown {
			text += "\n  …"
			break
		}
		text += fmt.Sprintf("\n  %s  %s  %s", v.ID, term.Clock(time.Time(v.CreatedAt), time.Time{}), FileName(v.Filename))
	}
	return "", errors.New(text)
}

// Waiting reads the newest of a list that wait, as far as the service answers: the list is there without them.
func (c *API) Waiting(ctx context.Context, list []api.Summary) (found []api.Detail) {
	for _, v := range list {
		if v.Status != string(ledger.Waiting) {
			continue
		}
		if len(found) == issuesShown {
			break
		}
		d, _, err := c.Detail(ctx, v.ID)
		if err != nil {
			break
		}
		found = append(found, d)
	}
	return found
}
