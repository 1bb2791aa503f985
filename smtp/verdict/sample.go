package verdict

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// ParseReply reads a reply as in a log: "550 5.1.1 User unknown". " / " separates the lines of a longer one, whose
// codes may be omitted.
func ParseReply(text string) (smtp.Reply, error) {
	var reply smtp.Reply
	for i, line := range strings.Split(text, " / ") {
		code, rest := codeOf(line)
		switch {
		case code == 0 && i == 0:
			return reply, fmt.Errorf("%q does not begin with a code: write the reply like \"550 5.1.1 User unknown\"", text)
		case i == 0, code == reply.Code:
			reply.Code, line = code, rest
		}
		enhanced, line := cutEnhanced(line)
		if reply.Enhanced == noEnhanced {
			reply.Enhanced = enhanced
		}
		reply.Lines = append(reply.Lines, line)
	}
	return reply, nil
}

// codeOf cuts "550 " or "550-" off the start of a line; 0: there is none.
func codeOf(line string) (code int, rest string) {
	if len(line) < 3 || len(line) > 3 && line[3] != ' ' && line[3] != '-' {
		return 0, line
	}
	code, err := strconv.Atoi(line[:3])
	if err != nil || code < 100 {
		return 0, line
	}
	return code, strings.TrimLeft(line[min(4, len(line)):], " ")
}

// cutEnhanced cuts an enhanced code off the start of a line (RFC 2034 §4).
func cutEnhanced(line string) (smtp.EnhancedCode, string) {
	first, rest, _ := strings.Cut(line, " ")
	parts := strings.Split(first, ".")
	var e smtp.EnhancedCode
	if len(parts) != 3 {
		return e, line
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || len(part) > 3 {
			return noEnhanced, line
		}
		e[i] = uint16(n)
	}
	return e, rest
}

// Sample reads a sample of a rule, or a line of testdata/replies: a reply as in ParseReply, optionally after "stage |
// ". The default stage is rcpt. After the stage, "-wide" means an address with a non-ASCII local part, "-local x" one
// with the local part x, and a final "@host" names the receiver's host. The defaults are the given host, the address
// john.doe@example.com, our hello name probe.example, our source 192.0.2.25 and our return path check@probe.example.
func Sample(text, host string) (evidence.Attempt, error) {
	raw := evidence.Raw{
		Stage: smtp.StageRcpt, Host: host, Hello: "probe.example", Source: "192.0.2.25",
		Address:    smtp.Address{Local: "john.doe", Domain: "example.com"},
		ReturnPath: smtp.Address{Local: "check", Domain: "probe.example"},
	}
	if head, rest, found := strings.Cut(text, " | "); found && head != "" && !isDigit(head[0]) {
		text = rest
		head, named, _ := strings.Cut(head, "@")
		if named != "" {
			raw.Host = named
		}
		name, kind, _ := strings.Cut(head, "-")
		switch local, isLocal := strings.CutPrefix(kind, "local "); {
		case isLocal:
			raw.Address.Local = local
		case kind == "wide":
			raw.Address.Local = "jürgen"
		case kind != "":
			return evidence.Attempt{}, errors.New(`behind the stage of a sample stands nothing, "-wide" or "-local x"`)
		}
		for raw.Stage = smtp.StageNone; raw.Stage.String() != name; raw.Stage++ {
			if raw.Stage == smtp.StageRset {
				return evidence.Attempt{}, fmt.Errorf("%q is no stage: write greeting, hello, tls, mail, rcpt or rset", name)
			}
		}
	}
	var err error
	if raw.Reply, err = ParseReply(text); err != nil {
		return evidence.Attempt{}, err
	}
	return evidence.Note(raw), nil
}
