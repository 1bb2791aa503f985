package main

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
	"github.com/spf13/cobra"

	"rollcall/http/api"
)

const (
	// historyPageMax is the most that the service gives at once.
	historyPageMax = 100

	// prefixLeast is how much of an id must be typed: with four characters of a UUID two of a
	// hundred verifications are alike in about one case of fourteen, and then both are named.
	prefixLeast = 4

	// alikeShown is how many verifications with one prefix are named.
	alikeShown = 10
)

// history gives a page of the history, newest first, after a cursor; nil: from the newest on.
func (c *apiClient) history(ctx context.Context, limit int, cursor *string) (page api.History, err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != nil {
		query.Set("cursor", *cursor)
	}
	_, err = c.askJSON(ctx, http.MethodGet, "/v1/verifications?"+query.Encode(), nil, &page)
	return page, err
}

// pages gives the pages of the history, newest first, to its end.
func (c *apiClient) pages(ctx context.Context, limit int) iter.Seq2[api.History, error] {
	return func(yield func(api.History, error) bool) {
		var cursor *string
		for {
			page, err := c.history(ctx, limit, cursor)
			if !yield(page, err) || err != nil || page.NextCursor == nil {
				return
			}
			cursor = page.NextCursor
		}
	}
}

// ofVerification runs a command for the verification that its first argument names.
func (f *customerFlags) ofVerification(
	do func(c *cobra.Command, client *apiClient, id string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		client, err := f.client(c)
		if err != nil {
			return err
		}
		id, err := client.verificationID(c.Context(), args[0])
		if err != nil {
			return err
		}
		return do(c, client, id)
	}
}

// verificationID gives the id of a verification of which somebody has typed the whole id or its
// beginning, also as a table has cut it.
func (c *apiClient) verificationID(ctx context.Context, typed string) (string, error) {
	if id, err := uuid.Parse(typed); err == nil {
		return id.String(), nil
	}
	prefix := strings.ToLower(strings.TrimSuffix(typed, "…"))
	if len(prefix) < prefixLeast || len(prefix) > 36 || strings.Trim(prefix, "0123456789abcdef-") != "" {
		return "", usageError{fmt.Sprintf("%q is no id of a verification: give it whole, or at least its first %d characters; "+
			"`rollcall list` has them", typed, prefixLeast)}
	}
	var alike []api.Summary
	for page, err := range c.pages(ctx, historyPageMax) {
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
		text += fmt.Sprintf("\n  %s  %s  %s", v.ID, clock(time.Time(v.CreatedAt), time.Time{}), fileName(v.Filename))
	}
	return "", errors.New(text)
}

// fileName is the name of a file for people.
func fileName(name *string) string {
	if name == nil || *name == "" {
		return "-"
	}
	return printable(*name)
}

// completeVerification offers the ids of the newest verifications.
func completeVerification(service *customerFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		const nothing = cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 {
			return nil, nothing
		}
		client, err := service.client(c)
		if err != nil {
			return nil, nothing
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		client.notice = func(string) {}
		page, err := client.history(ctx, historyPageMax, nil)
		if err != nil {
			return nil, nothing
		}
		var ids []string
		for _, v := range page.Verifications {
			ids = append(ids, fmt.Sprintf("%s\t%s, %s", v.ID, v.Status, fileName(v.Filename)))
		}
		return ids, nothing
	}
}
