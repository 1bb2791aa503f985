package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"rollcall/ledger"
)

// Text is the value of a form's field, without surrounding space.
func Text(r *http.Request, name string) string { return strings.TrimSpace(r.PostFormValue(name)) }

// ID reads a UUID in the only form that our links and forms use.
func ID(text string) (uuid.UUID, bool) {
	id, err := uuid.Parse(text)
	return id, err == nil && id.String() == text
}

// form begins a form that posts to the path made of pieces; without pieces to its own page.
func form(path ...any) template.HTML {
	action := ""
	if len(path) > 0 {
		action = ` action="` + template.HTMLEscapeString(fmt.Sprint(texts(path)...)) + `"`
	}
	return template.HTML(`<form method="post"` + action + ` class="rows">`)
}

// texts converts values to strings, between which fmt.Sprint puts no space.
func texts(values []any) (all []any) {
	for _, v := range values {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// send is the button that sends a form, and the form's end. class is "first", "danger" or "".
func send(class, word string) template.HTML {
	if class != "" {
		class = ` class="` + class + `"`
	}
	return template.HTML("<button" + class + ">" + template.HTMLEscapeString(word) + "</button></form>")
}

// kinds are common attributes of fields.
var kinds = map[string]string{
	"text":     "required maxlength=200 autocomplete=off",
	"number":   "required maxlength=20 autocomplete=off inputmode=numeric",
	"search":   "type=search maxlength=200 autocomplete=off",
	"email":    "type=email required maxlength=254 autocomplete=off",
	"password": "type=password required maxlength=128 autocomplete=current-password",
	"code":     "required maxlength=40 autocomplete=one-time-code autocapitalize=characters spellcheck=false",
	"address":  "required maxlength=1000 autocomplete=off autocapitalize=off spellcheck=false",
}

// input is a field of a form with its label. attributes are written by the page's author, such as "maxlength=200"; the
// first may be one of kinds; "id=x" gives it another id than its name. hint is a line below it.
func input(name, label string, value any, attributes string, hint ...string) template.HTML {
	id, all := name, ""
	kind, own, _ := strings.Cut(attributes, " ")
	if kinds[kind] != "" {
		attributes = kinds[kind]
		if name, _, more := strings.Cut(own, "="); more {
			attributes = regexp.MustCompile(name+`=\S+`).ReplaceAllString(attributes, "")
		}
		attributes += " " + own
	}
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

func hidden(name string, value any) template.HTML {
	return template.HTML(fmt.Sprintf(`<input type="hidden" name=%q value="%s">`, name,
		template.HTMLEscapeString(fmt.Sprint(value))))
}

// options are the options of a select: the values of a list, one of them chosen. A given name comes first, meaning
// none.
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

func choose(name, label string, list, chosen any, none ...string) template.HTML {
	return template.HTML(fmt.Sprintf("<label for=%q>%s</label>\n<select id=%q name=%q>%s</select>", name, label, name,
		name, options(list, chosen, none...)))
}

// warn is a word with the mark of a problem, off one with the mark of an ended thing.
func warn(words ...any) template.HTML { return marked("strong", "warn", "!", words) }

func off(words ...any) template.HTML { return marked("span", "off", "–", words) }

func marked(tag, class, sign string, words []any) template.HTML {
	text := template.HTMLEscapeString(strings.TrimSpace(fmt.Sprintln(words...)))
	return template.HTML(fmt.Sprintf(`<%s class="state %s"><span class="mark" aria-hidden="true">%s</span> %s</%s>`,
		tag, class, sign, text, tag))
}

// live begins a part of a page that refreshes itself at an interval from the path made of pieces; never if every is
// empty. say is the text for screen readers when it changes.
func live(label, every, say string, path ...any) template.HTML {
	again := ""
	if every != "" {
		again = fmt.Sprintf(` data-hx-get="%s" data-hx-trigger="every %s" data-hx-swap="outerMorph"`,
			template.HTMLEscapeString(fmt.Sprint(texts(path)...)), every)
	}
	return template.HTML(fmt.Sprintf(`<section id="live" class="live" aria-label=%q %s%s data-say="%s">`, label,
		emptyTag, again, template.HTMLEscapeString(say)))
}

// copied is a text to copy: a key, a link, a code, a command. Script adds a button.
func copied(label, text string) template.HTML {
	return template.HTML(fmt.Sprintf(
		`<pre class="copied" data-copy tabindex="0" role="region" aria-label=%q><code>%s</code></pre>`, label,
		template.HTMLEscapeString(text)))
}

// SetCookie sets a cookie that only we read. With age 0 it ends with the browser, with a negative age it is deleted.
func SetCookie(w http.ResponseWriter, name, value string, age int, same http.SameSite) {
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true,
		SameSite: same, MaxAge: age})
}

// CookieOf returns the value of a cookie. Two cookies count as none.
func CookieOf(r *http.Request, name string) string {
	found := r.CookiesNamed(name)
	if len(found) != 1 {
		return ""
	}
	return found[0].Value
}

// Pager is the links to other pages of a list.
type Pager struct{ First, More string } // links; "": none

// WorkingFirst sorts keys, which the ledger returns oldest first: keys in use before revoked ones, the newest first in
// both groups.
func WorkingFirst(keys []ledger.Key) []ledger.Key {
	var working, revoked []ledger.Key
	for _, k := range slices.Backward(keys) {
		if k.Works() {
			working = append(working, k)
		} else {
			revoked = append(revoked, k)
		}
	}
	return append(working, revoked...)
}

// KeyName is a key's label, or its id.
func KeyName(k ledger.Key) string { return cmp.Or(k.Label, "rc_"+k.ID) }

// Roles are the possible roles of a member.
var Roles = []ledger.Role{ledger.Viewer, ledger.Member, ledger.Owner}

// RolesText explains the roles.
const RolesText = "Viewers see everything. Members can also upload, check and cancel. Owners also manage keys and " +
	"people, and see the activity."
