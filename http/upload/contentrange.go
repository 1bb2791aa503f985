package upload

import (
	"strconv"
	"strings"
)

// Range is one Content-Range: the bytes First to Last of Total, or a status
// query. The zero value is no Range; ParseRange makes them.
type Range struct {
	Query       bool  // "bytes */N" or "bytes */*": no bytes come, only a question
	First, Last int64 // of a data range: 0 <= First <= Last < Total
	Total       int64 // of the whole file; TotalUnknown for "bytes */*"
}

// TotalUnknown is the total of the status query "bytes */*".
const TotalUnknown int64 = -1

// ParseRange reads the value of a Content-Range header (RFC 9110 §14.4):
// "bytes a-b/N", "bytes */N" or "bytes */*". The unit is case-insensitive, as
// every range unit is (RFC 9110 §14.1). Numbers are plain decimal digits
// that fit 63 bits. Whatever else is ErrRangeInvalid: another unit, several
// ranges, a > b, b >= N, data of unknown total, N = 0.
func ParseRange(text string) (Range, error) {
	unit, spec, found := strings.Cut(text, " ")
	if !found || !strings.EqualFold(unit, "bytes") {
		return Range{}, ErrRangeInvalid
	}
	span, size, found := strings.Cut(spec, "/")
	if !found {
		return Range{}, ErrRangeInvalid
	}
	if span == "*" && size == "*" {
		return Range{Query: true, Total: TotalUnknown}, nil
	}
	total, ok := parseCount(size)
	if !ok || total == 0 {
		return Range{}, ErrRangeInvalid
	}
	if span == "*" {
		return Range{Query: true, Total: total}, nil
	}
	head, tail, found := strings.Cut(span, "-")
	first, okFirst := parseCount(head)
	last, okLast := parseCount(tail)
	if !found || !okFirst || !okLast || first > last || last >= total {
		return Range{}, ErrRangeInvalid
	}
	return Range{First: first, Last: last, Total: total}, nil
}

// parseCount reads decimal digits and nothing else: no sign, no space.
func parseCount(text string) (int64, bool) {
	for i := 0; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// DurableRange is the value of the Range header that tells a client what is
// durable: "bytes=0-(n-1)", or "" when nothing is, because then there is no
// such header and the client begins at byte zero.
func DurableRange(durable int64) string {
	if durable == 0 {
		return ""
	}
	return "bytes=0-" + strconv.FormatInt(durable-1, 10)
}
