package web

import (
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"strings"

	"github.com/google/uuid"
)

// Text is a field of a form, without space around it.
func Text(r *http.Request, name string) string { return strings.TrimSpace(r.PostFormValue(name)) }

// ID reads a UUID in the one form that our links and forms have.
func ID(text string) (uuid.UUID, bool) {
	id, err := uuid.Parse(text)
	return id, err == nil && id.String() == text
}

// input is a field of a form with its label. attributes are those of the page's author, such as "required
// maxlength=200"; "id=x" gives it another id than its name. hint is a line below it.
func input(name, label string, value any, attributes string, hint ...string) template.HTML {
	id, all := name, ""
	for _, a := range strings.Fields(attributes) {
		key, set, valued := strings.Cut(a, "=")
		switch {
		case key == "id":
			id = template.HTMLEscapeString(set)
		case valued:
			all += " " + key + `="` + template.HTMLEscapeString(set) + `"`
		default:
			all += " " + key
		}
	}
	if text := fmt.Sprint(value); text != "" {
		all += ` value="` + template.HTMLEscapeString(text) + `"`
	}
	below := ""
	if len(hint) > 0 {
		all += ` aria-describedby="` + id + `-how"`
		below = "\n<p class=\"soft\" id=\"" + id + `-how">` + template.HTMLEscapeString(hint[0]) + "</p>"
	}
	return template.HTML(fmt.Sprintf("<label for=%q>%s</label>\n<input id=%q name=%q%s>%s", id,
		template.HTMLEscapeString(label), id, name, all, below))
}

// hidden is a value that a form brings back.
func hidden(name string, value any) template.HTML {
	return template.HTML(fmt.Sprintf(`<input type="hidden" name=%q value="%s">`, name,
		template.HTMLEscapeString(fmt.Sprint(value))))
}

// options are those of a select: the values of a list, of which one is chosen. A name that is given stands first,
// for none.
func options(list any, chosen any, none ...string) template.HTML {
	var b strings.Builder
	for _, name := range none {
		fmt.Fprintf(&b, `<option value="">%s</option>`, template.HTMLEscapeString(name))
	}
	values := reflect.ValueOf(list)
	for i := range values.Len() {
		text, mark := fmt.Sprint(values.Index(i).Interface()), ""
		if text == fmt.Sprint(chosen) {
			mark = " selected"
		}
		word := template.HTMLEscapeString(OutcomeWord(text))
		fmt.Fprintf(&b, `<option value="%s"%s>%s</option>`, template.HTMLEscapeString(text), mark, word)
	}
	return template.HTML(b.String())
}

// copied is a text that somebody takes elsewhere: a key, a link, a code, a command. Script gives it a button.
func copied(label, text string) template.HTML {
	return template.HTML(fmt.Sprintf(
		`<pre class="copied" data-copy tabindex="0" role="region" aria-label=%q><code>%s</code></pre>`, label,
		template.HTMLEscapeString(text)))
}

// SetCookie gives a browser a cookie that only we read. An age of 0 ends with the browser, one below takes it away.
func SetCookie(w http.ResponseWriter, name, value string, age int, same http.SameSite) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true,
		SameSite: same, MaxAge: age})
}

// CookieOf is the value of a cookie; two of them are none.
func CookieOf(r *http.Request, name string) string {
	found := r.CookiesNamed(name)
	if len(found) != 1 {
		return ""
	}
	return found[0].Value
}

// Pager leads to other pages of a list.
type Pager struct{ First, More string } // links; "": none
