package browser_test

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"rollcall/http/apikey"
	"rollcall/http/dashboard/signin"
	"rollcall/http/web"
	"rollcall/ledger"
	"rollcall/smtp"
	"rollcall/smtp/evidence"
)

// turned are marks that turn the direction of text and are never turned back.
const turned = "\u202egpj.\u2067exe"

// hostileTexts are what others may write wherever they may: markup, addresses that run, templates, texts that turn, and one
// that is long and cannot be broken.
var hostileTexts = map[string]string{
	"markup": `"'><img src=x onerror=alert(1)><script>alert(2)</script></title></textarea><svg onload=alert(3)> javascript:alert(4) ` +
		`${7*7}{{7*7}}<%= 7*7 %>` + turned,
	"long": strings.Repeat("W", 800) + strings.Repeat("é", 50),
}

// cut is the beginning of a text, in at most so many bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// harmless opens a page in a narrow window and fails unless the text stands there as text, and nothing else happens. What the
// tab watches for anyway (dialogs, exceptions, reports of the policy, width) fails the test at its end.
func (b *tab) harmless(path, text string) {
	b.t.Helper()
	b.goTo(path)
	if path != b.at() && !strings.HasPrefix(path, b.at()) {
		b.t.Errorf("%s led to %s", path, b.at())
	}
	b.hasText(text)
}

// hasText fails unless a text is on the page as it is, and none of its markup became an element.
func (b *tab) hasText(text string) {
	b.t.Helper()
	if !eval[bool](b, `[...document.querySelectorAll("body, input, option")].some((e) => (e.textContent + " " + (e.value || "")).includes(`+quote(text)+`))`) {
		b.t.Errorf("%s does not show %.60q: %.700s", b.at(), text, b.text())
	}
	if made := eval[[]string](b, `[...document.querySelectorAll("img, main script, svg[onload], [onerror], a[href^='javascript:']")].map((e) => e.outerHTML)`); len(made) != 0 {
		b.t.Errorf("%s made of a text: %s", b.at(), made)
	}
	b.fits()
}

// settledWith settles one address whose name is a text, and whose receiver says it.
func (p *place) settledWith(name, text string) ledger.Verification {
	p.t.Helper()
	leasing.Lock()
	defer leasing.Unlock()
	v := p.whole(name)
	said := evidence.Attempt{At: time.Now(), Stage: smtp.StageRcpt, Host: cut(text, 200), Code: 550, Enhanced: smtp.EnhancedCode{5, 1, 1},
		Text: cut(text, 400), Outcome: smtp.Unknown, Reason: smtp.Greylisted, Rule: "rcpt-5.1.1"}
	packed, err := evidence.Pack([]evidence.Entry{{Case: evidence.Case{Attempts: []evidence.Attempt{said}, Hosts: 1}}})
	if err == nil {
		_, err = p.book.Prepare(p.t.Context(), p.held, 1, 0, 1)
	}
	if err == nil {
		v, err = p.book.Settle(p.t.Context(), ledger.Settlement{Lease: p.held, Number: 1, Evidence: packed, Results: []ledger.Result{
			{Email: cut(text, 300) + "@" + cut(text, 300), Outcome: smtp.Unknown, Reason: smtp.Greylisted, At: said.At}}})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// joinAs makes somebody a member under a name.
func (p *place) joinAs(name string, role ledger.Role) person {
	p.t.Helper()
	who := person{email: uuid.NewString()[:8] + "@acme.test", user: uuid.New()}
	link, _ := signin.Token(strings.TrimPrefix(p.link(ledger.InviteLink, who.email, role), "/link/")).Hash()
	session := signin.NewToken()
	who.token = string(session)
	who.id, _ = session.Hash()
	if _, err := p.book.AcceptLink(p.t.Context(), ledger.Accept{Link: link, User: who.user, Name: name, Password: keptPassword,
		Session: ledger.NewSession{ID: who.id, Agent: cut(name, 100), Network: "127.0.0.1", Life: time.Hour}}); err != nil {
		p.t.Fatal(err)
	}
	return who
}

func TestHostileTextsOnPagesOfCustomers(t *testing.T) {
	t.Parallel()
	for name, text := range hostileTexts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			name := ledger.CleanName(text) // what names may have
			p := theNode(t).workspace(t, name, 1000)
			short := cut(name, 200)
			who := p.joinAs(short, ledger.Owner)
			_, k := apikey.New()
			_, err := p.book.CreateKey(ledger.WithActor(t.Context(), "user:"+who.user.String()), ledger.Key{ID: k.ID, Workspace: p.id,
				Label: short, SecretSHA256: k.SHA256})
			if err == nil {
				_, err = p.book.Grant(t.Context(), uuid.New(), p.id, 10, text)
			}
			if err != nil {
				t.Fatal(err)
			}
			v := p.settledWith(text, text)
			open := p.uploading(text, 1000)
			b := newTab(t, p.node).as(who)
			b.window(320, 900)
			inRow, named := web.Short(text), web.Short(name)
			for path, want := range map[string]string{"": inRow, "/credits": inRow, "/keys": named, "/keys/" + k.ID: short, "/people": named,
				"/people/" + p.userID(who.email): short, "/activity": named, "/upload": name, "/check": name} {
				b.harmless(p.path+path, want)
			}
			b.harmless("/you", inRow)
			for path, want := range map[string]string{"": text, "/results": inRow, "/addresses/0?in=1": cut(text, 200), "/reasons": cut(text, 300)} {
				b.harmless(p.of(v)+path, want)
			}
			b.harmless(p.of(open)+"/cancel", text)
			typed(b, p, v, text)
			p.downloads(b, v)
		})
	}
}

// typed types a text into the fields whose content comes back.
func typed(b *tab, p *place, v ledger.Verification, text string) {
	b.t.Helper()
	b.bear("status of 422", "status of 401")
	b.goTo(p.path + "/check")
	eval[bool](b, `((f) => { f.value = `+quote(text)+`; f.form.requestSubmit(); return true; })(document.getElementById("address"))`)
	b.until("document.activeElement.id === 'problem'")
	b.hasText(text)
	b.goTo(p.of(v) + "/results")
	find := cut(text, 300)
	eval[bool](b, `((f) => { f.value = `+quote(find)+`; f.form.requestSubmit(); return true; })(document.getElementById("find"))`)
	b.until("document.getElementById('find') && document.getElementById('find').defaultValue !== ''")
	b.hasText(find)
}

// downloads downloads the results, and looks at the name that the file gets.
func (p *place) downloads(b *tab, v ledger.Verification) {
	b.t.Helper()
	folder := b.t.TempDir()
	_, err := chromedp.CallBrowser(b.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: "allow",
		BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID, DownloadPath: folder})
	b.must(err)
	b.bear("net::ERR_ABORTED")
	b.goTo(p.of(v))
	b.press("Download all")
	name, text := saved(b, folder)
	for _, c := range name {
		if unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Bidi_Control) || strings.ContainsRune(`<>"/\|`, c) {
			b.t.Errorf("the file is called %q", name)
			break
		}
	}
	if strings.Count(text, "\n") != 2 {
		b.t.Errorf("the file %q has %q", name, text)
	}
}

// A file of a hostile name is chosen, and uploaded if its name can be kept.
func TestUploadingAFileOfAHostileName(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		name string
		kept bool
	}{
		"markup": {`<img src=x onerror=alert(1)> javascript:alert(1) ${7*7}{{7*7}} "'.csv`, true},
		"long":   {strings.Repeat("W", 240) + ".csv", true},
		"turned": {turned + ".csv", false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := theNode(t).workspace(t, "acme", 1000)
			b := newTab(t, p.node).as(p.join(ledger.Member))
			b.window(320, 900)
			path, _ := list(t, c.name, 2_000, "a")
			b.goTo(p.path + "/upload")
			b.choose(path)
			b.shows("It needs at most")
			b.fits()
			if !c.kept {
				b.bear("status of 400", "status of 422")
			}
			b.press("Upload and check")
			if c.kept {
				b.shows("The file has arrived.")
				b.hasText(c.name)
				if v := p.newest(); v.Filename != c.name {
					t.Errorf("the file is called %q", v.Filename)
				}
				return
			}
			b.shows("Rename the file")
			b.fits()
		})
	}
}
