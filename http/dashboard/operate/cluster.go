package operate

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/actors/inspect"
	"rollcall/http/admin"
	"rollcall/http/web"
	"rollcall/smtp/throttle"
)

type clusterView struct{ admin.Membership }

// Serving returns how many nodes serve.
func (v clusterView) Serving() (n int) {
	for _, m := range v.Members {
		if m.State == admin.StateServing {
			n++
		}
	}
	return n
}

type memberView struct {
	admin.Member
	Problem string
	Changes bool
	Alone   bool // it is the only one
}

// Drains and Resumes report which of the two actions can change something. An unreachable node may or may not drain.
func (m memberView) Drains() bool { return m.State != admin.StateDraining }

// Resumes is for the other action.
func (m memberView) Resumes() bool {
	return m.State != admin.StateServing && m.State != admin.StateIneligible
}

func cluster(p *Pages, w http.ResponseWriter, r *request) error {
	found, err := p.service.Members(r.Context())
	if err != nil {
		return err
	}
	return p.show(w, r, http.StatusOK, "cluster", titled("Cluster", "cluster", clusterView{found}))
}

func (p *Pages) find(r *request) (v memberView, err error) {
	found, err := p.service.Members(r.Context())
	if err != nil {
		return v, err
	}
	for _, m := range found.Members {
		if m.Session.String() == r.PathValue("node") || m.Node.String() == r.PathValue("node") {
			return memberView{Member: m, Alone: len(found.Members) == 1}, nil
		}
	}
	return v, web.Failure{Status: http.StatusNotFound, Title: "There is no such node",
		Text: "It left the cluster and was forgotten, or the link is wrong.", Next: "Look at the list.",
		Link: "/cluster", Label: "To the cluster"}
}

func member(p *Pages, w http.ResponseWriter, r *request) error {
	m, err := p.find(r)
	if err != nil {
		return err
	}
	return p.showMember(w, r, http.StatusOK, m)
}

func (p *Pages) showMember(w http.ResponseWriter, r *request, status int, v memberView) error {
	v.Changes = !r.in.ReadOnly
	return p.show(w, r, status, "member", titled(v.Name+" · Cluster", "cluster", v))
}

// drain, undrain and forgetNode answer the forms of GET /cluster/{node}. Irreversible actions ask for the node's name.
var (
	drain      = change(true, (*admin.Service).Drain)
	undrain    = change(false, (*admin.Service).Undrain)
	forgetNode = change(true, (*admin.Service).ForgetNode)
)

func change(named bool, do func(*admin.Service, context.Context, string) (admin.Member, error)) handler {
	return func(p *Pages, w http.ResponseWriter, r *request) error {
		m, err := p.find(r)
		if err != nil {
			return err
		}
		if named && web.Text(r.Request, "name") != m.Name {
			m.Problem = "The name that you wrote is not this node's name. Nothing was changed."
			return p.showMember(w, r, http.StatusUnprocessableEntity, m)
		}
		if _, err := do(p.service, r.Context(), m.Node.String()); err != nil {
			return err
		}
		return seeOther(w, r, "/cluster")
	}
}

const sourcesEvery = "5s"

type sourcesView struct {
	Rows    []sourceRow
	Used    int // of them
	Silent  []inspect.UnreachableNode
	Changes bool
	Every   string
	Say     string
}

// sourceRow is a source at one node, with its possible changes.
type sourceRow struct {
	inspect.Source
	Does []sourceChange
}

// sourceChange is a change of a source: its name in a form, and in words.
type sourceChange struct{ To, Verb, Says string }

// The changes by the buttons of a source. In a sentence, Says follows the name of the source.
var (
	pauseIt  = sourceChange{"pause", "Pause", "will no longer be used on any node. Its sessions end after their current command."}
	drainIt  = sourceChange{"drain", "Drain", "will open no new sessions on any node. Open sessions run to their end."}
	resumeIt = sourceChange{"resume", "Resume", "will be used again on all nodes. The overrides that pause or drain it end."}
)

func changesOf(state string) []sourceChange {
	switch state {
	case "paused":
		return []sourceChange{resumeIt}
	case "draining":
		return []sourceChange{pauseIt, resumeIt}
	}
	return []sourceChange{pauseIt, drainIt}
}

func (p *Pages) readSources(r *request) (sourcesView, error) {
	found, silent, err := p.service.Sources(r.Context())
	if err != nil {
		return sourcesView{}, err
	}
	v := sourcesView{Silent: silent, Changes: !r.in.ReadOnly, Every: sourcesEvery}
	for _, s := range found {
		v.Rows = append(v.Rows, sourceRow{s, changesOf(s.State)})
		if s.State == "used" {
			v.Used++
		} else {
			v.Say += fmt.Sprintf("%s is %s. ", inspect.SourceName(s.Source), s.State)
		}
	}
	v.Say = strings.TrimSpace(v.Say)
	return v, nil
}

// sourcePath returns the path of the page that asks for confirmation before a source is changed.
func sourcePath(source, to string) string {
	return "/sources/change?" + url.Values{"source": {source}, "to": {to}}.Encode()
}

type sourceForm struct{ Form, Source, To, For, Reason string }

type changeSourceView struct {
	In      sourceForm
	Change  sourceChange
	Name    string // name of the source, for people
	Rule    string // the name of its rule
	Nodes   []string
	State   string // state at the first of its nodes
	Now     inspect.ExplainedField
	Alone   bool // no other source is used now
	Silent  []inspect.UnreachableNode
	Changes bool
	Problem string
}

func askSource(p *Pages, w http.ResponseWriter, r *request) error {
	q := r.URL.Query()
	in := sourceForm{Form: uuid.NewString(), Source: q.Get("source"), To: q.Get("to")}
	return p.showSource(w, r, http.StatusOK, in, "")
}

// showSource shows what a change of a source does, and asks for its reason and duration.
func (p *Pages) showSource(w http.ResponseWriter, r *request, status int, in sourceForm, problem string) error {
	v := changeSourceView{In: in, Name: inspect.SourceName(in.Source), Rule: admin.SourceRule(in.Source),
		Alone: in.To != resumeIt.To, Changes: !r.in.ReadOnly, Problem: problem}
	all := []sourceChange{pauseIt, drainIt, resumeIt}
	i := slices.IndexFunc(all, func(c sourceChange) bool { return c.To == in.To })
	found, silent, err := p.service.Sources(r.Context())
	if err != nil {
		return err
	}
	for _, s := range found {
		if s.Source == in.Source {
			v.Nodes, v.State = append(v.Nodes, s.Node), s.State
		} else if s.State == "used" || s.State == "on trial" {
			v.Alone = false
		}
	}
	if i < 0 || len(v.Nodes) == 0 {
		return web.Failure{Status: http.StatusNotFound, Title: "There is no such source",
			Text: "No node that answers has this source, or the link is wrong. Nothing was changed.", Next: "Look at the list.",
			Link: "/sources", Label: "To the sources"}
	}
	v.Change, v.Silent = all[i], silent
	explained, err := p.service.Explain(r.Context(), v.Rule, true)
	if err != nil {
		return err
	}
	for _, f := range explained.Fields {
		if f.Field == throttle.FieldPause.String() {
			v.Now = f
		}
	}
	return p.show(w, r, status, "source", titled(v.Change.Verb+" "+v.Name+" · Sources", "sources", v))
}

// changeSource answers POST /sources/change. A repeated form makes the change once.
func changeSource(p *Pages, w http.ResponseWriter, r *request) error {
	of := func(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }
	in := sourceForm{of("form"), of("source"), of("to"), of("for"), of("reason")}
	id, wrongForm := uuid.Parse(in.Form)
	holds, wrongTime := parseHolds(in.For)
	problem := ""
	switch {
	case in.Reason == "":
		problem = "Say why: whoever looks at the source sees it, and the operator log keeps it."
	case in.To == resumeIt.To:
	case wrongForm != nil:
		problem, in.Form = "The form was too old. Please send it again.", uuid.NewString()
	case wrongTime != nil:
		problem = web.Sentence(wrongTime.Error())
	}
	if problem != "" {
		return p.showSource(w, r, http.StatusUnprocessableEntity, in, problem)
	}
	err := p.applySource(r, in, id, holds)
	if status := statusOf(err); status == http.StatusBadRequest || status == http.StatusConflict {
		in.Form = uuid.NewString()
		return p.showSource(w, r, http.StatusUnprocessableEntity, in, "This wasn't done: "+plainly(err)+".")
	}
	if err != nil {
		return err
	}
	return seeOther(w, r, "/sources")
}

func (p *Pages) applySource(r *request, in sourceForm, id uuid.UUID, holds time.Duration) error {
	if in.To != resumeIt.To {
		pause := map[string]throttle.Pause{pauseIt.To: throttle.PauseYes, drainIt.To: throttle.PauseDrain}[in.To]
		_, err := p.service.SetOverride(r.Context(), admin.OverrideCall{ID: id, Key: admin.SourceRule(in.Source),
			Fields:  map[string]string{throttle.FieldPause.String(): string(pause)},
			Seconds: int64(holds / time.Second), Reason: in.Reason})
		return err
	}
	still, err := p.service.ResumeSource(r.Context(), in.Source, in.Reason)
	if err != nil || len(still) == 0 {
		return err
	}
	by := "the throttle file, which has to be changed on the nodes"
	if last := still[len(still)-1]; last.ID != "" {
		by = fmt.Sprintf("an override that sets other fields too (%q). Clear it on the page Throttles", last.Reason)
	}
	return &admin.Refusal{Status: http.StatusConflict,
		Message: "the overrides that only pause it have ended, but it is still paused by " + by}
}
