package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"rollcall/ledger"
	"rollcall/ledger/transitions"
)

const (
	emailsMax  = 5 // people of one life
	humansLife = 5 * time.Minute
	humansIdle = time.Minute
)

// humans is a life of people who are invited, sign in, change roles and passwords, and are signed out.
type humans struct {
	*world
	was   people                      // after the commit before
	links []ledger.Link               // that were made
	owned map[uuid.UUID]bool          // workspaces that had an owner
	over  map[ledger.Hash]int64       // sessions that were answered as ended, and when
	used  map[ledger.Hash]ledger.Hash // which session each link was answered to
}

// RunHumans lives such a life; the same seed gives the same.
func RunHumans(seed uint64, operations int) Life { return newHumans(newWorld(seed)).live(operations) }

// RunHumansBeside lives it on another database too, as RunBeside does.
func RunHumansBeside(second Second, seed uint64, operations int) Life {
	w := newWorld(seed)
	w.beside(second)
	return newHumans(w).live(operations)
}

func newHumans(w *world) *humans {
	h := &humans{world: w, was: w.memory.cluster.people.copied(), owned: map[uuid.UUID]bool{}, over: map[ledger.Hash]int64{},
		used: map[ledger.Hash]ledger.Hash{}}
	w.db.check, w.db.between = h.checkCommit, h.others
	return h
}

func (h *humans) live(operations int) Life {
	for range operations {
		if h.violation != "" {
			break
		}
		h.operation()
	}
	return Life{Answers: h.answers, Transactions: h.db.runs, Commits: h.commits, Faults: h.db.faults, Verifications: len(h.used),
		Violation: h.violation}
}

// others run while a transaction waits to be run again.
func (h *humans) others() {
	if h.depth == depthMax {
		return
	}
	h.depth++
	h.operation()
	h.depth--
}

// operation is one thing that somebody does.
func (h *humans) operation() {
	switch at := h.random.IntN(100); {
	case at < 20:
		h.invite()
	case at < 45:
		h.accept()
	case at < 55:
		h.begin()
	case at < 65:
		h.changeRole()
	case at < 75:
		h.end()
	case at < 79:
		h.disable()
	case at < 83:
		h.fails()
	case at < 92:
		h.believe()
	case at < 96:
		h.deliver()
	default:
		h.memory.now += h.random.Int64N(2 * humansIdle.Milliseconds())
		if h.chance(30) {
			h.memory.now += ledger.LinkLife.Milliseconds()
		}
	}
}

// hash makes one that is nobody's.
func (h *humans) hash() (hash ledger.Hash) {
	id := h.id()
	copy(hash[:], id[:])
	return hash
}

// as is who acts.
func (h *humans) as() context.Context {
	actor := []string{"", operator, "user:1"}[h.random.IntN(3)]
	if u := h.somebody(); u != nil && actor == "user:1" {
		actor = "user:" + u.ID.String()
	}
	return ledger.WithActor(context.Background(), actor)
}

const operator = "operator"

// somebody is a user; nil while there is none.
func (h *humans) somebody() *ledger.User {
	list := make([]ledger.User, 0, emailsMax)
	for _, u := range h.memory.cluster.people.users {
		list = append(list, u)
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b ledger.User) int { return slices.Compare(a.ID[:], b.ID[:]) }) // a seed gives one life
	return &list[h.random.IntN(len(list))]
}

// invite makes a link, for a workspace or for a password.
func (h *humans) invite() {
	l := ledger.Link{ID: h.hash(), Purpose: ledger.InviteLink, Workspace: h.workspace(),
		Email: fmt.Sprintf("p%d@a.test", h.random.IntN(emailsMax)), Role: []ledger.Role{ledger.Viewer, ledger.Member, ledger.Owner}[h.random.IntN(3)]}
	if h.chance(300) {
		l.Purpose, l.Workspace, l.Role = ledger.PasswordLink, uuid.Nil, ""
	}
	ctx := h.as()
	l.MadeBy = ledger.Actor(ctx)
	call := func() {
		made, err := h.book.MakeLink(ctx, l)
		if h.answered("make link", err, ledger.ErrNoSuchUser, ledger.ErrNotOwner) && !made.Same(l) {
			h.wrong("links", "made %+v, answered %+v", l, made)
		}
	}
	call()
	h.again(call)
	h.links = append(h.links, l)
	if h.chance(100) {
		old := h.links[h.random.IntN(len(h.links))]
		h.answered("end link", h.book.EndLink(ctx, old.Workspace, old.ID), ledger.ErrNoSuchLink)
	}
}

// accept uses a link, or tries one that was used.
func (h *humans) accept() {
	if len(h.links) == 0 {
		return
	}
	l := h.links[max(len(h.links)-1-h.random.IntN(6), 0)]
	a := ledger.Accept{Link: l.ID, User: h.id(), Password: "$argon2id$1", Session: ledger.NewSession{ID: h.hash(), Life: humansLife}}
	if u := h.userOf(l.Email); u != nil && u.Password != "" && l.Purpose == ledger.InviteLink {
		a.Password = ""
	}
	ctx := h.as()
	call := func() {
		in, err := h.book.AcceptLink(ctx, a)
		if !h.answered("accept link", err, ledger.ErrNoSuchLink, ledger.ErrIllegal) {
			return
		}
		if by, known := h.used[l.ID]; known && by != a.Session.ID {
			h.wrong("links", "used by two sessions")
		}
		h.used[l.ID] = a.Session.ID
		if in.Session.ID != a.Session.ID || ledger.FoldEmail(in.User.Email) != l.Email || !in.User.Disabled.IsZero() {
			h.wrong("links", "accepted %+v, answered %+v", l, in)
		}
	}
	call()
	h.again(call)
}

func (h *humans) userOf(email string) *ledger.User {
	for _, u := range h.memory.cluster.people.users {
		if u.Email == email {
			return &u
		}
	}
	return nil
}

// begin signs somebody in.
func (h *humans) begin() {
	u := h.somebody()
	if u == nil {
		return
	}
	n := ledger.NewSession{ID: h.hash(), User: u.ID, Life: time.Duration(1+h.random.IntN(1000)) * humansLife / 1000}
	call := func() {
		in, err := h.book.BeginSession(context.Background(), n)
		// It may have ended before it was read, or the call came a second time when it was over.
		if h.answered("begin session", err, ledger.ErrNoSuchUser, ledger.ErrIllegal) && in.User.ID != u.ID {
			h.wrong("sessions", "began one of %s, answered %+v", u.ID, in)
		}
	}
	call()
	h.again(call)
}

// changeRole gives a member another role, or none.
func (h *humans) changeRole() {
	u := h.somebody()
	if u == nil {
		return
	}
	workspace, role := h.workspace(), []ledger.Role{"", ledger.Viewer, ledger.Member, ledger.Owner}[h.random.IntN(4)]
	ctx := h.as()
	call := func() {
		h.answered("set role", h.book.SetRole(ctx, workspace, u.ID, role), ledger.ErrNoSuchUser, ledger.ErrNotOwner, ledger.ErrLastOwner)
	}
	call()
	h.again(call)
}

// end ends one session or all of somebody, or changes their password.
func (h *humans) end() {
	u := h.somebody()
	if u == nil {
		return
	}
	held, _ := h.book.Sessions(context.Background(), u.ID, forEver)
	but := ledger.Hash{}
	if len(held) > 0 && h.chance(500) {
		but = held[h.random.IntN(len(held))].ID
	}
	var err error
	switch ctx := context.Background(); h.random.IntN(3) {
	case 0:
		err = h.book.EndSession(ctx, u.ID, but)
		held = slices.DeleteFunc(held, func(s ledger.Session) bool { return s.ID != but })
		but = ledger.Hash{}
	case 1:
		_, err = h.book.EndSessions(ctx, u.ID, but)
	case 2:
		err = h.book.SetPassword(ctx, u.ID, "$argon2id$2", but)
	}
	if h.answered("end sessions", err) {
		h.ends(held, but)
	}
}

const forEver = 1 << 62 * time.Nanosecond

// ends notes the sessions that a call answered as ended: those that held before it.
func (h *humans) ends(held []ledger.Session, but ledger.Hash) {
	for _, s := range held {
		if s.ID != but {
			h.over[s.ID] = h.memory.now
		}
	}
}

// disable lets nobody sign in as somebody, or undoes that.
func (h *humans) disable() {
	u := h.somebody()
	if u == nil {
		return
	}
	held, _ := h.book.Sessions(context.Background(), u.ID, forEver)
	disabled, done := h.chance(400), h.answers
	after, err := h.book.DisableUser(h.as(), u.ID, disabled)
	if !h.answered("disable", err) {
		return
	}
	if after.Disabled.IsZero() == disabled {
		h.wrong("users", "disabled: %v, answered %+v", disabled, after)
	}
	if disabled && done+1 == h.answers { // nobody enabled them meanwhile
		h.ends(held, ledger.Hash{})
	}
}

// fails counts a failed sign-in once, whatever becomes of its commits.
func (h *humans) fails() {
	subject := ledger.Hash{byte(1 + h.random.IntN(3))}
	rule := ledger.AttemptRule{Free: 3, Window: time.Hour, First: time.Second, Most: time.Minute}
	before, answers := h.memory.cluster.people.attempts[subject], h.answers
	_, err := h.book.FailedSignIn(context.Background(), []ledger.Hash{subject}, rule)
	if !h.answered("failed sign-in", err) || h.answers != answers+1 {
		return
	}
	if now := h.memory.cluster.people.attempts[subject]; now.Failures != before.Failures+1 && now.Failures != 1 {
		h.wrong("attempts", "%+v, then %+v", before, now)
	}
}

// believe asks what a session may do, as each request does.
func (h *humans) believe() {
	if len(h.memory.cluster.people.sessions) == 0 {
		return
	}
	list := make([]ledger.Hash, 0, len(h.memory.cluster.people.sessions))
	for id := range h.memory.cluster.people.sessions {
		list = append(list, id)
	}
	slices.SortFunc(list, func(a, b ledger.Hash) int { return slices.Compare(a[:], b[:]) })
	id := list[h.random.IntN(len(list))]
	in, err := h.book.SessionByID(context.Background(), id, humansIdle)
	if errors.Is(err, ledger.ErrNoSuchSession) {
		return
	}
	if err != nil {
		h.wrong("answer", "read session: %v", err)
		return
	}
	now := h.memory.now
	if at, ended := h.over[id]; ended && now >= at { // the clock of another gateway may be behind
		h.wrong("sessions", "believed at %d, it was ended at %d", now, at)
	}
	if in.Session.Ends.UnixMilli() <= now || now-in.Session.Seen.UnixMilli() > humansIdle.Milliseconds() || !in.User.Disabled.IsZero() {
		h.wrong("sessions", "believed at %d: %+v of %+v", now, in.Session, in.User)
	}
}

// checkCommit looks at all that people have after each commit.
func (h *humans) checkCommit() {
	h.commits++
	now := h.memory.cluster.people
	owners := map[uuid.UUID]int{}
	for key, is := range now.members {
		if is.Role == ledger.Owner {
			owners[key.workspace]++
			h.owned[key.workspace] = true
		}
		if _, found := now.users[key.user]; !found {
			h.wrong("owners", "a member who is nobody: %+v", is)
		}
	}
	for workspace := range h.owned {
		if owners[workspace] == 0 {
			h.wrong("members", "no owner is left in %s", workspace)
		}
	}
	for id, l := range h.was.links {
		after, found := now.links[id]
		if !found || !l.Used.IsZero() && (after.Used != l.Used || after.Session != l.Session) || !after.Same(l.Link) {
			h.wrong("links", "from %+v to %+v", l, after)
		}
	}
	for id, s := range h.was.sessions {
		after, found := now.sessions[id]
		if !found || after.User != s.User || after.Ends.After(s.Ends) {
			h.wrong("sessions", "from %+v to %+v", s, after)
		}
	}
	begun := map[ledger.Hash]bool{}
	for id, l := range now.links {
		if l.Session != (ledger.Hash{}) && begun[l.Session] {
			h.wrong("links", "a session began with two, one of them %s", id)
		}
		begun[l.Session] = true
		h.checkMaker(&now, l)
	}
	for id, u := range now.users {
		if !u.Disabled.IsZero() && h.was.users[id].Disabled.IsZero() {
			h.checkDisabled(&now, u)
		}
	}
	if len(now.lines) < len(h.was.lines) {
		h.wrong("log", "%d lines, there were %d", len(now.lines), len(h.was.lines))
	}
	h.was = now.copied()
}

// checkMaker: an invitation that can be used was made by an operator, or by who is an owner now.
func (h *humans) checkMaker(now *people, l transitions.LinkRow) {
	text, is := strings.CutPrefix(l.MadeBy, "user:")
	id, err := uuid.Parse(text)
	if !is || err != nil || l.Purpose != ledger.InviteLink || !l.Open(time.UnixMilli(h.memory.ran)) {
		return
	}
	if now.members[membership{l.Workspace, id}].Role != ledger.Owner {
		h.wrong("links", "made by who is no owner: %+v", l)
	}
}

// checkDisabled: who may not sign in any more has no session and no link.
func (h *humans) checkDisabled(now *people, u ledger.User) {
	for _, s := range now.sessions {
		if s.User == u.ID && s.Ends.UnixMilli() > h.memory.ran {
			h.wrong("users", "disabled, with session %+v", s)
		}
	}
	for _, l := range now.links {
		if l.Email == u.Email && l.Open(u.Disabled) {
			h.wrong("users", "disabled, with link %+v", l)
		}
	}
}
