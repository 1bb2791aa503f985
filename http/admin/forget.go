package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"rollcall/actors/view"
)

// forgotten answers with what every node dropped.
type forgotten struct {
	Receivers []view.Forgotten `json:"receivers"`
	Silent    []view.Silent    `json:"silent"` // that may still know it
}

// forgetReceiver drops what a receiver taught us, on all nodes at once.
func (s *Server) forgetReceiver(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Key    string `json:"key"`
		What   string `json:"what"`
		Reason string `json:"reason"`
	}
	if !read(w, r, &in) || !named(w, "reason", in.Reason, 1) {
		return
	}
	key, ok := keyOf(w, "key", in.Key)
	if !ok {
		return
	}
	if !slices.Contains(view.Forgets[:], in.What) {
		refuse(w, http.StatusBadRequest, "invalid_request",
			"what must be one of "+strings.Join(view.Forgets[:], ", "))
		return
	}
	found, quiet, err := s.options.Survey.Forget(r.Context(), key, in.What)
	noted := line("receiver forget", key, forgottenWords(in.What, found, quiet))
	noted.Reason = in.Reason
	if err != nil {
		if !errors.Is(err, view.ErrNotThere) {
			noted.New = in.What + ": tried, not known to be forgotten"
			s.note(r.Context(), noted)
		}
		s.failReceiver(w, "forget receiver", err)
		return
	}
	s.note(r.Context(), noted)
	s.options.Log.Info("receiver's lessons forgotten by an operator", "receiver", key, "what", in.What,
		"reason", in.Reason)
	for i := range found {
		found[i].Dropped = full(found[i].Dropped)
	}
	writeJSON(w, http.StatusOK, forgotten{full(found), full(quiet)})
}

// forgottenWords is what the operator log says of it.
func forgottenWords(what string, found []view.Forgotten, quiet []view.Silent) string {
	n := 0
	for _, f := range found {
		n += len(f.Dropped)
	}
	text := fmt.Sprintf("%s: %d things dropped", what, n)
	for _, s := range quiet {
		text += ", without " + s.Node
	}
	return text
}
