package admin

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"rollcall/ledger"
)

// AuthorHeader is where a caller says who they are, for the operator log. It is no
// authentication: whoever has the token may write any name.
const AuthorHeader = "Rollcall-Operator"

// AuthorMax is the longest name of an author, in bytes. Guess: user@host.
const AuthorMax = 200

// AuthorFits reports whether a text may stand in AuthorHeader.
func AuthorFits(text string) bool {
	return len(text) <= AuthorMax && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// withAuthor puts the name of AuthorHeader before everything that a call changes. Workspaces are told that an operator
// did it.
func withAuthor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		author := strings.TrimSpace(r.Header.Get(AuthorHeader))
		if !AuthorFits(author) {
			refuse(w, http.StatusBadRequest, "invalid_request",
				AuthorHeader+" must have at most 200 bytes, and none that cannot be printed")
			return
		}
		r = r.WithContext(ledger.WithActor(r.Context(), "operator"))
		if author != "" {
			r = r.WithContext(ledger.WithAuthor(r.Context(), author))
		}
		next.ServeHTTP(w, r)
	})
}
