package smtp

import (
	"fmt"
	"net/netip"
	"strings"
)

// Stage is the point in a session at which a reply came or was expected.
type Stage uint8

// The stages of a probing session, in order.
const (
	StageNone Stage = iota
	StageConnect
	StageGreeting
	StageHello
	StageTLS
	StageMail
	StageRcpt
	StageRset
)

var stageNames = [...]string{"none", "connect", "greeting", "hello", "tls", "mail", "rcpt", "rset"}

func (s Stage) String() string {
	if int(s) < len(stageNames) {
		return stageNames[s]
	}
	return fmt.Sprintf("stage(%d)", uint8(s))
}

// EnhancedCode is an RFC 3463 code such as 5.1.1; the zero value means none was given.
type EnhancedCode [3]uint16

func (c EnhancedCode) String() string {
	if c == (EnhancedCode{}) {
		return ""
	}
	return fmt.Sprintf("%d.%d.%d", c[0], c[1], c[2])
}

// Reply is a receiver's reply (RFC 5321 §4.2).
type Reply struct {
	Code     int          // 200 to 599
	Enhanced EnhancedCode // from the start of the first line that has one (RFC 2034 §4)
	Lines    []string     // text of each line, without code and enhanced code; bounded; any bytes
}

// Text joins the lines with a space.
func (r Reply) Text() string { return strings.Join(r.Lines, " ") }

// Accepted reports whether the reply is a 2xx.
func (r Reply) Accepted() bool { return r.Code/100 == 2 }

// Temporary reports whether the reply is a 4xx.
func (r Reply) Temporary() bool { return r.Code/100 == 4 }

// Permanent reports whether the reply is a 5xx.
func (r Reply) Permanent() bool { return r.Code/100 == 5 }

// Failure is the stage and cause of a session's end: the receiver's Reply if there was one (Reply.Code is not 0),
// otherwise Err.
type Failure struct {
	Stage  Stage
	Reply  Reply
	Err    error
	Source netip.Addr // our address; the zero value: there was no connection

	// NoHELO reports that EHLO was refused for good (see Reply), and the session ended before HELO got a reply. The
	// caller may open again with TLSOffHELO.
	NoHELO bool

	ending *Ending // see Ending; nil: there was no connection
}

// Error never contains the receiver's text or an address.
func (f *Failure) Error() string {
	if f.Reply.Code != 0 {
		return fmt.Sprintf("smtp: %s refused with %d %s", f.Stage, f.Reply.Code, f.Reply.Enhanced)
	}
	return fmt.Sprintf("smtp: %s: %v", f.Stage, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }
