package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"rollcall/config/effort"
	"rollcall/smtp"
	"rollcall/smtp/identity"
)

func TestWhatSaysThatPort25IsBlocked(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want identity.State
	}{
		{"time-outs", &smtp.Failure{Stage: smtp.StageConnect, Err: os.ErrDeadlineExceeded}, identity.Fail},
		{"greetings", nil, identity.OK},
		{"refusals in the greeting", &smtp.Failure{Stage: smtp.StageGreeting, Err: io.EOF}, identity.OK},
		{"a fault of ours", &smtp.Failure{Stage: smtp.StageConnect, Err: errors.New("too many open files")},
			identity.Skipped},
		{"our own end", &smtp.Failure{Stage: smtp.StageConnect, Err: context.Canceled}, identity.Skipped},
		{"the guard", &smtp.Failure{Stage: smtp.StageConnect, Err: smtp.ErrForbiddenAddress}, identity.Skipped},
	} {
		s := &selfCheck{reach: &identity.Reach{}}
		for i := range 9 {
			s.note(fmt.Sprintf("r%d.test", i), c.err)
		}
		effort.Is(t, identity.CheckReach(s.reach, time.Now()).State, c.want, c.name)
	}
}
