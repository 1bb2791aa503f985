package smtp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// replyReader reads replies (RFC 5321 §4.2) within the size limits. After an error it must not be used again.
type replyReader struct {
	buf   *bufio.Reader
	lines int // limit of one reply
	bytes int // limit of one reply
	left  int // bytes that the session may still read

	greeted bool // a reply was read
	grouped bool // replies to further commands of the group may follow (RFC 2920)

	newest [8]Reply // ring of one-line replies, because most of them repeat
	oldest int
}

func newReplyReader(from io.Reader, l *Limits) replyReader {
	return replyReader{
		buf:   bufio.NewReaderSize(from, l.LineBytes),
		lines: l.ReplyLines,
		bytes: l.ReplyBytes,
		left:  l.SessionBytes,
	}
}

// empty reports whether no byte is waiting to be read. Bytes before a command answer nothing.
func (r *replyReader) empty() bool { return r.buf.Buffered() == 0 }

// skipBlank drops empty lines that wait to be read.
func (r *replyReader) skipBlank() {
	for !r.empty() {
		waiting, _ := r.buf.Peek(min(2, r.buf.Buffered()))
		end := bytes.IndexByte(waiting, '\n') + 1
		if end == 0 || end == 2 && waiting[0] != '\r' {
			return
		}
		r.left -= end
		_, _ = r.buf.Discard(end)
	}
}

// read reads one reply with all its lines. It is as lenient as servers that deliver mail. A line may end in LF
// alone: a reply is never forwarded and nothing may follow it, so this cannot be exploited. It skips blank lines
// before a reply, lines of text before the greeting, and lines without a code inside a reply. Of two codes in a
// reply the last one counts, except that an acceptance never replaces a refusal. In a group of commands it accepts
// none of this: a second code or a stray line could be the reply to another command.
//
// Errors: ErrProtocol, ErrTooLarge, or the connection's error.
func (r *replyReader) read() (Reply, error) {
	var reply Reply
	size, said := 0, false
	for n := 1; ; n++ {
		line, err := r.line(&size)
		if err != nil {
			if said && len(reply.Lines) == 0 && errors.Is(err, io.EOF) {
				err = ErrProtocol
			}
			return Reply{}, err
		}
		if n > r.lines {
			return Reply{}, ErrTooLarge
		}
		code, more, text, ok := parseReplyLine(line)
		switch first := len(reply.Lines) == 0; {
		case ok && first:
			reply.Code = code
		case ok && code == reply.Code:
		case ok && !r.grouped:
			text = reply.unite(code, text)
		case r.grouped, !mayStray(line, r.greeted && first):
			return Reply{}, ErrProtocol
		case first:
			said = true
			continue
		default:
			code, more, text = 0, true, bytes.TrimSpace(line)
		}
		enhanced, text := cutEnhanced(text)
		if n == 1 && !more {
			r.greeted = true
			return r.oneLine(code, enhanced, text), nil
		}
		if reply.Enhanced == (EnhancedCode{}) && code == reply.Code {
			reply.Enhanced = enhanced
		}
		reply.Lines = append(reply.Lines, string(text))
		if !more {
			r.greeted = true
			return reply, nil
		}
	}
}

// oneLine returns a reply of one line. It reuses one of the newest replies if equal: most replies to RSET, MAIL and
// RCPT repeat.
func (r *replyReader) oneLine(code int, enhanced EnhancedCode, text []byte) Reply {
	for i := range r.newest {
		if old := &r.newest[i]; old.Code == code && old.Enhanced == enhanced && old.Lines[0] == string(text) {
			return *old
		}
	}
	reply := Reply{Code: code, Enhanced: enhanced, Lines: []string{string(text)}}
	r.newest[r.oldest] = reply
	r.oldest = (r.oldest + 1) % len(r.newest)
	return reply
}

// unite adds a second code to a reply, and returns the text of its line. The last code counts, except an acceptance
// after a refusal. The text of an acceptance beside a refusal begins with "[and 250]".
func (reply *Reply) unite(code int, text []byte) []byte {
	was, last := reply.Code, len(reply.Lines)-1
	if code/100 >= 4 || was/100 < 4 {
		reply.Code, reply.Enhanced = code, EnhancedCode{}
	}
	switch {
	case code/100 < 4 && was/100 >= 4:
		return fmt.Appendf(nil, "[and %d] %s", code, text)
	case code/100 >= 4 && was/100 < 4:
		reply.Lines[last] = fmt.Sprintf("[and %d] %s", was, reply.Lines[last])
	}
	return text
}

// line reads one line and adds its length to size. It cuts a line that is longer than the buffer.
func (r *replyReader) line(size *int) ([]byte, error) {
	var start []byte // of a line that is too long
	for {
		line, err := r.buf.ReadSlice('\n')
		*size += len(line)
		r.left -= len(line)
		switch {
		case *size > r.bytes || r.left < 0:
			return nil, ErrTooLarge
		case errors.Is(err, bufio.ErrBufferFull):
			if start == nil {
				start = bytes.Clone(line)
				start[len(start)-1] = '\n'
			}
		case err != nil:
			return nil, err
		case start != nil:
			return start, nil
		default:
			return line, nil
		}
	}
}

// mayStray reports whether a line without a code may stand among the lines of replies. An empty line always may; a line
// of text may not before a reply to a command. A line that looks like a code or like another protocol never may.
func mayStray(line []byte, beforeAnswer bool) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || !beforeAnswer && !isDigit(line[0]) && !bytes.HasPrefix(line, []byte("SSH-")) &&
		!bytes.HasPrefix(line, []byte("HTTP/"))
}

// parseReplyLine parses one line: three digits, then a hyphen when more lines follow, or anything but a digit. RFC
// 5321 §4.2.1 has a space or nothing there; some servers send a tab, or the text at once.
func parseReplyLine(line []byte) (code int, more bool, text []byte, ok bool) {
	line = bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'})
	if len(line) < 3 || line[0] < '2' || line[0] > '5' || !isDigit(line[1]) || !isDigit(line[2]) ||
		len(line) > 3 && isDigit(line[3]) {
		return 0, false, nil, false
	}
	code = int(line[0]-'0')*100 + int(line[1]-'0')*10 + int(line[2]-'0')
	more = len(line) > 3 && line[3] == '-'
	if text = line[3:]; more {
		text = text[1:]
	}
	return code, more, bytes.TrimLeft(text, " \t"), true
}

// cutEnhanced cuts an enhanced code off the start of text (RFC 3463 §2, RFC 2034 §4): class 2, 4 or 5, subject and
// detail of one to three digits.
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
