package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"rollcall/http/api"
	"rollcall/http/web"
	"rollcall/ledger"
)

// labelMax bounds the label of a key, in bytes.
const labelMax = 200

type keysView struct {
	Base    string
	Keys    []keyView
	Pager   web.Pager
	Works   int    // keys that work now
	Form    string // the id of the form that makes a key
	Label   string
	Problem string
	Made    string // the key just made, which is shown only now
	API     string
}

type keyView struct {
	ledger.Key
	MadeBy, RevokedBy string
}

// Name is the key's label, or its id.
func (k keyView) Name() string { return web.KeyName(k.Key) }

func keysPath(r *request) string { return r.base() + "/keys" }

func showKeys(d *Dashboard, w http.ResponseWriter, r *request) error {
	return d.showKeys(w, r, http.StatusOK, keysView{})
}

func (d *Dashboard) showKeys(w http.ResponseWriter, r *request, status int, v keysView) error {
	found, err := d.o.Book.Keys(r.Context(), r.workspace())
	var who namer
	if err == nil {
		who, err = namerOf(d.o.Book, r, found)
	}
	if err != nil {
		return at("read keys", err)
	}
	v.Base, v.Form, v.API = keysPath(r), uuid.NewString(), d.o.PublicURL()
	from, to, pages, ok := pageOf(r, v.Base, len(found))
	if !ok {
		return web.Nothing
	}
	for _, k := range found {
		if k.Works() {
			v.Works++
		}
	}
	for _, k := range between(web.WorkingFirst(found), from, to) {
		v.Keys = append(v.Keys, keyView{Key: k, MadeBy: who.of(k.MadeBy), RevokedBy: who.of(k.RevokedBy)})
	}
	v.Pager = pages
	return d.show(w, r, status, "keys", titled("API keys", "keys", v))
}

// makeKey answers POST /w/{ws}/keys with the key, once. A repeated form makes no second key.
func makeKey(d *Dashboard, w http.ResponseWriter, r *request) error {
	form, ok := web.ID(r.PostFormValue("form"))
	label := web.Text(r.Request, "label")
	v := keysView{Label: label}
	switch {
	case !ok:
		v.Problem = "The form was incomplete. Please send it again."
	case label == "":
		v.Problem = "Give the key a label, such as the name of the program that uses it."
	case len(label) > labelMax || ledger.CheckName(label) != nil:
		v.Problem = "The label is too long or has characters that can't be shown. Use at most 200 characters."
	}
	if v.Problem != "" {
		return d.showKeys(w, r, http.StatusUnprocessableEntity, v)
	}
	text, key := api.NewKeyOf(api.KeyIDOf(d.signin.Keyed("key", r.workspace().String(), form.String())))
	_, err := d.o.Book.CreateKey(r.Context(), ledger.Key{ID: key.ID, Workspace: r.workspace(), Label: label,
		SecretSHA256: key.SHA256})
	switch {
	case errors.Is(err, ledger.ErrIllegal): // the form was sent before: its key has another secret
		return d.showKeys(w, r, http.StatusConflict, keysView{Problem: "This form already made a key, which was shown " +
			"once. If you didn't copy it, revoke it and make another one."})
	case err != nil:
		return at("create key", err)
	default:
		return d.showKeys(w, r, http.StatusOK, keysView{Made: text})
	}
}

func keyOfPath(book ledger.Book, r *request) (keyView, error) {
	k, err := book.KeyByID(r.Context(), r.PathValue("key"))
	switch {
	case errors.Is(err, ledger.ErrNoSuchKey), err == nil && k.Workspace != r.workspace():
		return keyView{}, web.Nothing
	case err != nil:
		return keyView{}, at("read key", err)
	}
	return keyView{Key: k}, nil
}

// askRevoke answers GET /w/{ws}/keys/{key}: it asks for confirmation.
func askRevoke(d *Dashboard, w http.ResponseWriter, r *request) error {
	k, err := keyOfPath(d.o.Book, r)
	if err != nil {
		return err
	}
	show := web.Confirm{Title: "Revoke the key “" + k.Name() + "” of " + r.member.WorkspaceName + "?", Up: "API keys",
		Back: keysPath(r), Text: []string{"Programs that use it will be refused, within 5 seconds. This can't be undone.",
			"It begins with rc_" + k.ID + " and was " + web.Used(k.LastUsed) + "."},
		Action: keysPath(r) + "/" + k.ID + "/revoke", Verb: "Revoke the key", Stay: "Keep it"}
	if !k.Revoked.IsZero() {
		show.Done = "This key is already revoked."
	}
	return d.show(w, r, http.StatusOK, "confirm", titled("Revoke "+k.Name(), "keys", show))
}

// revokeKey answers POST /w/{ws}/keys/{key}/revoke. A repeated form changes nothing.
func revokeKey(d *Dashboard, w http.ResponseWriter, r *request) error {
	k, err := keyOfPath(d.o.Book, r)
	if err != nil {
		return err
	}
	if _, err := d.o.Book.RevokeKey(r.Context(), k.ID); err != nil {
		return at("revoke key", err)
	}
	return seeOther(w, r, keysPath(r))
}

type namer map[string]string

// of returns the name of an actor, or "".
func (n namer) of(actor string) string {
	kind, id, _ := strings.Cut(actor, ":")
	switch {
	case n[actor] != "":
		return n[actor]
	case kind == "user":
		return "a former member"
	case kind == "key":
		return "key " + id
	case strings.HasPrefix(actor, "operator"):
		return "an operator"
	}
	return ""
}

// namerOf makes a namer that knows the members of the workspace and these keys, or all keys for nil.
func namerOf(book ledger.Book, r *request, keys []ledger.Key) (namer, error) {
	n := namer{}
	members, err := book.Members(r.Context(), r.workspace())
	if err == nil && keys == nil {
		keys, err = book.Keys(r.Context(), r.workspace())
	}
	for _, m := range members {
		n["user:"+m.User.String()] = cmp.Or(m.Name, m.Email)
	}
	for _, k := range keys {
		n["key:"+k.ID] = "key " + cmp.Or(k.Label, k.ID)
	}
	return n, err
}

// makers makes a namer for the creators of verifications. It asks the ledger only if one of them is a user or a key.
func makers(book ledger.Book, r *request, of ...ledger.Verification) (namer, error) {
	for _, v := range of {
		if strings.Contains(v.MadeBy, ":") {
			return namerOf(book, r, nil)
		}
	}
	return namer{}, nil
}
