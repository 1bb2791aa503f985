package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollcall/cluster"
	"rollcall/config/effort"
)

func TestEveryNodeTellsItsHealth(t *testing.T) {
	c := newInspector(t)
	c.options.Health = func() Health {
		h := Health{Known: true, Why: strings.Repeat("é", 400)}
		for i := range 600 {
			h.Findings = append(h.Findings, HealthFinding{Check: "ptr", Source: fmt.Sprint(i),
				State: []string{"ok", "skipped", "warn", "fail"}[i%4],
				Saw:   strings.Repeat("x", 1000), Next: "ask"})
		}
		return h
	}
	of := func(h Health) func(context.Context, []byte) ([]byte, error) {
		return node{"health": func(none) Health { return h }}.answer
	}
	m := &members{name: "node-2", answer: map[string]func(context.Context, []byte) ([]byte, error){
		"node-1": of(Health{Node: "another name", Known: true, Probing: true}), "node-2": c.Answer,
		"node-3": of(Health{Known: true})}}
	c.Join(m)
	found, quiet, err := c.Health(t.Context())
	effort.FatalIf(t, err != nil || len(quiet) > 0, "%v %v", quiet, err)
	names := []string{}
	for _, h := range found {
		names = append(names, fmt.Sprint(h.Node, h.This))
	}
	want := []string{"node-2true", "node-3false", "node-1false"}
	effort.ErrorIf(t, !slices.Equal(names, want), "%q, want %q", names, want)
	own := found[0]
	effort.ErrorIf(t, len(own.Findings) != findingsMax || own.More != 100 || own.Findings[0].State != "fail" ||
		own.Findings[findingsMax-1].State != "ok", "%d findings, %d more, first %+v", len(own.Findings), own.More,
		own.Findings[0])
	if n := len([]rune(own.Why)); n != sawMax+1 || len([]rune(own.Findings[0].Saw)) != sawMax+1 {
		t.Errorf("texts of %d and %d runes", n, len([]rune(own.Findings[0].Saw)))
	}
	packed, err := c.Answer(t.Context(), []byte(`{"kind":"health","ask":{}}`))
	effort.ErrorIf(t, err != nil || len(packed) > cluster.AnswerMax, "an answer of %d bytes, %v", len(packed), err)
	m.answer["node-3"] = func(context.Context, []byte) ([]byte, error) {
		return nil, errors.New("does not know the question")
	}
	found, quiet, err = c.Health(t.Context())
	effort.ErrorIf(t, err != nil || len(found) != 2 || len(quiet) != 1 || quiet[0].Node != "node-3",
		"%d answer, silent %v, %v", len(found), quiet, err)
}
