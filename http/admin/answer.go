package admin

import (
	"encoding/json"
	"net/http"
)

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError,
			[]byte(`{"error":{"code":"internal","message":"report this"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, status int, code, message string) {
	if j, wrapped := w.(jsonErrors); wrapped {
		w = j.ResponseWriter
	}
	writeJSON(w, status, map[string]any{"error": map[string]string{"code": code, "message": message}})
}

// jsonErrors turns the two plain-text answers that the standard router makes
// by itself, 404 and 405, into refusals of ours.
type jsonErrors struct{ http.ResponseWriter }

// WriteHeader replaces what the router says. Its answers are the only ones of
// type text/plain here.
func (j jsonErrors) WriteHeader(status int) {
	if j.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		j.ResponseWriter.WriteHeader(status)
		return
	}
	code, message := "not_found", "there is nothing at this path"
	if status == http.StatusMethodNotAllowed {
		code, message = "method_not_allowed", "this path does not take this method; see the Allow header"
	}
	refuse(j.ResponseWriter, status, code, message)
}

// Write drops the text that follows the router's own status.
func (j jsonErrors) Write(b []byte) (int, error) {
	if j.Header().Get("Content-Type") == "application/json" && len(b) > 0 && b[0] != '{' {
		return len(b), nil
	}
	return j.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (j jsonErrors) Unwrap() http.ResponseWriter { return j.ResponseWriter }
