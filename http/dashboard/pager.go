package dashboard

import (
	"strconv"

	"rollcall/http/web"
)

// pageRows is how many rows a page of keys or of people has. Guess: a page of them stays below half its bound.
const pageRows = 200

// pageOf gives which rows of a list are on the page that a request asks for: those from one place up to another. A page after
// the last one is the last one: rows may have gone since its link was made. False for what is no page.
func pageOf(r *request, base string, rows int) (from, to int, p web.Pager, ok bool) {
	page := 1
	if text := r.URL.Query().Get("page"); text != "" {
		var err error
		if page, err = strconv.Atoi(text); err != nil || page < 1 {
			return 0, 0, p, false
		}
	}
	last := max(1, (rows+pageRows-1)/pageRows)
	page = min(page, last)
	if page > 1 {
		p.First = base
	}
	if page < last {
		p.More = base + "?page=" + strconv.Itoa(page+1)
	}
	return (page - 1) * pageRows, min(page*pageRows, rows), p, true
}

// between gives the items of a list from one place up to another, those that there are.
func between[T any](list []T, from, to int) []T {
	return list[min(max(from, 0), len(list)):min(max(to, 0), len(list))]
}
