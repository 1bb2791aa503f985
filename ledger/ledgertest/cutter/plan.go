package cutter

import (
	"strings"
	"sync"
	"time"
)

// Kind is what becomes of a statement.
type Kind string

// The kinds. After a cut both sides find their connection closed.
const (
	Pass        Kind = ""            // it is sent and answered
	CutBefore   Kind = "before sent" // cut; the server never sees the statement
	CutSent     Kind = "sent"        // sent and cut at once; it may run or not
	CutExecuted Kind = "executed"    // executed, then cut; nothing of the answer is passed on
	CutAnswer   Kind = "in answer"   // executed, then cut in the middle of the answer
	FailUndone  Kind = "fail undone" // answered with Act.Code; it failed and its transaction is aborted
	FailDone    Kind = "fail done"   // answered with Act.Code although it was executed
	Silence     Kind = "silence"     // not sent and never answered; the connection stays open
	Slow        Kind = "slow"        // passed on after Act.Delay
	refused     Kind = "refused"     // a connection, by Proxy.Refuse
	severed     Kind = "severed"     // a connection, by Proxy.Sever
	silenced    Kind = "silenced"    // a connection, by Proxy.Hush
)

// The codes that matter most to a plan: PostgreSQL's Appendix A.
const (
	SerializationFailure = "40001" // rolled back, run it again
	CompletionUnknown    = "40003" // nobody knows whether it was committed
)

// Act is one decision.
type Act struct {
	Kind  Kind
	Code  string        // the SQLSTATE of FailUndone and FailDone
	Delay time.Duration // of Slow
	Rows  int           // that CutAnswer lets pass before it cuts
}

// Statement is one statement that is about to run.
type Statement struct {
	Text   string // as the client wrote it
	Number int    // counts those since the plan was set, from 1
	// Commit says that it ends a transaction that keeps its changes: COMMIT, or
	// the RELEASE of cockroach-go's savepoint.
	Commit  bool
	Commits int // commits since the plan was set, this one included
}

// Plan decides about each statement, one call at a time; it must not call the
// proxy. Of statements sent in one go (up to a Sync) the first that is not
// passed decides for all.
type Plan func(Statement) Act

// AtStatement does act at the n-th statement, from 1.
func AtStatement(n int, act Act) Plan {
	return func(s Statement) Act {
		if s.Number != n {
			return Act{}
		}
		return act
	}
}

// AtCommit does act at the n-th commit, from 1.
func AtCommit(n int, act Act) Plan {
	return func(s Statement) Act {
		if !s.Commit || s.Commits != n {
			return Act{}
		}
		return act
	}
}

// Always does act at each statement.
func Always(act Act) Plan { return func(Statement) Act { return act } }

// isCommit reports whether text is the commit of a transaction.
func isCommit(text string) bool {
	words := strings.Fields(strings.ToUpper(strings.TrimRight(text, "; \t\r\n")))
	if len(words) == 0 {
		return false
	}
	last := strings.Trim(words[len(words)-1], `"`)
	return words[0] == "COMMIT" || words[0] == "END" || words[0] == "RELEASE" && last == "COCKROACH_RESTART"
}

// isRelease reports whether a commit is that of cockroach-go's savepoint, after
// which the transaction block is still open.
func isRelease(text string) bool {
	return strings.HasPrefix(strings.ToUpper(strings.TrimSpace(text)), "RELEASE")
}

// Recorder notes the statements that run. Safe for concurrent use.
type Recorder struct {
	mu   sync.Mutex
	list []Statement // guarded by mu
}

// Plan passes every statement and notes it.
func (r *Recorder) Plan(s Statement) Act {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, s)
	return Act{}
}

// Statements are those noted so far.
func (r *Recorder) Statements() []Statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Statement(nil), r.list...)
}
