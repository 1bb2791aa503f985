package smtp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// replyReader reads replies (RFC 5321 §4.2) and keeps to the limits of size.
// After an error it must not be used again.
type replyReader struct {
	buf   *bufio.Reader
	lines int // most in one reply
	bytes int // most in one reply
	left  int // bytes that the session may still read

	last [6]Reply // the newest of one line, by the first digit: most are said again
}

func newReplyReader(from io.Reader, l *Limits) replyReader {
	return replyReader{
		buf:   bufio.NewReaderSize(from, l.LineBytes),
		lines: l.ReplyLines,
		bytes: l.ReplyBytes,
		left:  l.SessionBytes,
	}
}

// empty says that no byte is waiting to be read; anything there before a
// command was sent answers nothing that was asked.
func (r *replyReader) empty() bool { return r.buf.Buffered() == 0 }

// read reads one reply, all its lines. A line may end in LF alone: old servers
// do that, and since a reply is never forwarded and nothing may follow it,
// taking it cannot be turned against us.
//
// Errors: ErrProtocol, ErrTooLarge, or what the connection says.
func (r *replyReader) read() (Reply, error) {
	var reply Reply
	size := 0
	for n := 1; ; n++ {
		line, err := r.buf.ReadSlice('\n')
		size += len(line)
		r.left -= len(line)
		if errors.Is(err, bufio.ErrBufferFull) || n > r.lines || size > r.bytes || r.left < 0 {
			return Reply{}, ErrTooLarge
		}
		if err != nil {
			return Reply{}, err
		}
		code, more, text, ok := parseReplyLine(line)
		if !ok || (n > 1 && code != reply.Code) {
			return Reply{}, ErrProtocol
		}
		reply.Code = code
		enhanced, text := cutEnhanced(text)
		if last := r.last[code/100]; n == 1 && !more && len(last.Lines) == 1 && last.Code == code &&
			last.Enhanced == enhanced && last.Lines[0] == string(text) {
			return last, nil
		}
		if reply.Enhanced == (EnhancedCode{}) {
			reply.Enhanced = enhanced
		}
		reply.Lines = append(reply.Lines, string(text))
		if !more {
			if n == 1 {
				r.last[code/100] = reply
			}
			return reply, nil
		}
	}
}

// parseReplyLine takes one line apart: three digits, then a space, a hyphen
// when more lines follow, or nothing (RFC 5321 §4.2.1).
func parseReplyLine(line []byte) (code int, more bool, text []byte, ok bool) {
	line = bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'})
	if len(line) < 3 || line[0] < '2' || line[0] > '5' || !isDigit(line[1]) || !isDigit(line[2]) {
		return 0, false, nil, false
	}
	code = int(line[0]-'0')*100 + int(line[1]-'0')*10 + int(line[2]-'0')
	if len(line) == 3 {
		return code, false, nil, true
	}
	if line[3] != ' ' && line[3] != '-' {
		return 0, false, nil, false
	}
	return code, line[3] == '-', line[4:], true
}

// cutEnhanced takes an enhanced code off the start of text (RFC 3463 §2, RFC
// 2034 §4): class 2, 4 or 5, subject and detail of one to three digits.
func cutEnhanced(text []byte) (EnhancedCode, []byte) {
	if len(text) < 5 || text[1] != '.' || (text[0] != '2' && text[0] != '4' && text[0] != '5') {
		return EnhancedCode{}, text
	}
	subject, n := cutNumber(text[2:])
	rest := text[2+n:]
	if n == 0 || len(rest) == 0 || rest[0] != '.' {
		return EnhancedCode{}, text
	}
	detail, m := cutNumber(rest[1:])
	rest = rest[1+m:]
	if m == 0 || (len(rest) > 0 && (isDigit(rest[0]) || rest[0] == '.')) {
		return EnhancedCode{}, text
	}
	return EnhancedCode{uint16(text[0] - '0'), subject, detail}, bytes.TrimLeft(rest, " \t")
}

func cutNumber(text []byte) (value uint16, digits int) {
	for digits < len(text) && digits < 3 && isDigit(text[digits]) {
		value = value*10 + uint16(text[digits]-'0')
		digits++
	}
	return value, digits
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
