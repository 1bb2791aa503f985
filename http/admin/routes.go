package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"
)

const (
	bodyMax = 64 << 10 // operators send a name and a number
	nameMax = 200      // characters of a name, a label or a reason; a guess
)

// handle makes the handler of a call: it reads the request, runs the call, and writes the value or the refusal as JSON.
func handle[In, Out any](
	read func(*http.Request) (In, error), do func(context.Context, In) (Out, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		in, err := read(r)
		if err != nil {
			answer(w, nil, err)
			return
		}
		out, err := do(r.Context(), in)
		answer(w, out, err)
	}
}

// addCall adds a call to the operator API.
type addCall func(pattern string, call http.HandlerFunc)

// unless adds calls that are refused unread while why returns a reason.
func (add addCall) unless(reason func() error) addCall {
	return func(pattern string, call http.HandlerFunc) {
		add(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := reason(); err != nil {
				answer(w, nil, err)
				return
			}
			call(w, r)
		})
	}
}

// answer answers with v, or with the refusal.
func answer(w http.ResponseWriter, v any, err error) {
	if err == nil {
		writeJSON(w, http.StatusOK, v)
		return
	}
	var r *Refusal
	if !errors.As(err, &r) {
		r = &Refusal{http.StatusInternalServerError, "internal", "report this"}
	}
	refuse(w, r.Status, r.Code, r.Message)
}

// invalid refuses a call for its content.
func invalid(message string) error {
	return refusal(http.StatusBadRequest, "invalid_request", message)
}

// nothing reads no more than the path.
func nothing(*http.Request) (none struct{}, err error) { return none, nil }

// body reads the JSON body of a call.
func body[In any](r *http.Request) (in In, err error) { return in, readBody(r, &in, bodyMax) }

// readBody reads a JSON body of at most so many bytes.
func readBody(r *http.Request, into any, most int64) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, most))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return invalid("the body is not valid JSON for this call: " + err.Error())
	}
	return nil
}

// aboutID is a call with a body about the {id} of the path.
type aboutID[In any] struct {
	id   uuid.UUID
	body In
}

// withBody reads an id and the body.
func withBody[In any](readID func(*http.Request) (uuid.UUID, error)) func(*http.Request) (aboutID[In], error) {
	return func(r *http.Request) (in aboutID[In], err error) {
		if in.id, err = readID(r); err == nil {
			in.body, err = body[In](r)
		}
		return in, err
	}
}

// workspaceID reads the {id} of the path.
func workspaceID(r *http.Request) (uuid.UUID, error) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		err = invalid("the workspace id must be a UUID; see GET /v1/workspaces")
	}
	return id, err
}

// verificationID reads the {id} of the path.
func verificationID(r *http.Request) (uuid.UUID, error) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		err = invalid("the verification id must be a UUID")
	}
	return id, err
}

// limitOf reads ?limit=, from 1 to most.
func limitOf(r *http.Request, unless, most int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return unless, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, invalid(fmt.Sprintf("limit must be a whole number from 1 to %d", most))
	}
	return n, nil
}

// full makes an empty list of none, so that programs read [] and not null.
func full[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// mapped applies a function to each value of a list.
func mapped[T, Shown any](list []T, show func(T) Shown) []Shown {
	out := make([]Shown, len(list))
	for i, v := range list {
		out[i] = show(v)
	}
	return out
}
