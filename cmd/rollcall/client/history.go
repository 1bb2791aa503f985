package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/cmd/rollcall/term"
	"rollcall/http/api"
	"rollcall/ledger"
)

// History gives a page of the history, newest first, after a cursor; nil: from the newest on.
func (c *API) History(ctx context.Context, limit int, cursor *string) (page api.History, err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != nil {
		query.Set("cursor", *cursor)
	}
	_, err = c.AskJSON(ctx, http.MethodGet, "/v1/verifications?"+query.Encode(), nil, &page)
	return page, err
}

// Pages gives the pages of the history, newest first, to its end.
func (c *API) Pages(ctx context.Context, limit int) iter.Seq2[api.History, error] {
	return func(yield func(api.History, error) bool) {
		var cursor *string
		for {
			page, err := c.History(ctx, limit, cursor)
			if !yield(page, err) || err != nil || page.NextCursor == nil {
				return
			}
			cursor = page.NextCursor
		}
	}
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
	for page, err := range c.Pages(ctx, HistoryPageMax) {
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
